"""Publishes on their way: from a request to the shards of its objects, and back as one answer.

Each part of a request goes to its shard on the link, and the request is answered when every part
is. *Yes* is only ever what a shard has said: durable, under this version. So is *too late*, of what
a change source has published, and it is for good.

**Held.** A part whose link is down waits for it. So does one whose link broke before its answer
came: whether that is in the feed, nobody knows, and it is sent again. A version that is published
twice changes nothing; where the shard assigns versions, the update may count twice. All that waits
for a shard leaves when its link is up, in the order in which it was submitted, so the last of two
stays the last.

A reset that may be in the feed is not sent again: what was published between the two would be
forgotten. Its operator draws another mark.

**Limits.** What is held is bounded in number, bytes and time. Beyond that, and for what is on a
link that is up and not answered, publishers are told to try later: publishing again does no harm.
"""

import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from roskva.core.effects import Handle, SendLink
from roskva.errors import RoskvaError, TooLate, Unavailable
from roskva.host.effects import Settled, Submitted
from roskva.model import NO_VERSION, Update, shard_of
from roskva.wire.links import PublishUpdates

PUBLISH_TIMEOUT_S: Final = 10.0
"""From submitting to giving up, whatever it waited for: publishers wait as long for an answer. More
only if patience with a shard that is away is set to more."""
_LATE: Final = "a change of before the last reset of its app: what holds now comes with later ones"
_BYTES_EACH: Final = 200
"""Of an update, beside its texts and its payload."""

Outputs = list[SendLink | Settled]


class Holding(msgspec.Struct, frozen=True):
    """How much may wait for shards that are away, and for how long."""

    patience_s: float = 5.0
    max_updates: int = 100_000
    max_bytes: int = 32 * 1024 * 1024
    """Less than may be unsent on a link, for it leaves at once when that is up."""


class _Submission(msgspec.Struct):
    """A request to publish, as its shards answer."""

    request: Handle
    outcomes: list[int | RoskvaError]
    left: int
    """Shards that have not answered."""


class _Part(msgspec.Struct):
    """What of a submission is one shard's."""

    submission: _Submission
    places: list[int]
    shard: int
    updates: list[Update]
    due_at: float
    """It is answered by then, in any case."""
    give_up_at: float
    held_bytes: int = 0
    """0: it is on its link."""
    was_sent: bool = False
    """Over a link that broke: the shard may have it."""


class Submissions:
    def __init__(self, shards: int, holding: Holding) -> None:
        self._shards = shards
        self._holding = holding
        self.reached: set[int] = set()
        """Shards to which a link is up."""
        self.parts: dict[int, _Part] = {}
        """Of requests, by the number under which a shard knows them, in their order."""
        self.requests = 0
        self.give_up_at = math.inf
        self.held_updates = self.held_bytes = 0
        self.sent_again = 0
        """Updates that may be in the feed twice."""

    def submit(self, event: Submitted, now: float) -> Outputs:
        by_shard: dict[int, list[int]] = {}
        for place, update in enumerate(event.updates):
            if type(update) is Update:
                by_shard.setdefault(shard_of(update.object, self._shards), []).append(place)
        outcomes: list[Any] = list(event.updates)  # what shards answer takes the place of updates
        submission = _Submission(event.request, outcomes, len(by_shard))
        if not by_shard:
            return [Settled(submission.request, submission.outcomes)]
        outputs: Outputs = []
        due_at = now + max(PUBLISH_TIMEOUT_S, self._holding.patience_s)
        for shard, places in by_shard.items():
            self.requests += 1
            updates: list[Any] = [event.updates[place] for place in places]
            part = _Part(submission, places, shard, updates, due_at, due_at)
            self.parts[self.requests] = part
            if shard in self.reached:
                self.give_up_at = min(self.give_up_at, due_at)
                outputs.append(SendLink(shard, PublishUpdates(self.requests, updates)))
            else:
                outputs += self._hold(self.requests, part, now)
        return outputs

    def answered(self, request: int, outcome: Sequence[int | RoskvaError] | RoskvaError) -> Outputs:
        part = self.parts.pop(request, None)
        if part is None:
            return []  # it was given up
        self._release(part)
        submission = part.submission
        places, outcomes = part.places, submission.outcomes
        if isinstance(outcome, RoskvaError):
            outcome = [outcome] * len(places)
        for place, one in zip(places, outcome, strict=True):
            outcomes[place] = TooLate(_LATE) if one == NO_VERSION else one
        submission.left -= 1
        return [] if submission.left else [Settled(submission.request, submission.outcomes)]

    def link_up(self, shard: int) -> Outputs:
        self.reached.add(shard)
        outputs: Outputs = []
        for request, part in self.parts.items():
            if part.shard == shard and part.held_bytes:
                self._release(part)
                part.give_up_at = part.due_at
                self.sent_again += len(part.updates) if part.was_sent else 0
                outputs.append(SendLink(shard, PublishUpdates(request, part.updates)))
        return outputs

    def link_down(self, shard: int, now: float) -> Outputs:
        self.reached.discard(shard)
        outputs: Outputs = []
        in_doubt = [r for r, part in self.parts.items() if part.shard == shard]
        for request in in_doubt:
            part = self.parts[request]
            if any(update.reset for update in part.updates):
                gone = Unavailable(f"shard {shard} went away: reset it again")
                outputs += self.answered(request, gone)
            else:
                part.was_sent = True
                outputs += self._hold(request, part, now)
        return outputs

    def give_up(self, now: float) -> Outputs:
        """What has waited for too long."""
        outputs: Outputs = []
        if now < self.give_up_at:
            return outputs
        for request in [r for r, part in self.parts.items() if now >= part.give_up_at]:
            part = self.parts[request]
            why = "is away" if part.held_bytes else "does not answer"
            outputs += self.answered(request, Unavailable(f"shard {part.shard} {why}: try later"))
        self.give_up_at = min((part.give_up_at for part in self.parts.values()), default=math.inf)
        return outputs

    def let_go(self) -> Outputs:
        """The node stops: what waits for a shard that is away is answered while somebody can."""
        outputs: Outputs = []
        for request in [r for r, part in self.parts.items() if part.held_bytes]:
            outputs += self.answered(request, Unavailable("the node stops: publish again"))
        return outputs

    def _hold(self, request: int, part: _Part, now: float) -> Outputs:
        holding, updates = self._holding, part.updates
        size = sum(_BYTES_EACH + len(u.object) + len(u.payload or b"") for u in updates)
        if (
            holding.patience_s <= 0
            or self.held_updates + len(updates) > holding.max_updates
            or self.held_bytes + size > holding.max_bytes
        ):
            away = Unavailable(f"shard {part.shard} is away: try later")
            return self.answered(request, away)
        part.held_bytes = size
        part.give_up_at = min(part.due_at, now + holding.patience_s)
        self.give_up_at = min(self.give_up_at, part.give_up_at)
        self.held_updates += len(updates)
        self.held_bytes += size
        return []

    def _release(self, part: _Part) -> None:
        if part.held_bytes:
            self.held_updates -= len(part.updates)
            self.held_bytes -= part.held_bytes
            part.held_bytes = 0
