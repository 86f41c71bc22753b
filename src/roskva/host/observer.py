"""Whoever watches the hosts at work: traces, counters, stage times.

Hosts say what has happened, as facts, once per batch and never per session. An observer changes
nothing and must not raise. This one, which they have if nobody watches, ignores everything.
"""

from collections.abc import Sequence

from roskva.core.effects import Acked
from roskva.core.session import Session
from roskva.model import Update
from roskva.wire.links import Push
from roskva.wire.messages import Ack, Notification, OperationStatus


class Observer:
    # Of a shard.

    def appended(self, updates: Sequence[tuple[int, Update]]) -> None:
        """They are durable, and not applied yet."""

    def offered(self, updates: Sequence[tuple[int, Update]]) -> None:
        """They came from the bridge, and are not applied yet."""

    def matched(self, pushes: Sequence[Push]) -> None:
        """They are on their way to a registrar."""

    # Of a registrar.

    def arrived(self, shard: int, pushes: Sequence[Push]) -> None:
        """They came from a shard, and nobody is told yet."""

    def told(self, notifications: Sequence[Notification], sessions: int) -> None:
        """So many sessions are told each of these."""

    def acked(self, event: Acked) -> None:
        """Notifications have reached clients: many at once."""

    def acked_one_by_one(self, acks: Sequence[Ack]) -> None:
        """The same, in a client's message."""

    def answered(self, session: Session, statuses: Sequence[OperationStatus]) -> None:
        """A session is told what became of its registrations."""

    def ended(self, session: Session, code: str) -> None:
        """A session has to go, for this reason."""
