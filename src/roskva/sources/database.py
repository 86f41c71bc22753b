"""What a reader asks of a database: each kind of database has a module that answers."""

from collections.abc import Sequence
from typing import Any, Protocol

import msgspec

from roskva.sources.position import Position
from roskva.sources.reader import Doubtful, LogIdle, LogOpened, Received


class Tables(msgspec.Struct, frozen=True):
    """Which tables are published, as their database writes their names, and the columns of their
    keys where these are not those of the primary key."""

    names: tuple[str, ...]
    keys: dict[str, tuple[str, ...]] = {}


class ServerProblem(msgspec.Struct, frozen=True):
    """What is missing on the server, and what mends it."""

    sentence: str
    remedy: str


class AskServer(Protocol):
    """A query on the connection that asks; its rows."""

    def __call__(self, query: str, *arguments: object) -> list[tuple[Any, ...]]: ...


class DatabaseLog(Protocol):
    """The log of one database, for one thread. Whatever fails raises `Unavailable`, and then it is
    to be connected again; what will not pass by itself raises `BadConfig`, in words."""

    def check(self) -> list[ServerProblem]:
        """What is missing on the server; asking changes nothing there."""

    def connect(self, ours: Position | None, adopt: bool) -> LogOpened:
        """Begin to read after our position, or after a doubt."""

    def read(self, timeout_s: float) -> Sequence[Received | Doubtful | LogIdle]:
        """What has come, waiting for the first of it at most so long."""

    def visible(self, xids: frozenset[int]) -> frozenset[int]:
        """Those whose changes are seen by whoever looks now."""

    def confirm(self, position: Position) -> None:
        """What is before it is not needed any more."""

    def complaints(self) -> Sequence[str]:
        """Tables that cannot be read for now, and why; the others are."""

    def lag_bytes(self) -> int | None:
        """Of the database's log beyond what was confirmed; None: it cannot be told."""

    def close(self) -> None: ...
