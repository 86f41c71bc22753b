"""A registrar: its sessions and links, and what goes out to many at once.

**Telling.** What the core says to many sessions alike goes through the `Fanout`: each connection's
delivery joins those who get the same bytes, gets bytes of its own, or is left out and *lags*. A
large fan-out goes out in slices, and while it is under way its object may change again. Whoever is
still to be served then gets the newer announcement instead, and comes first: under a stream of
updates nobody is left behind, and nobody is told an older version after a newer one. Inside a slice
the core says nothing. What concerns one session alone (`Send`) leaves at once, and what a delivery
has to tell the core waits until the effects in hand are carried out.

**Publishing** is in `host/submissions.py`: this here says when links come and go.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final

import msgspec

from roskva.core.effects import (
    Acked,
    Broadcast,
    Effect,
    Event,
    FromConnection,
    FromLink,
    Lagging,
    LinkDown,
    LinkUp,
    Send,
    Tick,
)
from roskva.core.identity import TokenKeys
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.errors import Fenced, error_of
from roskva.host.batching import Batching, BatchMs
from roskva.host.delivery import Announcement, Delivery, Write
from roskva.host.effects import AudienceChecked, CheckAudience, Settled, Stopping, Submitted
from roskva.host.observer import Observer
from roskva.host.submissions import Holding, Submissions
from roskva.model import Key
from roskva.wire.links import (
    NotPublished,
    Push,
    Pushes,
    RowRefused,
    Superseded,
    UpdatesPublished,
    Versions,
    Welcome,
)
from roskva.wire.messages import ClientMessage

SLICE: Final = 1000
"""Deliveries notified before the loop gets its turn."""
MOST_TOGETHER: Final = 250
"""Addresses of one `Write`. The more, the less often Python and the kernel push each other out of
the processor's caches. But the first of them waits until all were notified."""

Outputs = list[Write | Lagging]
HostEvent = Event | Submitted | Stopping | AudienceChecked
HostEffect = Effect | Write | Settled | CheckAudience


class RegistrarHost:
    def __init__(
        self,
        config: RegistrarConfig,
        keys: TokenKeys,
        wall_us: int,
        now: float,
        observer: Observer | None = None,
        slice: int = SLICE,
        batch_ms: BatchMs | None = None,
        holding: Holding | None = None,
    ) -> None:
        """`slice`: how many sessions are told at a time. `holding`: of publishes, for shards that
        are away."""
        self.core = Registrar(config, keys, wall_us, now)
        self.observer = observer or Observer()
        self.guarded: frozenset[str] = frozenset()
        """Apps that are asked before each notification."""
        self.submissions = Submissions(config.shards, holding or Holding())
        self.welcomed: set[int] = set()
        """Shards that have answered on their link: one that hangs can be reached as well."""
        self.fanout = Fanout(slice, self.observer)
        self.batching = Batching(batch_ms)
        self._effects: list[HostEffect] = []
        self._events: deque[Event] = deque()

    def next_deadline(self) -> float:
        if self.fanout.pending:
            return 0.0
        deadline = min(self.core.next_deadline(), self.submissions.give_up_at)
        return min(deadline, self.batching.next_deadline()) if self.batching.windows else deadline

    def step(self, event: HostEvent, now: float) -> list[HostEffect]:
        kind = type(event)
        if kind is FromLink:
            self._from_link(event, now)  # type: ignore[arg-type]
        elif kind is Acked:
            self.observer.acked(event)  # type: ignore[arg-type]
            self._run(event, now)  # type: ignore[arg-type]
        elif kind is FromConnection:
            message = event.message  # type: ignore[union-attr]
            if type(message) is ClientMessage and message.acks:
                self.observer.acked_one_by_one(message.acks)
            self._run(event, now)  # type: ignore[arg-type]
        else:
            self._other(event, now)
        while self._events:
            self._run(self._events.popleft(), now)
        effects, self._effects = self._effects, []
        return effects

    def _other(self, event: HostEvent, now: float) -> None:
        match event:
            case Tick():
                self._tick(now)
            case Submitted():
                self._effects += self.submissions.submit(event, now)
            case Stopping():
                self._effects += self.submissions.let_go()
            case AudienceChecked(broadcast=broadcast):
                self._fan_out(broadcast)
            case LinkUp(link=int() as shard):
                self._run(event, now)  # its hello comes first
                self._effects += self.submissions.link_up(shard)
            case LinkDown(link=int() as shard):
                self.welcomed.discard(shard)
                self.batching.take(shard)
                self._effects += self.submissions.link_down(shard, now)
                self._run(event, now)
            case _:
                self._run(event, now)

    def _tick(self, now: float) -> None:
        if self.fanout.pending:
            self._written(self.fanout.work())
        for shard, pushes in self.batching.closed(now):
            self._run(FromLink(shard, Pushes(pushes)), now)
        self._effects += self.submissions.give_up(now)
        if now >= self.core.next_deadline():
            self._run(Tick(), now)

    def _run(self, event: Event, now: float) -> None:
        for effect in self.core.step(event, now):
            kind = type(effect)
            if kind is Broadcast:
                self._broadcast(effect)  # type: ignore[arg-type]
            elif kind is Send:
                self._send(effect)  # type: ignore[arg-type]
            else:
                self._effects.append(effect)

    # Telling.

    def _send(self, effect: Send) -> None:
        message = effect.message
        if message.notifications:
            self.observer.told(message.notifications, 1)
        if message.statuses and (session := self.core.conns.get(effect.conn)) is not None:
            self.observer.answered(session, message.statuses)
        self._effects.append(effect)

    def _broadcast(self, effect: Broadcast) -> None:
        key = effect.message.notifications[0].object
        if self.guarded and key.partition("/")[0] in self.guarded:
            self._effects.append(CheckAudience(effect))
        else:
            self._fan_out(effect)

    def _fan_out(self, effect: Broadcast) -> None:
        self.observer.told(effect.message.notifications, len(effect.conns))
        self._written(self.fanout.broadcast(effect))

    def _written(self, outputs: Sequence[Write | Lagging]) -> None:
        for output in outputs:
            if type(output) is Write:
                self._effects.append(output)
            else:
                self._events.append(output)  # type: ignore[arg-type]

    # Links.

    def _from_link(self, event: FromLink, now: float) -> None:
        message, shard = event.message, event.link
        kind = type(message)
        if kind is Pushes:
            pushes: Sequence[Push] = message.pushes  # type: ignore[union-attr]
            self.observer.arrived(shard, pushes)  # type: ignore[arg-type]
            if self.batching.batch_ms is not None:
                at_once = self.batching.hold(shard, pushes, now, self.fanout.pending)
                event = FromLink(shard, Pushes(at_once))
        elif kind is Versions:
            if self.batching.windows and (held := self.batching.take(shard)):
                self._run(FromLink(shard, Pushes(held)), now)
        elif kind is UpdatesPublished:
            versions = message.versions  # type: ignore[union-attr]
            self._effects += self.submissions.answered(message.request, versions)  # type: ignore[union-attr]
            return
        elif kind is NotPublished:
            error = error_of(message.code, message.text)  # type: ignore[union-attr]
            self._effects += self.submissions.answered(message.request, error)  # type: ignore[union-attr]
            return
        elif kind is Welcome:
            self._run(event, now)
            if self.core.interests.links[shard].up:  # type: ignore[call-overload]
                self.welcomed.add(shard)  # type: ignore[arg-type]  # else it was refused
            return
        elif kind is Superseded:
            self._note_end(message.client, message.session, Fenced.code)  # type: ignore[union-attr]
        elif kind is RowRefused:
            self._note_end(message.client, message.session, message.code)  # type: ignore[union-attr]
        self._run(event, now)

    def _note_end(self, client: bytes, number: int, code: str) -> None:
        session = self.core.sessions.get((client, number))
        if session is not None:
            self.observer.ended(session, code)


class _Wave(msgspec.Struct):
    announcement: Announcement
    deliveries: deque[Delivery]


class Fanout:
    """One announcement to many, a slice at a time."""

    def __init__(self, slice: int = SLICE, observer: Observer | None = None) -> None:
        self._slice = slice
        self._observer = observer or Observer()
        self._waves: OrderedDict[Key, list[_Wave]] = OrderedDict()
        """By object, the oldest first. Rarely more than one of an object: a version for some, and
        *unknown* for others."""

    @property
    def pending(self) -> bool:
        """Whether `work` is to be called, before long and again and again."""
        return bool(self._waves)

    def broadcast(self, effect: Broadcast) -> Outputs:
        """At once, if it is few and nobody else is waiting."""
        announcement = Announcement(effect.message, effect.step)
        deliveries: Sequence[Delivery] = effect.conns  # type: ignore[assignment]  # here, they are
        outputs: Outputs = []
        if self._waves or len(deliveries) > self._slice:
            self._add(effect.message.notifications[0].object, announcement, deliveries)
            return outputs
        if len(deliveries) <= MOST_TOGETHER:
            self._notify(deliveries, announcement, outputs)
            return outputs
        for at in range(0, len(deliveries), MOST_TOGETHER):
            self._notify(deliveries[at : at + MOST_TOGETHER], announcement, outputs)
        return outputs

    def work(self) -> Outputs:
        """The next slice."""
        outputs: Outputs = []
        room = self._slice
        while self._waves and room > 0:
            key, waves = next(iter(self._waves.items()))
            announcement, deliveries = waves[0].announcement, waves[0].deliveries
            while deliveries and room > 0:
                count = min(len(deliveries), room, MOST_TOGETHER)
                self._notify([deliveries.popleft() for _ in range(count)], announcement, outputs)
                room -= count
            if not deliveries:
                del waves[0]
            if waves:
                self._waves.move_to_end(key)  # every object gets its turn
            else:
                del self._waves[key]
        return outputs

    def _add(self, key: Key, announcement: Announcement, deliveries: Sequence[Delivery]) -> None:
        waiting = self._waves.setdefault(key, [])
        served = set(deliveries)
        first: list[Delivery] = []
        for wave in waiting:
            first += [each for each in wave.deliveries if each in served]
            wave.deliveries = deque(each for each in wave.deliveries if each not in served)
        early = set(first)
        rest = [each for each in deliveries if each not in early] if early else deliveries
        waiting.append(_Wave(announcement, deque([*first, *rest])))

    def _notify(
        self, deliveries: Sequence[Delivery], announcement: Announcement, outputs: Outputs
    ) -> None:
        for delivery in deliveries:
            lagging = delivery.notify(announcement)
            if lagging is not None:
                outputs.append(lagging)
        handed, announcement.taken = announcement.taken, 0
        for write in announcement.writes():
            handed += len(write.addresses)
            outputs.append(write)
        if handed:
            self._observer.handed(announcement.message.notifications, handed)
