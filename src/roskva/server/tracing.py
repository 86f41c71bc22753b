"""Shards and registrars that note when sampled updates pass them, for `roskva job latency`.

A node that does not sample uses the plain ones.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from roskva.core.effects import Acked, Broadcast, Effect, Event, Send, SendLink
from roskva.errors import RoskvaError
from roskva.feed.base import Committed
from roskva.feed.commit import wall_clock_us
from roskva.feed.trace import DIRECTORY, Trace
from roskva.model import Principal, Update
from roskva.server.front import NodeFront
from roskva.server.shard import Link, Shard
from roskva.server.stepper import Stepper
from roskva.wire.links import FromShard, Offer, Pushes
from roskva.wire.messages import ClientMessage, FromClient

_log = logging.getLogger(__name__)

_FLUSH_S: Final = 1.0


def open_trace(data: Path, process: str, one_in: int) -> Trace:
    return Trace(data / DIRECTORY / process, one_in, wall_clock_us())


async def keep_trace(trace: Trace) -> None:
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


class TracedShard(Shard):
    trace: Trace

    def _committed(self, committed: Committed) -> None:
        now_us, trace = wall_clock_us(), self.trace
        chosen = {update.object: update.version for update in self._wanted(committed.updates)}
        for update in self._wanted(committed.updates) if chosen else ():
            trace.note("published", update.object, update.version, update.published_at)
            trace.note("appended", update.object, update.version, now_us)
        trace.chosen = chosen
        try:
            super()._committed(committed)
        finally:
            trace.chosen = None

    def offered(self, link: Link, offer: Offer) -> None:
        for update in self._wanted(update for _, update in offer.updates):
            self.trace.note("bridged", update.object, update.version, wall_clock_us())
        super().offered(link, offer)

    def _carry_out(self, effect: Effect, machine: Stepper) -> None:
        # Before it is sent on: to a registrar in this process it is a call.
        if type(effect) is SendLink and type(effect.message) is Pushes and self.trace.chosen != {}:
            for push in effect.message.pushes:
                if self.trace.wants(push.object, push.version):
                    self.trace.note("matched", push.object, push.version, wall_clock_us())
        super()._carry_out(effect, machine)

    def _wanted(self, updates: Iterable[Update]) -> Iterator[Update]:
        wants = self.trace.wants
        for update in updates:
            if wants(update.object, update.version) and not update.reset:
                yield update


class TracedFront(NodeFront):
    """Acks are by far the most that passes here: those of one update are compared once with what
    was sent of the sampled ones."""

    trace: Trace

    def step(self, event: Event) -> None:
        if type(event) is Acked:
            self._note_acks(event)
        super().step(event)

    def _note_acks(self, event: Acked) -> None:
        for (key, version, _), conns in event.acks.items():
            if self.trace.sent.get(key) == version:
                now_us = wall_clock_us()
                for _ in conns:
                    self.trace.note("acked", key, version, now_us)

    def received(self, conn: Any, principal: Principal, message: FromClient) -> None:
        if type(message) is ClientMessage:
            for ack in message.acks:
                if ack.version is not None and self.trace.sent.get(ack.object) == ack.version:
                    self.trace.note("acked", ack.object, ack.version, wall_clock_us())
        super().received(conn, principal, message)

    def from_link(self, shard: int, message: FromShard) -> None:
        if type(message) is Pushes and self.trace.chosen != {}:
            for push in message.pushes:
                if self.trace.wants(push.object, push.version):
                    self.trace.was_published(push.object, push.version, push.published_at)
        super().from_link(shard, message)

    def _carry_out(self, effect: Effect) -> None:
        super()._carry_out(effect)
        if self.trace.chosen == {}:
            return
        if type(effect) is Broadcast or type(effect) is Send:
            for told in effect.message.notifications:
                if told.version is not None and self.trace.wants(told.object, told.version):
                    self.trace.note("sent", told.object, told.version, wall_clock_us())
