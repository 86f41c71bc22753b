"""Transactions by their names (GTIDs): which of them a server has, and whether we can go on there.

MariaDB numbers them in each domain, and says which server made them: `0-1-17`. A position is the
last one of each domain. MySQL numbers those of each server, by its UUID, and a position is all of
them: `UUID:1-17`.

**What is behind us may not be what it was.** A log that was reset begins to count anew, and goes
past our position some day; another database counts as well. So a position names the last
transaction and when it was committed, and whoever connects asks for that one again: if it is
another, or was never there, what follows is not what followed. A promoted replica has the very
same one, and is followed without a word.
"""

from collections.abc import Mapping
from typing import Literal, Protocol

import msgspec

from roskva.errors import BadConfig
from roskva.sources.position import BROKEN, Doubt, GtidPosition


class Gtids(Protocol):
    """What one has up to a place in the log."""

    def add(self, gtid: str) -> None: ...

    def __str__(self) -> str: ...


class MariaDbGtids:
    def __init__(self, text: str = "") -> None:
        self._last: dict[str, str] = {}
        """By domain."""
        for gtid in text.replace(",", " ").split():
            self.add(gtid)

    def add(self, gtid: str) -> None:
        self._last[gtid.partition("-")[0]] = gtid

    def __str__(self) -> str:
        if len(self._last) == 1:
            return next(iter(self._last.values()))
        return ",".join(sorted(self._last.values(), key=_numbers))

    def known_in(self, state: str) -> bool:
        """`state`: the last of each server in each domain."""
        reached = _reached(state)
        return all(
            reached.get(_series(gtid), -1) >= _numbers(gtid)[2] for gtid in self._last.values()
        )

    def shared_with(self, state: str) -> bool:
        """Whether any of ours came from a server that has left something there as well."""
        return any(_series(gtid) in _reached(state) for gtid in self._last.values())


def _numbers(gtid: str) -> tuple[int, ...]:
    return tuple(map(int, gtid.split("-")))


def _series(gtid: str) -> tuple[int, ...]:
    """Domain and server."""
    return _numbers(gtid)[:2]


def _reached(state: str) -> Mapping[tuple[int, ...], int]:
    return {_series(gtid): _numbers(gtid)[2] for gtid in state.replace(",", " ").split()}


class MysqlGtids:
    def __init__(self, text: str = "") -> None:
        self.ranges: dict[str, list[tuple[int, int]]] = {}
        """By UUID: the first and last of each, in order."""
        for part in "".join(text.split()).split(","):
            uuid, *ranges = part.lower().split(":")
            for numbers in ranges:
                first, _, last = numbers.partition("-")
                self._add(uuid, int(first), int(last or first))

    def add(self, gtid: str) -> None:
        uuid, _, number = gtid.partition(":")
        self._add(uuid, int(number), int(number))

    def _add(self, uuid: str, first: int, last: int) -> None:
        ranges = self.ranges.setdefault(uuid, [])
        if ranges and ranges[-1][1] + 1 == first:  # as nearly always
            ranges[-1] = (ranges[-1][0], last)
            return
        merged: list[tuple[int, int]] = []
        for begin, end in sorted((*ranges, (first, last))):
            if merged and begin <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
            else:
                merged.append((begin, end))
        self.ranges[uuid] = merged

    def __str__(self) -> str:
        return ",".join(
            ":".join((uuid, *(f"{a}-{b}" if b > a else f"{a}" for a, b in self.ranges[uuid])))
            for uuid in sorted(self.ranges)
        )

    def __contains__(self, gtid: str) -> bool:
        uuid, _, number = gtid.partition(":")
        return any(a <= int(number) <= b for a, b in self.ranges.get(uuid, ()))

    def known_in(self, others: "MysqlGtids") -> bool:
        return all(
            any(a <= first and last <= b for a, b in others.ranges.get(uuid, ()))
            for uuid, ranges in self.ranges.items()
            for first, last in ranges
        )

    def shared_with(self, others: "MysqlGtids") -> bool:
        return any(
            first <= b and a <= last
            for uuid in self.ranges.keys() & others.ranges.keys()
            for first, last in self.ranges[uuid]
            for a, b in others.ranges[uuid]
        )


# Whether one can go on.


class GtidServer(msgspec.Struct, frozen=True):
    server: str
    """Which it is."""
    has: str
    """Up to where."""
    knows: Literal["all", "some", "none"]
    """Of our transactions; `some` if it has been a replica of theirs."""
    tables: str
    """Their print."""


def judge_gtids(ours: GtidPosition | None, found: GtidServer, adopt: bool = False) -> Doubt | None:
    """None: it has what we have read, so that what follows is what it will send."""
    if ours is None:
        return Doubt("attached", "the source begins")
    if found.knows == "all" and found.tables not in (ours.tables, BROKEN):
        return Doubt(
            "tables changed",
            "a table could not be read, or has another key: changes of it may be missing",
        )
    if found.knows == "all":
        return None
    has, read = found.has or "nothing", ours.gtids or "nothing"
    if found.server == ours.server:
        return Doubt("reset", f"the binary log begins anew: it has {has}, and we have read {read}")
    if found.knows == "some":
        return Doubt("fork", f"the server lacks what we have read: it has {has}, and we {read}")
    if not adopt:
        raise BadConfig(
            f"this is another database ({found.server} with {has}, and not {ours.server} with "
            f"{read}): if it is meant, start once with --adopt; clients of the app then look at "
            "everything"
        )
    return Doubt("adopted", f"another database was adopted: {found.server} with {has}")
