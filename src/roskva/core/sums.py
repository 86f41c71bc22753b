"""What becomes of what sessions are told, in numbers that add up.

Nothing is written down per notification. An object keeps *how many* sessions were told what it
stands at and have not acked it (`Watched.outstanding`), and by name only the few that were not told
yet (`Watched.untold`): those that lag, and those that are being confirmed. So a broadcast is one
addition, and an ack another.

    first = acked + superseded + outstanding + abandoned

A first send is the first time that a session is told what an object stands at. It ends when the
session acks it; when the object moves on before that; or when the session, or its registration,
ends. To tell it again is a resend, and is counted apart.
"""

from typing import Final

from roskva.model import Key, is_probe

SUMS: Final = ("first", "resent", "unknown", "acked", "superseded", "abandoned")


class Sums:
    __slots__ = SUMS

    def __init__(self) -> None:
        self.first = 0
        self.resent = 0
        self.unknown = 0
        """Of either kind: to say that nothing is known."""
        self.acked = 0
        self.superseded = 0
        self.abandoned = 0

    @property
    def outstanding(self) -> int:
        return self.first - self.acked - self.superseded - self.abandoned


class SumsByTraffic:
    """The prober's own notifications are counted apart from everybody's."""

    def __init__(self) -> None:
        self.users = Sums()
        self.probe = Sums()

    def of(self, key: Key) -> Sums:
        return self.probe if is_probe(key) else self.users
