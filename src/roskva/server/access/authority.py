"""What is asked of an authority: at hello, at every registration and at every publish.

Without keys everybody may do everything: that is for a first try, on loopback.
"""

from collections.abc import Collection, Coroutine
from typing import Any, Final, Protocol, TypeVar

import msgspec

from roskva.config import Config, has_keys
from roskva.core.identity import Standing, TokenKeys
from roskva.errors import Unauthorised
from roskva.model import NOBODY, Key, Principal
from roskva.server.access.keys import FlowKeys

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
    asked_at_publish: frozenset[str]
    """The apps in which a client's publishing has to be `confirmed`."""

    def identify(self, app: str | None, credential: str | None) -> Principal | Later[Principal]:
        """Who is it that connects? `Unauthorised` if nobody we let in."""
        ...

    def may_register(
        self, principal: Principal, keys: Collection[Key]
    ) -> Verdict | Later[Verdict]: ...

    def may_publish(self, principal: Principal, key: Key) -> bool: ...

    def confirmed(self, principal: Principal, keys: Collection[Key]) -> Verdict | Later[Verdict]:
        """Of what it may publish, as far as the settings say."""
        ...

    def reload(self, config: Config, tokens: TokenKeys | None = None) -> None:
        """`BadConfig` leaves everything as it was."""
        ...

    async def run(self) -> None:
        """Until cancelled: keep fetched keys fresh."""
        ...


class AllowAll:
    standing = Standing()
    guarded: frozenset[str] = frozenset()
    asked_at_publish: frozenset[str] = frozenset()

    def __init__(self, flows: FlowKeys | None = None) -> None:
        self._flows = flows or FlowKeys()

    def identify(self, app: str | None, credential: str | None) -> Principal:
        return (credential and self._flows.find(credential)) or NOBODY

    def may_register(self, principal: Principal, keys: Collection[Key]) -> Verdict:
        return ALLOWED

    def may_publish(self, principal: Principal, key: Key) -> bool:
        return True

    def confirmed(self, principal: Principal, keys: Collection[Key]) -> Verdict:
        return ALLOWED

    def reload(self, config: Config, tokens: TokenKeys | None = None) -> None:
        """Whether there are keys changes with a restart only."""
        self._flows = FlowKeys(config.apps_of_sources, tokens)

    async def run(self) -> None:
        """There is nothing to fetch."""


def authority_of(config: Config, tokens: TokenKeys | None = None) -> Authority:
    """`BadConfig` if a file that the settings name is not good. `tokens`: the keys under which this
    node seals tokens; without them neither its prober nor its flows are known."""
    if not has_keys(config):
        return AllowAll(FlowKeys(config.apps_of_sources, tokens))
    from roskva.server.access.keyed import KeyedAuthority

    return KeyedAuthority(config, tokens)
