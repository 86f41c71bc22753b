"""Whoever watches the hosts at work: traces, counters, stage times.

Hosts say what has happened, as facts, once per batch and never per session. An observer changes
nothing and must not raise. This one, which they have if nobody watches, ignores everything.
"""

from collections.abc import Sequence
from typing import Final, Literal, get_args

from roskva.core.effects import Acked
from roskva.core.session import Session
from roskva.model import Update
from roskva.wire.links import Push
from roskva.wire.messages import Ack, Notification, OperationStatus

Way = Literal["fast", "bridge", "own", "start"]
"""By which an update came to its matcher: as it was committed; from the bridge; because the shard
read its feed; or because it read it when it started, before it said anything."""
WAYS: Final[tuple[Way, ...]] = get_args(Way)


class Observer:
    # Of a shard.

    def appended(self, updates: Sequence[tuple[int, Update]]) -> None:
        """They are durable, and not applied yet."""

    def offered(self, updates: Sequence[tuple[int, Update]]) -> None:
        """They came from the bridge, and are not applied yet."""

    def applied(self, shard: int, way: Way, updates: int) -> None:
        """So many that were news to the matcher."""

    def missed(self, shard: int) -> None:
        """A range of the feed was neither handed to the matcher nor left to the bridge."""

    def reads_alone(self, shard: int, alone: bool) -> None:
        """It begins to read what is not on the fast path, for lack of a bridge; or leaves that to
        the bridge again."""

    def matched(self, pushes: Sequence[Push]) -> None:
        """They are on their way to a registrar."""

    # Of a registrar.

    def arrived(self, shard: int, pushes: Sequence[Push]) -> None:
        """They came from a shard, and nobody is told yet."""

    def told(self, notifications: Sequence[Notification], sessions: int) -> None:
        """So many sessions are to be told each of these."""

    def handed(self, notifications: Sequence[Notification], connections: int) -> None:
        """So many connections have taken each of these; who was left out, or had it, is not one."""

    def acked(self, event: Acked) -> None:
        """Notifications have reached clients: many at once."""

    def acked_one_by_one(self, acks: Sequence[Ack]) -> None:
        """The same, in a client's message."""

    def answered(self, session: Session, statuses: Sequence[OperationStatus]) -> None:
        """A session is told what became of its registrations."""

    def ended(self, session: Session, code: str) -> None:
        """A session has to go, for this reason."""
