"""Who owns a shard in a cluster: one member's part in it. A machine, without I/O.

    away ─► looking ─► fencing ─► waiting ─► restoring ─► beginning ─► serving ─► leaving ─► away

The group *proposes*, late or twice or to two members at once, and a member that was paused
believes what it heard before. So a proposal is only a reason to try. What decides is the
**changelog** of the shard's rows: whoever begins there under the shard's transactional id fences
all before it, and from then on nobody else writes a row.

**Looking.** Before it fences anybody a member reads the last thing an owner has said. If that is
that it has *left*, nobody has to be waited for. If it is the *beat* of somebody who goes on
beating, that owner is given the time to leave by itself, which is faster for everybody than to
fence it; but not for ever.

**Waiting.** Whoever was fenced may not know it yet, and registrars believe it for as long as their
lease on it runs: `LEASE_S` after a ping that it answered. It answers pings only within `LEASE_S`
after the *start* of its last good beat, and a beat is good only if it was committed, which a fenced
owner's never is. So after twice that time, by our own clock, nobody believes it any more.

**Restoring.** Rows are read up to the end of the changelog, as its leader knows it after we have
fenced. Then we *begin*, with a number above that of every owner before, which registrars compare.

**Beats.** Every second an owner asks where the feed ends, and commits a beat if it lags little.
One that cannot, whatever the reason is, is no owner that anybody should ask: its answers to pings
run out, and with them the leases. It need not give up: nobody else may be better off.

**In doubt.** A transaction that was not answered in time has happened, or has not, or will. Its
producer is not used again, nothing that waits for it is answered, and we begin anew: fence
ourselves, restore what there is.

**Leaving.** Who is asked to leave serves for at least `LEAST_SERVING_S`, because a group that
changes its mind all the time would else leave everybody without an owner. Then it answers no more
pings, and says that it has left when the last lease is over.

**Its executor** answers each effect that has an answer once, or never. After `DropProducer` it
answers nothing of what went before. It carries out `Serve` by making a shard's host over the rows
that were restored, and `Retire` by dropping it; `Beaten` is for that host, too: it answers pings
until `LEASE_S` after `started`.
"""

from typing import Final, Literal

import msgspec

from roskva.core.effects import Tick

LEASE_S: Final = 3.0
"""Of registrars, from when they sent the ping that was answered; and of owners, from the start of
their last good beat."""
BEAT_S: Final = 1.0
LEAST_SERVING_S: Final = 60.0
LEAVING_PATIENCE_S: Final = LEAST_SERVING_S + 10.0
"""So long an owner that beats may take to leave by itself."""
SILENCE_S: Final = 3 * BEAT_S
"""Without a beat: it will not leave by itself."""
AGAIN_S: Final = 1.0
"""After whatever failed."""
ANSWER_S: Final = 10.0
"""What is not answered by then has failed."""

State = Literal[
    "away", "looking", "fencing", "waiting", "restoring", "beginning", "serving", "leaving"
]


class LastWord(msgspec.Struct, frozen=True):
    """What the owner of a shard has said last in its changelog."""

    owner: int
    """Its number; 0: there was none."""
    beat: int
    """How many it has committed."""
    left: bool


# What happens.


class Proposed(msgspec.Struct, frozen=True):
    """The group would have us own it."""


class ProposalWithdrawn(msgspec.Struct, frozen=True):
    """It would rather have another."""


class Seen(msgspec.Struct, frozen=True):
    last: LastWord


class OthersFenced(msgspec.Struct, frozen=True):
    """All who were before us. `last`: what they had said, read after that from the leader."""

    last: LastWord


class Restored(msgspec.Struct, frozen=True):
    """Rows up to the end of the changelog are here. `owner`: the highest number that stands there;
    `least`: a number above all that may have been forgotten."""

    owner: int
    least: int


class Begun(msgspec.Struct, frozen=True):
    """It is durable that we own the shard."""


class MemberStops(msgspec.Struct, frozen=True):
    """The member stops, and leaves without delay."""


class EndFetched(msgspec.Struct, frozen=True):
    """Of the feed, as asked for at `started`. `lags_little`: the host has applied almost all before
    it."""

    started: float
    lags_little: bool


class Beaten(msgspec.Struct, frozen=True):
    started: float


class Left(msgspec.Struct, frozen=True):
    """It is durable that we have left."""


class Overtaken(msgspec.Struct, frozen=True):
    """Whatever we asked for, or a transaction of our host: another has begun since."""


class InDoubt(msgspec.Struct, frozen=True):
    """A transaction, of ours or of our host, was not answered in time."""


Event = (
    Proposed
    | ProposalWithdrawn
    | MemberStops
    | Seen
    | OthersFenced
    | Restored
    | Begun
    | EndFetched
    | Beaten
    | Left
    | Overtaken
    | InDoubt
    | Tick
)


# What is to be done.


class ReadLastWord(msgspec.Struct, frozen=True):
    """Answer with `Seen`."""


class Fence(msgspec.Struct, frozen=True):
    """Begin under the transactional id of the shard, with a new producer. Answer with
    `OthersFenced`."""


class Restore(msgspec.Struct, frozen=True):
    """Answer with `Restored`."""


class ClaimShard(msgspec.Struct, frozen=True):
    """Commit, as the first transaction, that we own the shard. Answer with `Begun`."""

    owner: int


class Serve(msgspec.Struct, frozen=True):
    owner: int


class FetchEnd(msgspec.Struct, frozen=True):
    """Answer with `EndFetched`, from the leader, and not from what is remembered."""

    started: float


class Beat(msgspec.Struct, frozen=True):
    """Commit it, and answer with `Beaten`."""

    word: LastWord
    started: float


class Retire(msgspec.Struct, frozen=True):
    """No ping is answered any more, no row is written."""


class Leave(msgspec.Struct, frozen=True):
    """Commit it, and answer with `Left`."""

    word: LastWord


class DropProducer(msgspec.Struct, frozen=True):
    pass


Effect = (
    ReadLastWord
    | Fence
    | Restore
    | ClaimShard
    | Serve
    | FetchEnd
    | Beat
    | Retire
    | Leave
    | DropProducer
)


class Ownership:
    def __init__(self) -> None:
        self.state: State = "away"
        self.wanted = False
        """By the group, of us."""
        self.owner = 0
        """Our number."""
        self.beats = 0
        self.look_until = 0.0
        """So long the owner may take to leave by itself."""
        self.seen: LastWord | None = None
        self.seen_at = 0.0
        """When it has last said something new."""
        self.leaves_at = 0.0
        """If it is asked to; not before."""
        self.at: float | None = None
        """When to go on."""
        self.answer_by: float | None = None
        """Then what was asked for has failed."""
        self.beaten = 0.0
        """When the last good beat, or the one that is under way, was started."""
        self._effects: list[Effect] = []

    def next_deadline(self) -> float | None:
        return min((at for at in (self.at, self.answer_by) if at is not None), default=None)

    def step(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Proposed():
                self.wanted = True
                if self.state == "away" and self.at is None:
                    self._look(now)
            case ProposalWithdrawn() | MemberStops():
                self.wanted = False
                if isinstance(event, MemberStops):
                    self.leaves_at = now
                self._withdrawn(now)
            case Seen(last=last) if self.state == "looking":
                self._seen(last, now)
            case OthersFenced(last=last) if self.state == "fencing":
                self._fenced(last, now)
            case Restored(owner=owner, least=least) if self.state == "restoring":
                self.owner = max(owner + 1, least)
                self._ask("beginning", ClaimShard(self.owner), now)
            case Begun() if self.state == "beginning":
                self._serve(now)
            case EndFetched(lags_little=True) if self.state == "serving":
                self._beat(event.started, now)
            case Beaten() if self.state == "serving":
                self.answer_by = None
            case Left() if self.state == "leaving":
                self._rest(now, 0.0)
            case Overtaken() | InDoubt():
                self._begin_anew(now)
            case Tick():
                self._tick(now)
        effects, self._effects = self._effects, []
        return effects

    def _ask(self, state: State, effect: Effect, now: float) -> None:
        self.state, self.at, self.answer_by = state, None, now + ANSWER_S
        self._effects.append(effect)

    def _restore(self) -> None:
        """However long it takes."""
        self.state, self.at, self.answer_by = "restoring", None, None
        self._effects.append(Restore())

    # Taking over.

    def _look(self, now: float) -> None:
        self.look_until, self.seen = now + LEAVING_PATIENCE_S, None
        self._ask("looking", ReadLastWord(), now)

    def _seen(self, last: LastWord, now: float) -> None:
        if last != self.seen:
            self.seen, self.seen_at = last, now
        beats = last.owner and not last.left and now < self.seen_at + SILENCE_S
        if beats and now < self.look_until:
            self.at, self.answer_by = now + BEAT_S, None
        else:
            self._ask("fencing", Fence(), now)

    def _fenced(self, last: LastWord, now: float) -> None:
        if last.left or not last.owner:
            self._restore()
            return
        own = last.owner == self.owner  # of ourselves we know that we have answered nothing since
        self.at = now + (LEASE_S if own else 2 * LEASE_S)
        self.state, self.answer_by = "waiting", None

    # Serving.

    def _serve(self, now: float) -> None:
        self.state, self.answer_by = "serving", None
        self.leaves_at, self.beats, self.beaten = now + LEAST_SERVING_S, 0, 0.0
        self._effects.append(Serve(self.owner))
        self._fetch_end(now)

    def _fetch_end(self, now: float) -> None:
        self.at = now + BEAT_S
        self._effects.append(FetchEnd(now))

    def _beat(self, started: float, now: float) -> None:
        """One at a time."""
        if self.answer_by is None and started > self.beaten:
            self.beats += 1
            self.beaten, self.answer_by = started, now + ANSWER_S
            self._effects.append(Beat(LastWord(self.owner, self.beats, left=False), started))

    # Leaving.

    def _withdrawn(self, now: float) -> None:
        if self.state == "away":
            self.at = None
        elif self.state == "serving":
            self._leave_in_time(now)
        elif self.state != "leaving":
            self._effects.append(DropProducer())
            self._rest(now, 0.0)

    def _leave_in_time(self, now: float) -> bool:
        """Registrars that were answered just now believe us for the time of a lease."""
        if self.wanted or now < self.leaves_at:
            return False
        self.state, self.at, self.answer_by = "leaving", now + LEASE_S, None
        self._effects.append(Retire())
        return True

    def _rest(self, now: float, pause_s: float) -> None:
        self.state, self.answer_by = "away", None
        self.at = now + pause_s if self.wanted else None

    def _begin_anew(self, now: float) -> None:
        """Whatever is true of the changelog now, it is found there."""
        if self.state == "serving":
            self._effects.append(Retire())
        if self.state != "away":
            self._effects.append(DropProducer())
            self._rest(now, AGAIN_S)

    # Time.

    def _tick(self, now: float) -> None:
        if self.answer_by is not None and now >= self.answer_by:
            self._begin_anew(now)
        elif self.at is not None and now >= self.at:
            self._go_on(now)

    def _go_on(self, now: float) -> None:
        if self.state == "away":
            self._look(now)
        elif self.state == "looking":
            self._ask("looking", ReadLastWord(), now)
        elif self.state == "waiting":
            self._restore()
        elif self.state == "leaving":
            self._ask("leaving", Leave(LastWord(self.owner, self.beats + 1, left=True)), now)
        elif not self._leave_in_time(now):
            self._fetch_end(now)
