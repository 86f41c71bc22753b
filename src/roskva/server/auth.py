"""Who may do what. Asked at hello, at every registration and at every publish.

Without keys everybody may do everything: that is for a first try, on loopback.
"""

from typing import Protocol

from roskva.channels.base import NOBODY, Principal
from roskva.model import Key


class Authority(Protocol):
    def identify(self, app: str | None, user: str | None, secret: bytes | None) -> Principal:
        """Who is it that connects? `Unauthorised` if nobody we let in."""
        ...

    def may_register(self, principal: Principal, key: Key) -> bool: ...

    def may_publish(self, principal: Principal, key: Key) -> bool: ...


class AllowAll:
    def identify(self, app: str | None, user: str | None, secret: bytes | None) -> Principal:
        return NOBODY

    def may_register(self, principal: Principal, key: Key) -> bool:
        return True

    def may_publish(self, principal: Principal, key: Key) -> bool:
        return True
