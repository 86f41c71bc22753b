"""Shards and registrars that note when sampled updates pass them, for `roskva job latency`.

A node that does not sample uses the plain ones, and pays nothing.
"""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from roskva.core.effects import Acked, Broadcast, Effect, Event, Send, SendLink
from roskva.feed.base import Committed
from roskva.feed.commit import wall_clock_us
from roskva.feed.trace import DIRECTORY, Trace
from roskva.model import NO_VERSION, Principal, Update
from roskva.server.front import NodeFront
from roskva.server.shard import Link, Shard
from roskva.server.stepper import Stepper
from roskva.wire.links import FromShard, Offer, Push
from roskva.wire.messages import ClientMessage, FromClient

_FLUSH_S: Final = 1.0


def open_trace(data: Path, process: str, one_in: int) -> Trace:
    return Trace(data / DIRECTORY / process, one_in, wall_clock_us())


async def keep_trace(trace: Trace) -> None:
    """Write down what was noted, until cancelled."""
    try:
        while True:
            await asyncio.sleep(_FLUSH_S)
            await asyncio.to_thread(trace.write, trace.take(), wall_clock_us())
    finally:
        trace.close(wall_clock_us())


class TracedShard(Shard):
    trace: Trace

    def _committed(self, committed: Committed) -> None:
        for update in committed.updates:
            self._note("published", [update], update.published_at)
        self._note("appended", committed.updates, wall_clock_us())
        super()._committed(committed)

    def offered(self, link: Link, offer: Offer) -> None:
        self._note("bridged", (update for _, update in offer.updates), wall_clock_us())
        super().offered(link, offer)

    def _carry_out(self, effect: Effect, machine: Stepper) -> None:
        # Before it is sent on: to a registrar in this process it is a call.
        if isinstance(effect, SendLink) and isinstance(effect.message, Push):
            push = effect.message
            self.trace.note("matched", push.object, push.version, wall_clock_us())
        super()._carry_out(effect, machine)

    def _note(self, stage: str, updates: Iterable[Update], at_us: int) -> None:
        for update in updates:
            if not update.reset:
                self.trace.note(stage, update.object, update.version, at_us)


class TracedFront(NodeFront):
    trace: Trace

    def step(self, event: Event) -> None:
        if isinstance(event, Acked):
            for key, version, _ in event.sent:
                if version != NO_VERSION:
                    self.trace.note("acked", key, version, wall_clock_us())
        super().step(event)

    def received(self, conn: Any, principal: Principal, message: FromClient) -> None:
        if isinstance(message, ClientMessage):
            self._note("acked", message.acks)
        super().received(conn, principal, message)

    def from_link(self, shard: int, message: FromShard) -> None:
        if type(message) is Push:
            self.trace.was_published(message.object, message.version, message.published_at)
        super().from_link(shard, message)

    def _carry_out(self, effect: Effect) -> None:
        super()._carry_out(effect)
        if isinstance(effect, Broadcast | Send):
            self._note("sent", effect.message.notifications)

    def _note(self, stage: str, about: Iterable[Any]) -> None:
        for each in about:
            if each.version is not None:
                self.trace.note(stage, each.object, each.version, wall_clock_us())
