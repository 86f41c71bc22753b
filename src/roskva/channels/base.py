"""What channels and the node they belong to owe each other.

A channel accepts connections and turns what arrives on them into events of the registrar core; the
node carries out the core's effects by calling the connection back. The connection itself is the
handle by which the core names it.

A channel's duties, in order:

1. One opening event (`Opened`, `Attached` or `Watching`) per connection, then its messages, then
   one `Closed`, also if the core asked for the end.
2. `send` writes at once, or not at all; so does `broadcast`, through the frame. A connection whose
   socket takes no more says `Lagging`, and `Drained` when what was written has left. One that
   leaves a notification out, because its peer takes no more for now, says `Lagging` since the
   frame's step, or since 0 for what was sent to it alone.
3. Nothing here waits: authorisation, publishing and reading are asked of the `Front`.
"""

import asyncio
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import Any, ClassVar, Final, Protocol, cast

from roskva.answer import Answered
from roskva.channels.writing import NO_SOCKET, Write
from roskva.core.effects import Event
from roskva.errors import RoskvaError
from roskva.handover import Handover
from roskva.model import Key, Principal, Update
from roskva.wire.messages import FromClient, Notification, ServerMessage

MAX_UNREAD_BYTES: Final = 64 * 1024
"""Answers that a client leaves unread before it is no longer read from."""
TLS_HIGH_WATER_BYTES: Final = 8 * 1024
TLS_LOW_WATER_BYTES: Final = 2 * 1024
_SOCKET: Final = attrgetter("fd")

Outcomes = Answered[list[int | RoskvaError]]
"""Called with the version under which each update is durable, or why it is not."""


class Copy:
    """A message in one form, and whom it is about to be written to."""

    __slots__ = ("data", "to")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.to: list[Stream] = []

    def flush(self, write: Write) -> None:
        """Straight to the sockets: there and back through a transport's buffer costs a tenth of a
        whole delivery. What a socket does not take at once waits in its transport, which also knows
        what to do if it is broken, or if there is none."""
        to, self.to = self.to, []
        for place, taken in write(list(map(_SOCKET, to)), self.data):
            to[place].transport.write(self.data[taken:])


class Frame:
    """One message for many connections, encoded once in each form that somebody needs."""

    __slots__ = ("copies", "message", "step")

    def __init__(self, message: ServerMessage, step: int) -> None:
        self.message = message
        self.step = step
        """Of the core: see `Lagging`."""
        self.copies: dict[Callable[[ServerMessage], Any], Any] = {}
        """By who encoded them."""

    def copy(self, encode: Callable[[ServerMessage], bytes]) -> Copy:
        found: Copy | None = self.copies.get(encode)
        if found is None:
            found = self.copies[encode] = Copy(encode(self.message))
        return found

    def flush(self, write: Write) -> None:
        for copy in self.copies.values():
            copy.flush(write)


class Connection(ABC):
    """A client's connection, as the core's effects reach it."""

    __slots__ = ()
    channel: ClassVar[str] = "http"

    @abstractmethod
    def send(self, message: ServerMessage) -> None:
        """What concerns this session alone."""

    @abstractmethod
    def broadcast(self, frame: Frame) -> None:
        """A notification that many sessions get alike: a connection is written to at once, or joins
        those that a copy goes to when the frame is flushed."""

    @abstractmethod
    def close(self) -> None:
        """Hang up, after what was sent."""


class Stream(Connection):
    """A connection over TCP, written to directly (see `Copy`) while its transport is empty.

    A transport that holds anything back says so by `pause_writing`; from then on until
    `resume_writing` a stream must not join a copy. When the connection is lost, its socket is to be
    `left`: the number may soon be that of another.
    """

    __slots__ = ("fd", "transport")

    def over(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self.fd = NO_SOCKET
        if transport.get_extra_info("ssl_object") is not None:
            # It holds back what is being encrypted, and would pause at each write.
            self.transport.set_write_buffer_limits(TLS_HIGH_WATER_BYTES, TLS_LOW_WATER_BYTES)
            return
        self.transport.set_write_buffer_limits(0)
        peer = transport.get_extra_info("socket")
        if peer is not None:
            self.fd = peer.fileno()

    @property
    def may_wait(self) -> bool:
        """Whether `wake_for` is heeded. Elsewhere, what has arrived before it may be overlooked."""
        return self.fd != NO_SOCKET and sys.platform == "linux"

    def wake_for(self, count: int) -> None:
        """What arrives is read when there are at least so many bytes of it, or the end."""
        if self.may_wait:
            peer = self.transport.get_extra_info("socket")
            with suppress(OSError):  # it is broken, and its transport will say so
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def left(self) -> None:
        self.fd = NO_SOCKET


class Front(Protocol):
    """The node as a channel sees it."""

    def step(self, event: Event) -> None:
        """Hand an event to the registrar core and carry out what it asks for."""
        ...

    def call_first(self, call: Callable[[], None]) -> None:
        """For a channel that gathers events: it is called before the core hears anything else, so
        that all of them reach it in the order in which they came."""
        ...

    def received(self, conn: Connection, principal: Principal, message: FromClient) -> None:
        """A client's message: its operations are authorised, then it is handed to the core.

        `principal` is of whoever says hello; from then on it is the session's.
        """
        ...

    def identify(
        self, app: str | None, credential: str | None, certificate: str | None = None
    ) -> Principal | Coroutine[Any, Any, Principal]:
        """Who is it that connects? `Unauthorised` if nobody we let in. To be awaited if keys have
        to be fetched first. `certificate`: the name in the one it has shown, if any."""
        ...

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """In the background, until the node stops."""
        ...

    def assigns_versions(self, app: str) -> bool:
        """Whether versions of this app's objects are assigned here, or chosen by publishers."""
        ...

    def publish(self, principal: Principal, updates: Sequence[Update], answered: Outcomes) -> None:
        """The answer is the outcome of each, or why none of them was looked at.

        An update without a version (NO_VERSION) asks for one to be assigned.
        """
        ...

    async def reset(self, principal: Principal, key: Key) -> None:
        """Forget the version of an object, and tell everybody to look again."""
        ...

    async def check_registering(self, principal: Principal, keys: Sequence[Key]) -> None:
        """`Unauthorised` if it may not register for all of them."""
        ...

    async def read(self, principal: Principal, key: Key) -> Notification:
        """What an object stands at, as a client that registers now would be told."""
        ...

    @property
    def handover(self) -> Handover:
        """What threads have finished: updates that are durable, and are to be told."""
        ...

    @property
    def full(self) -> bool:
        """Whether this process holds as many connections as it may."""
        ...

    @property
    def ready(self) -> bool:
        """Whether clients can register and publish."""
        ...
