"""What is asked of an authority: at hello, at every registration and at every publish.

Without keys everybody may do everything: that is for a first try, on loopback.
"""

from collections.abc import Collection, Coroutine
from typing import Any, Final, Protocol, TypeVar

import msgspec

from roskva.core.identity import Standing
from roskva.errors import Unauthorised
from roskva.model import NOBODY, Key, Principal

T = TypeVar("T")
Later = Coroutine[Any, Any, T]


class Verdict(msgspec.Struct, frozen=True):
    """About some objects: those that are not in it are allowed."""

    denied: frozenset[Key] = frozenset()
    undecided: frozenset[Key] = frozenset()
    """Nobody could be asked: not now."""


ALLOWED: Final = Verdict()


def not_accepted() -> Unauthorised:
    """The same words whatever is wrong with a credential: who guesses is told nothing."""
    return Unauthorised("this needs a credential that is accepted here")


class Authority(Protocol):
    """What can be said at once is said at once; what has to be asked elsewhere is awaited."""

    standing: Standing
    guarded: frozenset[str]
    """The apps in which it is asked again before each notification."""

    def identify(self, app: str | None, credential: str | None) -> Principal | Later[Principal]:
        """Who is it that connects? `Unauthorised` if nobody we let in."""
        ...

    def may_register(
        self, principal: Principal, keys: Collection[Key]
    ) -> Verdict | Later[Verdict]: ...

    def may_publish(self, principal: Principal, key: Key) -> bool: ...


class AllowAll:
    standing = Standing()
    guarded: frozenset[str] = frozenset()

    def identify(self, app: str | None, credential: str | None) -> Principal:
        return NOBODY

    def may_register(self, principal: Principal, keys: Collection[Key]) -> Verdict:
        return ALLOWED

    def may_publish(self, principal: Principal, key: Key) -> bool:
        return True
