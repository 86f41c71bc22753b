"""Who watches the hosts of a process: counters, and traces of sampled updates.

What is sampled is decided once, where an update comes from; from there on it is followed by name.
Acks are by far the most that passes here: those of one update are compared once with what was sent
of the sampled ones.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import product
from typing import Final

from roskva.core.effects import Acked
from roskva.errors import RoskvaError
from roskva.feed.commit import wall_clock_us
from roskva.feed.trace import Trace
from roskva.host.observer import WAYS, Observer, Way
from roskva.metrics import TRAFFIC
from roskva.model import WHOLE_SHARD, Update, is_probe
from roskva.wire.links import Push
from roskva.wire.messages import Ack, Notification

_log = logging.getLogger(__name__)
_FLUSH_S: Final = 1.0


class TrafficCounters(Observer):
    """The prober's own traffic is counted apart, but not by the way by which it came."""

    def __init__(self) -> None:
        self.published = dict.fromkeys(TRAFFIC, 0)
        self.notifications = dict.fromkeys(product(TRAFFIC, ("version", "unknown")), 0)
        """Handed to sessions: a version, or that it is unknown."""
        self.ways: defaultdict[int, dict[str, int]] = defaultdict(lambda: dict.fromkeys(WAYS, 0))
        """Updates that were news, by shard."""
        self.alone: set[int] = set()
        """Shards that read what is not on the fast path, for lack of a bridge."""
        self.gaps = 0

    def appended(self, updates: Sequence[tuple[int, Update]]) -> None:
        probes = len([None for _, update in updates if is_probe(update.object)])
        records = len([None for _, update in updates if update.object == WHOLE_SHARD])
        self.published["users"] += len(updates) - probes - records
        self.published["probe"] += probes

    def applied(self, shard: int, way: Way, updates: int) -> None:
        self.ways[shard][way] += updates

    def missed(self, shard: int) -> None:
        self.gaps += 1

    def reads_alone(self, shard: int, alone: bool) -> None:
        if alone:
            self.alone.add(shard)
            _log.info("shard %d reads its feed by itself: no bridge brings what is missing", shard)
        else:
            self.alone.discard(shard)
            _log.info("shard %d leaves what is missing to the bridge again", shard)

    def handed(self, notifications: Sequence[Notification], connections: int) -> None:
        for one in notifications:
            traffic = "probe" if is_probe(one.object) else "users"
            kind = "unknown" if one.version is None else "version"
            self.notifications[traffic, kind] += connections


class Tracer(Observer):
    """Notes when sampled updates pass, for `roskva job latency`."""

    def __init__(self, trace: Trace, shards: Collection[int]) -> None:
        """`shards`: those of this process, which note themselves what they pass on."""
        self._trace = trace
        self._shards = shards

    def appended(self, updates: Sequence[tuple[int, Update]]) -> None:
        self._begin("appended", updates)

    def offered(self, updates: Sequence[tuple[int, Update]]) -> None:
        self._begin("bridged", updates)

    def _begin(self, stage: str, updates: Sequence[tuple[int, Update]]) -> None:
        trace, now_us = self._trace, wall_clock_us()
        for _, update in updates:
            if not update.reset and trace.wants(update.object, update.version):
                if stage == "appended":
                    trace.note("published", update.object, update.version, update.published_at)
                trace.note(stage, update.object, update.version, now_us)
                trace.follow(update.object, update.version)

    def matched(self, pushes: Sequence[Push]) -> None:
        followed = self._trace.followed
        for push in pushes:
            if followed.get(push.object) == push.version:
                self._trace.note("matched", push.object, push.version, wall_clock_us())

    def arrived(self, shard: int, pushes: Sequence[Push]) -> None:
        if shard in self._shards:
            return
        for push in pushes:
            if self._trace.wants(push.object, push.version):
                self._trace.was_published(push.object, push.version, push.published_at)
                self._trace.follow(push.object, push.version)

    def told(self, notifications: Sequence[Notification], sessions: int) -> None:
        for told in notifications:
            if told.version is not None and self._trace.followed.get(told.object) == told.version:
                self._trace.note("sent", told.object, told.version, wall_clock_us())

    def acked(self, event: Acked) -> None:
        for (key, version, _), conns in event.acks.items():
            if self._trace.sent.get(key) == version:
                now_us = wall_clock_us()
                for _ in conns:
                    self._trace.note("acked", key, version, now_us)

    def acked_one_by_one(self, acks: Sequence[Ack]) -> None:
        for ack in acks:
            if ack.version is not None and self._trace.sent.get(ack.object) == ack.version:
                self._trace.note("acked", ack.object, ack.version, wall_clock_us())


class Observers(Observer):
    """Several, in their order."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        for fact, ignored in vars(Observer).items():
            if callable(ignored):
                who = [o for o in observers if getattr(type(o), fact) is not ignored]
                tell = [getattr(o, fact) for o in who]
                setattr(self, fact, tell[0] if len(tell) == 1 else partial(_tell, tell))


def _tell(listening: Sequence[Callable[..., None]], *fact: object) -> None:
    for tell in listening:
        tell(*fact)


# Traces on disk.


async def write_trace(trace: Trace) -> None:
    """Write down what was noted, until cancelled. What cannot be written is lost, and no more."""
    loop = asyncio.get_running_loop()
    with _reported():
        try:
            # Cancelling does not stop a thread: leaving this block waits for what it writes.
            with ThreadPoolExecutor(1, "trace") as writer:
                while True:
                    await asyncio.sleep(_FLUSH_S)
                    if noted := trace.take():
                        await asyncio.shield(loop.run_in_executor(writer, _write, trace, noted))
        finally:
            trace.close(wall_clock_us())


def _write(trace: Trace, noted: Sequence[Update]) -> None:
    with _reported():
        trace.write(noted, wall_clock_us())


@contextmanager
def _reported() -> Iterator[None]:
    try:
        yield
    except RoskvaError as error:
        _log.warning("a part of the trace is lost: %s", error)
