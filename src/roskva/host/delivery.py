"""One connection's side of telling, without I/O: what it is sent, and what it has to leave out.

The core names a connection by its *delivery*. What many are told is an `Announcement`, encoded once
in each form that somebody needs. Whoever hands it round calls `notify` on each delivery, which adds
the *address* of its connection to the copy in its form, or bytes of its own, and calls nobody. Then
the copies are written, with one call for many addresses (`net/writer.py`).

A delivery's duties:

1. A connection whose transport holds something back is `pause`d and takes no more: its delivery
   says `Lagging`, and `Drained` when it is `resume`d, as what was written has left.
2. A delivery that leaves an announcement out says `Lagging` since its step, or since 0 for
   what was sent to it alone.
3. After `end` it takes nothing: its address may soon be that of another connection.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final

import msgspec

from roskva.core.effects import Drained, Lagging
from roskva.wire.messages import ServerMessage

NOWHERE: Final = -1
"""The address of what is connected to nothing."""


class Write(msgspec.Struct, frozen=True, gc=False):
    """The same bytes to all of these addresses."""

    addresses: list[int]
    data: bytes


class Copy:
    """A message in one form, and the addresses it is about to be written to."""

    __slots__ = ("data", "to")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.to: list[int] = []


class Announcement:
    """One message for many connections, encoded once in each form that somebody needs."""

    __slots__ = ("copies", "message", "own", "step", "taken")

    def __init__(self, message: ServerMessage, step: int) -> None:
        self.message = message
        self.step = step
        """In which its object changed: see `Lagging`."""
        self.copies: dict[object, Any] = {}
        """By who encoded them."""
        self.own: list[tuple[int, bytes]] = []
        """What single connections get instead of a copy."""
        self.taken = 0
        """Connections that took the message itself, and no bytes."""

    def copy(self, encode: Callable[[ServerMessage], bytes]) -> Copy:
        found: Copy | None = self.copies.get(encode)
        if found is None:
            found = self.copies[encode] = Copy(encode(self.message))
        return found

    def writes(self) -> list[Write]:
        """For those that were notified since this was last asked."""
        writes = [Write([address], data) for address, data in self.own]
        self.own.clear()
        for copy in self.copies.values():
            if copy.to:
                writes.append(Write(copy.to, copy.data))
                copy.to = []
        return writes


class Delivery(ABC):
    __slots__ = ("address", "connection")
    channel: ClassVar[str] = "http"

    def __init__(self) -> None:
        self.address = NOWHERE
        """Where its bytes go, as the `Writer` numbers transports."""
        self.connection: Any = None
        """Whose it is: what carries out the core's `Send` and `Close`, until it is lost."""

    @abstractmethod
    def notify(self, announcement: Announcement) -> Lagging | None:
        """Take it, or say that it is left out and has to be told later."""


class MessageDelivery(Delivery):
    """Sends messages of our own protocol: WebSocket, and the clients of the simulator."""

    __slots__ = ("_ended", "_joins", "encode")
    channel = "websocket"

    def __init__(self, encode: Callable[[ServerMessage], bytes]) -> None:
        super().__init__()
        self.encode = encode
        self._joins = True
        """Neither lagging nor at its end: all that `notify` asks, thousands of times."""
        self._ended = False

    def notify(self, announcement: Announcement) -> Lagging | None:
        if self._joins:
            announcement.copy(self.encode).to.append(self.address)
            return None
        # The core had not heard of it when it announced this.
        return None if self._ended else Lagging(self, announcement.step)

    @property
    def lagging(self) -> bool:
        return not self._joins and not self._ended

    def pause(self) -> Lagging:
        self._joins = False
        return Lagging(self)

    def resume(self) -> Drained:
        self._joins = not self._ended
        return Drained(self)

    def end(self) -> None:
        self._joins, self._ended = False, True


class OwnDelivery(MessageDelivery):
    """The same, over an application's own channel."""

    __slots__ = ()
    channel = "own"
