"""MQTT's packet ids: the acks of a channel that knows neither versions nor epochs.

A PUBACK names nothing but the id of the packet it answers, so each session remembers what it sent
under each id until that is acked. To let one packet serve many sessions, one id is proposed to all;
a session where that id is still in flight takes another, and gets a packet of its own.

On a live connection nothing is sent twice, as the standard demands; what was never acked is due
again, by the table, after a reconnect.
"""

from collections.abc import Collection
from typing import Final

from roskva.model import Key

MAX_ID = 65535

Sent = tuple[Key, int, int]
"""Object, version (−1: unknown), epoch."""


_FEW: Final = 8
"""Up to here, looking through what is in flight is cheaper than an index of it."""


class PacketIds:
    __slots__ = ("_index", "in_flight", "last", "receive_maximum")

    def __init__(self, receive_maximum: int) -> None:
        self.in_flight: dict[int, Sent | None] = {}
        """None: taken back, and only the id is still in use."""
        self._index: set[Sent | None] | None = None
        """What is in flight, while that is much."""
        self.last = 0
        self.receive_maximum = receive_maximum

    def full(self) -> bool:
        return len(self.in_flight) >= self.receive_maximum

    def take(self, proposed: int, sent: Sent) -> int | None:
        """The id to send this under; None if it is in flight already. Not to be asked when full."""
        if self.in_flight and self._is_in_flight(sent):
            return None
        id = proposed if proposed not in self.in_flight else self._free_id()
        self.in_flight[id] = sent
        if self._index is not None:
            self._index.add(sent)
        return id

    def acked(self, id: int) -> Sent | None:
        sent = self.in_flight.pop(id, None)
        if self._index is not None:
            self._index.discard(sent)
            if len(self.in_flight) <= _FEW:
                self._index = None
        return sent

    def disown(self, keys: Collection[Key]) -> None:
        """Subscribed to anew: what is in flight of these may be sent again, and its acks are void.

        An ack of before would hide that the current version is due again.
        """
        for id, sent in self.in_flight.items():
            if sent is not None and sent[0] in keys:
                self.in_flight[id] = None
        self._index = None

    def _is_in_flight(self, sent: Sent) -> bool:
        if self._index is None:
            if len(self.in_flight) <= _FEW:
                return sent in self.in_flight.values()
            self._index = set(self.in_flight.values())
        return sent in self._index

    def _free_id(self) -> int:
        while True:
            self.last = self.last % MAX_ID + 1
            if self.last not in self.in_flight:
                return self.last
