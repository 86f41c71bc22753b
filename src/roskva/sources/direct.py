"""The direct flow: what a database has changed, straight into the feed. A machine, without I/O.

It reads the changes log from its marker. Of the changes of one row that come together only the last
is published, under its own version, and the last words go out in batches, in the order of the log.
A few batches are under way at once: versions rise, so it does not matter which arrives first. The
marker follows what is answered. What it has passed is either published or has a later word, which
is still before it.

**A doubt in its way** is passed only when every shard has reset the app under its ordinal. Killed
in between, it reads the doubt again, and asks again: a reset that a shard has already changes
nothing. What is before the doubt and not answered by then is void: shards refuse it from then on,
and clients were told to look.

What a shard cannot take now is sent again until it can. What is *too late* is not: the shard has
reset the app under a higher ordinal. Mostly that is ours, and its doubt is further on in the log;
if the log has none, somebody else has reset the app, and that is a doubt.

A shard that has lost its feed has forgotten the generation with it. So whenever a link is up, it is
asked for the last reset, until it has it: to those that have it already that is nothing.

**Where the log has a hole** there is no telling what was changed, so that is a doubt, too. Until it
has been read and passed, the marker does not move: whoever is killed before the doubt is in the log
finds the hole again.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from roskva.core.effects import FromLink, LinkDown, LinkUp, SendLink, Tick
from roskva.errors import RoskvaError, TooLate, error_of
from roskva.feed.base import Missing
from roskva.host.effects import Settled, Submitted
from roskva.host.submissions import Holding, Submissions
from roskva.model import Update, app_of, ordinal_of
from roskva.sources.change import body_of
from roskva.sources.position import Doubt
from roskva.wire.links import (
    FromShard,
    NotPublished,
    PublisherHello,
    ResetApp,
    ToShard,
    UpdatesPublished,
)

MAX_UNDER_WAY: Final = 8
"""Batches."""
MAX_BATCH: Final = 256
"""Updates."""
MAX_UPDATES: Final = 512
"""Under way: whoever catches up is to leave shards time for others."""
_AGAIN_S: Final = 0.2
_RESET_AGAIN_S: Final = 2.0
_RESET_REQUEST: Final = 0
"""Those of publishes begin at 1."""


class Records(msgspec.Struct, frozen=True):
    """What the log has after the marker that was asked for, up to `last`."""

    entries: Sequence[tuple[int, Update]]
    last: int
    superseded: int = 0
    """Changes that are left out, for the same row has a later one here, with no doubt between."""


class ReadLog(msgspec.Struct, frozen=True):
    """Answer with `Records`, when there are any."""

    after: int


class MoveMarker(msgspec.Struct, frozen=True):
    offset: int


class RaiseDoubt(msgspec.Struct, frozen=True):
    """What was read before is lost: to be appended to the log, where we come to it."""

    doubt: Doubt


class SawGeneration(msgspec.Struct, frozen=True):
    """A shard has a generation of at least this. If the log has no such ordinal, it is a doubt."""

    generation: int


Event = Records | Missing | LinkUp | LinkDown | FromLink | Tick
Effect = ReadLog | MoveMarker | SendLink | RaiseDoubt | SawGeneration
PayloadOf = Callable[[str, msgspec.Raw], bytes | None]
"""By table and row; None: a notification without one."""


class _Batch(msgspec.Struct, eq=False):
    """The last word on each row, of the records up to `last`."""

    last: int
    updates: list[Update]
    """Not published yet. As the log has them, until it is submitted for the first time."""
    again_at: float = math.inf
    """When they are submitted again; until they are answered, never."""


class _Reset(msgspec.Struct, eq=False):
    last: int
    message: ResetApp
    waits_for: set[int]
    """Shards that have not answered."""
    again_at: float = 0.0


class DirectFlow:
    def __init__(
        self,
        shards: int,
        marker: int,
        patience_s: float,
        payload_of: PayloadOf | None,
        *,
        publishes: bool = True,
        passed: ResetApp | None = None,
    ) -> None:
        """`publishes`: otherwise others do, and only doubts are passed on. `passed`: the last reset
        before the marker; None: what comes first in the log says it."""
        self.shards = shards
        self.publishes = publishes
        self.submissions = Submissions(shards, Holding(patience_s=patience_s))
        self.payload_of = payload_of
        self.read_to = self.marker = marker
        self.reading = False
        self.waiting: deque[_Batch | _Reset] = deque()
        self.under_way: deque[_Batch] = deque()
        self.reset: _Reset | None = None
        self.passed = None if passed is None else _Reset(marker, passed, set())
        self.hole: int | None = None
        """Its end, in the log; until a doubt behind it is passed."""
        self.published = self.superseded = 0

    @property
    def oldest_us(self) -> int | None:
        """When the oldest change was committed that it has read and not passed on."""
        for batch in (*self.under_way, *self.waiting):
            if isinstance(batch, _Batch) and batch.updates:
                return batch.updates[0].published_at
        return None

    @property
    def last_reset(self) -> _Reset | None:
        """That shards are to have."""
        return self.reset or self.passed

    def next_deadline(self) -> float:
        again = [batch.again_at for batch in self.under_way]
        if (reset := self.last_reset) is not None and reset.waits_for:
            again.append(reset.again_at)
        return min((self.submissions.give_up_at, *again))

    def step(self, event: Event, now: float) -> list[Effect]:
        effects: list[Effect] = []
        match event:
            case Records():
                self.reading = False
                self._take(event)
                self._note_passed(event)
            case Missing(first=first, last=last, why=why):
                self.reading = False
                self.hole = self.read_to = last
                sentence = f"the log of changes lost {first} to {last}: {why}"
                effects.append(RaiseDoubt(Doubt("log lost", sentence)))
            case LinkUp(link=int() as shard):
                effects.append(SendLink(shard, PublisherHello(shard)))
                self._carry(self.submissions.link_up(shard), now, effects)
                if (reset := self.last_reset) is not None:
                    reset.waits_for.add(shard)
                    reset.again_at = now
            case LinkDown(link=int() as shard):
                self._carry(self.submissions.link_down(shard, now), now, effects)
            case FromLink(link=int() as shard, message=message):
                self._answered(shard, message, now, effects)
            case Tick():
                self._carry(self.submissions.give_up(now), now, effects)
        self._go_on(now, effects)
        return effects

    def _take(self, records: Records) -> None:
        run: dict[str, tuple[int, Update]] = {}
        for offset, update in records.entries:
            if update.reset:
                self._wait(run, offset - 1)
                run = {}
                message = ResetApp(_RESET_REQUEST, app_of(update.object), update.version)
                self.waiting.append(_Reset(offset, message, set(range(self.shards))))
            elif self.publishes:
                self.superseded += run.pop(update.object, None) is not None
                run[update.object] = offset, update
        self._wait(run, records.last)
        if self.publishes:
            self.superseded += records.superseded
        else:
            self.waiting.append(_Batch(records.last, []))
        self.read_to = records.last

    def _note_passed(self, records: Records) -> None:
        """All before the log's first change was passed earlier, and the doubt that it is under."""
        if self.passed is None and records.entries and not records.entries[0][1].reset:
            update = records.entries[0][1]
            app, ordinal = app_of(update.object), ordinal_of(update.version)
            message = ResetApp(_RESET_REQUEST, app, ordinal)
            self.passed = _Reset(self.marker, message, set(self.submissions.reached))

    def _wait(self, run: dict[str, tuple[int, Update]], last: int) -> None:
        """`run`: in the order of the log, so that each batch ends where its last update is."""
        entries = list(run.values())
        for start in range(0, len(entries), MAX_BATCH):
            part = entries[start : start + MAX_BATCH]
            end = part[-1][0] if start + MAX_BATCH < len(entries) else last
            self.waiting.append(_Batch(end, [update for _, update in part]))

    def _told(self, update: Update) -> Update:
        """What clients are told of a change; what was deleted has nothing to say."""
        payload = None
        if self.payload_of is not None:
            body = body_of(update)
            payload = None if body.op == "delete" else self.payload_of(body.table, body.row)
        return Update(update.object, update.version, None, payload, update.published_at)

    def _answered(
        self, shard: int, message: ToShard | FromShard, now: float, effects: list[Effect]
    ) -> None:
        reset, passed = self.last_reset, self.passed
        match message:
            case UpdatesPublished(request=0, versions=[generation]):
                # An earlier reset may have been asked for twice, and be answered twice.
                if reset is not None and generation >= reset.message.generation:
                    reset.waits_for.discard(shard)
                if passed is not None and generation > passed.message.generation:
                    effects.append(SawGeneration(generation))
            case NotPublished(request=0):
                pass  # it is asked again, before long
            case UpdatesPublished(request=request, versions=versions):
                self._carry(self.submissions.answered(request, versions), now, effects)
            case NotPublished(request=request, code=code, text=text):
                error = error_of(code, text)
                self._carry(self.submissions.answered(request, error), now, effects)

    def _carry(
        self, outputs: Sequence[SendLink | Settled], now: float, effects: list[Effect]
    ) -> None:
        for output in outputs:
            if isinstance(output, SendLink):
                effects.append(output)
            else:
                self._settled(output, now, effects)

    def _settled(self, settled: Settled, now: float, effects: list[Effect]) -> None:
        batch = settled.request
        assert isinstance(batch, _Batch)
        refused, late = [], []
        for update, outcome in zip(batch.updates, settled.outcomes, strict=True):
            if isinstance(outcome, TooLate):
                late.append(update)
            elif isinstance(outcome, RoskvaError):
                refused.append(update)
        self.published += len(batch.updates) - len(refused) - len(late)
        if late:
            self.superseded += len(late)
            effects.append(SawGeneration(max(ordinal_of(u.version) for u in late) + 1))
        batch.updates = refused
        batch.again_at = now + _AGAIN_S if refused else math.inf

    def _go_on(self, now: float, effects: list[Effect]) -> None:
        for batch in self.under_way:
            if now >= batch.again_at:
                self._submit(batch, now, effects)
        self._pass_answered(effects)
        if self.reset is not None and not self.reset.waits_for:
            self._pass_reset(self.reset, effects)
        while self.waiting and self.reset is None and self._may_send():
            head = self.waiting.popleft()
            if isinstance(head, _Reset):
                self.reset = head
            else:
                self.under_way.append(head)
                head.updates = [self._told(update) for update in head.updates]
                if head.updates:
                    self._submit(head, now, effects)
                self._pass_answered(effects)
        if self.last_reset is not None:
            self._ask_for_reset(self.last_reset, now, effects)
        if not (self.reading or self.waiting):
            self.reading = True
            effects.append(ReadLog(self.read_to))

    def _may_send(self) -> bool:
        updates = sum(len(batch.updates) for batch in self.under_way)
        return len(self.under_way) < MAX_UNDER_WAY and updates < MAX_UPDATES

    def _submit(self, batch: _Batch, now: float, effects: list[Effect]) -> None:
        batch.again_at = math.inf
        self._carry(self.submissions.submit(Submitted(batch, batch.updates), now), now, effects)

    def _ask_for_reset(self, reset: _Reset, now: float, effects: list[Effect]) -> None:
        if reset.waits_for and now >= reset.again_at:
            reset.again_at = now + _RESET_AGAIN_S
            for shard in sorted(reset.waits_for & self.submissions.reached):
                effects.append(SendLink(shard, reset.message))

    def _pass_reset(self, reset: _Reset, effects: list[Effect]) -> None:
        if self.hole is not None and reset.last > self.hole:
            self.hole = None
        self.reset, self.passed = None, reset
        self.under_way.clear()
        self._pass(reset.last, effects)

    def _pass_answered(self, effects: list[Effect]) -> None:
        while self.under_way and not self.under_way[0].updates:
            self._pass(self.under_way.popleft().last, effects)

    def _pass(self, offset: int, effects: list[Effect]) -> None:
        if self.hole is None:
            self.marker = offset
            effects.append(MoveMarker(offset))
