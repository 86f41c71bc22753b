"""A node that runs, as the pipeline meets it over the sockets of its processes.

A node says in its data directory which process owns which shard and where it listens. The bridge
asks its **matchers** where they stand, and hands them ranges of the feed; that something is missing
they say by themselves. One that does not answer is left alone for a moment, and longer each time:
a matcher that is down or hangs must not hold up the others. **Jobs** ask who is online, and have
rows dropped and sessions compared.
"""

import asyncio
import logging
import select
import socket
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from roskva.errors import RoskvaError, Unavailable
from roskva.feed.base import START, Marker
from roskva.links.processes import Process, RunningNode, running
from roskva.links.questions import ask, exchange
from roskva.model import Update
from roskva.wire import links
from roskva.wire.codec import decode_from_shard, encode_link

_ASK_S: Final = 0.5
_ANSWER_S: Final = 5.0
"""Until a range is durable; a disk in trouble takes long."""
_LEFT_ALONE_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0)
_NOWHERE: Final = Marker(0, START)
_OFFERED: Final = 1000
_OFFERED_BYTES: Final = 1 << 20
_UNANSWERED: Final = 8
"""Offers under way at a time."""
_log = logging.getLogger(__name__)

Entry = tuple[int, Update]

_TIMEOUT_S: Final = 30.0

Seen = tuple[bytes, int]
"""A client, and the session in its row when it was looked at."""


# Its matchers.


class Range(msgspec.Struct, frozen=True):
    """`first … last` of a shard's feed."""

    shard: int
    lineage: int
    first: int
    last: int


class MatcherLinks:
    """To all matchers of one node; for one thread."""

    def __init__(self, data: str) -> None:
        self._data = Path(data)
        self._processes: dict[str, _Process] = {}
        self._sockets: dict[int, str] = {}
        self._requests = count(1)

    def positions(self, shards: Iterable[int]) -> dict[int, Marker]:
        """Where those stand that answer: everything up to there is applied."""
        asked: dict[int, tuple[_Process, int]] = {}
        for shard in shards:
            process, request = self._of(shard), next(self._requests)
            if process is not None and process.send(links.Offer(request, shard), _ASK_S):
                asked[shard] = process, request
        found = {}
        for shard, (process, request) in asked.items():
            taken = process.answer(request)
            if taken is not None:
                found[shard] = Marker(taken.lineage, taken.offset)
        return found

    def deliver(self, ranges: Sequence[tuple[Range, Iterable[Entry]]]) -> list[Marker | None]:
        """Where each matcher stands when it has taken its range over, or refused to; None if it
        does not answer. If that is before the range begins, there is a gap. They are offered at the
        same time: each waits for a disk of its own."""
        under_way = [self._begin(offered, entries) for offered, entries in ranges]
        return [None if one is None else one.end() for one in under_way]

    def _begin(self, offered: Range, entries: Iterable[Entry]) -> "_Delivery | None":
        process = self._of(offered.shard)
        if process is None:
            return None
        delivery = _Delivery(process, offered, _offers(offered, entries, self._requests))
        return delivery if delivery.begin() else None

    def close(self) -> None:
        for process in self._processes.values():
            process.close()

    def _of(self, shard: int) -> "_Process | None":
        path = self._sockets.get(shard)
        if path is None or self._processes[path].failures:
            self._look()
            path = self._sockets.get(shard)
        return None if path is None else self._processes[path]

    def _look(self) -> None:
        node = running(self._data)
        for process in node.processes if node is not None else ():
            for shard in process.shards:
                self._sockets[shard] = process.socket
                self._processes.setdefault(process.socket, _Process(process.socket))


@cache
def matchers_at(data: str) -> MatcherLinks:
    """Of this process and its one thread: links stay open from one micro-batch to the next."""
    return MatcherLinks(data)


class _Process:
    """A process of a node, over its Unix socket. Answers come in any order."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None
        self.failures = 0
        self._alone_until = 0.0
        self._closed = False
        self._answers: dict[int, links.Taken] = {}
        self._expected = 0

    def send(self, offer: links.Offer, timeout_s: float) -> bool:
        if time.monotonic() < self._alone_until:
            return False
        # A connection that nothing is expected from may be one to a process that is gone, while
        # another listens in its place.
        for attempt_is_last in (self._socket is None or self._expected > 0, True):
            try:
                self._write(encode_link(offer), timeout_s)
            except OSError as error:
                if attempt_is_last:
                    self._fail(error)
                    return False
                self.close()
            else:
                self._expected += 1
                return True
        return False

    def _write(self, frame: bytes, timeout_s: float) -> None:
        if self._socket is None:
            self._socket = _connected(self._path)
        self._socket.settimeout(timeout_s)
        _send(self._socket, frame)

    def answer(self, request: int) -> links.Taken | None:
        """None if it does not come; nothing else then comes over this connection either."""
        while request not in self._answers:
            if self._socket is None:
                return None
            try:
                message = decode_from_shard(_frame(self._socket))
            except (OSError, RoskvaError) as error:
                self._fail(error)
                return None
            if isinstance(message, links.Taken):
                self._answers[message.request] = message
        self.failures = 0
        self._expected -= 1
        return self._answers.pop(request)

    def close(self) -> None:
        """For good."""
        self._closed = True
        self._drop()

    def _drop(self) -> None:
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()
        self._answers.clear()

    def _fail(self, error: Exception) -> None:
        self._drop()
        pause_s = _LEFT_ALONE_S[min(self.failures, len(_LEFT_ALONE_S) - 1)]
        if not self.failures:
            _log.warning("no answer at %s (%s): going on without it", self._path, error)
        self.failures += 1
        self._alone_until = time.monotonic() + pause_s


class GapWatch:
    """Waits until a matcher misses something. Nothing is polled: a question stands at each shard
    until it is answered, or its process is gone. For one thread."""

    def __init__(self, data: str) -> None:
        self._data = Path(data)
        self._streams: dict[str, socket.socket] = {}
        self._standing: dict[int, str] = {}
        """The shards that were asked, each with the socket of its process."""
        self._alone_until: dict[str, float] = {}
        self._requests = count(1)

    def await_gap(self, been: Mapping[int, Marker], timeout_s: float) -> bool:
        """Whether something is missing beyond where we have been; in time, or not at all."""
        node = running(self._data)
        for process in node.processes if node is not None else ():
            if time.monotonic() >= self._alone_until.get(process.socket, 0.0):
                self._ask(process, been)
        if not self._streams:
            time.sleep(min(timeout_s, _LEFT_ALONE_S[0]))
            return False
        readable, _, _ = select.select([*self._streams.values()], [], [], timeout_s)
        heard = [path for path, stream in self._streams.items() if stream in readable]
        return any([self._hear(path) for path in heard])

    def close(self) -> None:
        for path in list(self._streams):
            self._drop(path)

    def _ask(self, process: Process, been: Mapping[int, Marker]) -> None:
        path = process.socket
        try:
            for shard in process.shards:
                if self._standing.get(shard) != path:
                    if path not in self._streams:
                        self._streams[path] = _connected(path)
                    at = been.get(shard, _NOWHERE)
                    question = links.AwaitGap(next(self._requests), shard, at.lineage, at.offset)
                    _send(self._streams[path], encode_link(question))
                    self._standing[shard] = path
        except OSError:
            self._drop(path)

    def _hear(self, path: str) -> bool:
        try:
            gap = decode_from_shard(_frame(self._streams[path]))
        except (OSError, RoskvaError):
            self._drop(path)
            return False
        if isinstance(gap, links.Gap):
            self._standing.pop(gap.shard, None)
        return isinstance(gap, links.Gap)

    def _drop(self, path: str) -> None:
        connection = self._streams.pop(path, None)
        if connection is not None:
            connection.close()
        self._standing = {shard: at for shard, at in self._standing.items() if at != path}
        self._alone_until[path] = time.monotonic() + _LEFT_ALONE_S[0]


@cache
def gaps_at(data: str) -> GapWatch:
    return GapWatch(data)


def _connected(path: str) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(_ASK_S)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _send(connection: socket.socket, frame: bytes) -> None:
    connection.sendall(len(frame).to_bytes(4) + frame)


def _frame(connection: socket.socket) -> bytes:
    length = int.from_bytes(_exactly(connection, 4))
    if length > links.MAX_LINK_FRAME_BYTES:
        raise ConnectionError("what it says is none of ours")
    return _exactly(connection, length)


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = bytearray()
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise ConnectionError("it went away")
        received += part
    return bytes(received)


@dataclass
class _Delivery:
    """A range on its way, a few offers ahead of the answers."""

    process: _Process
    offered: Range
    offers: Iterator[links.Offer]
    unanswered: deque[int] = field(default_factory=deque)

    def begin(self) -> bool:
        return self._send(next(self.offers, None))

    def end(self) -> Marker | None:
        offered, taken = self.offered, None
        for offer in self.offers:
            if len(self.unanswered) == _UNANSWERED:
                taken = self.process.answer(self.unanswered.popleft())
                if taken is None or taken.lineage != offered.lineage:
                    break
                if taken.offset < offered.first - 1:
                    break
            if not self._send(offer):
                return None
        while self.unanswered:
            taken = self.process.answer(self.unanswered.popleft())
        return None if taken is None else Marker(taken.lineage, taken.offset)

    def _send(self, offer: links.Offer | None) -> bool:
        if offer is None or not self.process.send(offer, _ANSWER_S):
            return False
        self.unanswered.append(offer.request)
        return True


def _offers(
    offered: Range, entries: Iterable[Entry], requests: Iterator[int]
) -> Iterator[links.Offer]:
    """In parts of what a matcher handles at a time. A part ends where its last update is: whatever
    of it was left out is made up for by a later part, and until that came it is in the feed."""
    first = offered.first
    part: list[Entry] = []
    size = 0
    for entry in entries:
        if len(part) == _OFFERED or size > _OFFERED_BYTES:
            last = part[-1][0]
            yield links.Offer(next(requests), offered.shard, offered.lineage, first, last, part)
            first, part, size = last + 1, [], 0
        part.append(entry)
        size += len(entry[1].payload or b"")
    if part:
        yield links.Offer(next(requests), offered.shard, offered.lineage, first, offered.last, part)


# What jobs ask.


def online(data: Path) -> dict[bytes, bool]:
    """The clients that have a session now, and whether each is known for a slow reader; none, if no
    node is running."""
    told = asyncio.run(_ask_all(running(data), links.Ask("online")))
    return {
        bytes.fromhex(client): slow for answer in told for client, slow in answer["clients"].items()
    }


def recheck(data: Path) -> int:
    """Have every session compared with the shards anew; how many there are."""
    told = asyncio.run(_ask_all(running(data), links.Ask("recheck")))
    return sum(answer["sessions"] for answer in told)


def forget(data: Path, clients: Mapping[int, Sequence[Seen]]) -> int:
    """Of every shard those clients that were not back since; how many rows are gone."""
    node = running(data)
    if node is None:
        raise Unavailable(f"no node serves {data}: rows are dropped by the node that owns them")
    return asyncio.run(_forget_all(node, clients))


async def _ask_all(node: RunningNode | None, question: links.Ask) -> list[dict[str, Any]]:
    if node is None:
        return []
    told = []
    for process in node.processes:
        answer = await ask(process.socket, question, _TIMEOUT_S)
        if "error" in answer:
            raise Unavailable(f"{process.name} does not answer: {answer['error']}")
        told.append(answer)
    return told


async def _forget_all(node: RunningNode, clients: Mapping[int, Sequence[Seen]]) -> int:
    owners = {shard: process for process in node.processes for shard in process.shards}
    count = 0
    for shard, seen in clients.items():
        for i in range(0, len(seen), links.MAX_LINK_PARTS):
            message = links.Forget(1, shard, list(seen[i : i + links.MAX_LINK_PARTS]))
            try:
                told = await exchange(owners[shard].socket, message, links.Forgotten, _TIMEOUT_S)
            except (OSError, TimeoutError) as error:
                raise Unavailable(f"shard {shard} does not answer: {error}") from error
            count += told.count
    return count
