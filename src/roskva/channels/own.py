"""An application's own channel: connections that it brings, each of which carries whole messages.

The setting `channel` names a function of the application, which runs in every process that serves
clients for as long as it does. For each connection it calls `attach`, which serves the client at
the other end and returns when that is over. What a connection loses, repeats or reorders does no
harm. One that does not take what it is sent is left out, as any slow reader, and told the newest
later.
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from roskva.channels.base import FULL, MAX_UNREAD_BYTES, Gateway
from roskva.channels.connections import Connections
from roskva.channels.conversation import Conversation
from roskva.core.effects import Closed, Opened
from roskva.errors import BadConfig, Overloaded, RoskvaError, TooLarge
from roskva.host.delivery import OwnDelivery
from roskva.net.channel import Attach, Channel, both_ways
from roskva.wire.codec import encode
from roskva.wire.messages import PROTOCOL, Notification, ServerError, ServerMessage

HIGH_WATER_BYTES: Final = 16 * 1024
"""Not sent yet; from here on the connection is left out until all of it is."""
_RANDOM_BYTES: Final = 28
_COME_BACK_MS: Final = 10_000
_CLOSING_S: Final = 1.0
"""For what was sent last to leave."""

_log = logging.getLogger(__name__)


Serve = Callable[[Attach], Awaitable[None]]


def own_channel(named: str) -> Serve:
    """`module:function`, as the setting says."""
    module, _, name = named.partition(":")
    try:
        found: object = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise BadConfig(
            f"the channel {named!r} cannot be loaded ({error}): write module:function, and see "
            "that the module is installed or on PYTHONPATH"
        ) from None
    if not callable(found):
        raise BadConfig(f"the channel {named!r} is no function")
    return found


class OwnChannel:
    """All connections of it in this process."""

    def __init__(
        self,
        front: Gateway,
        connections: Connections,
        serve: Serve,
        max_bytes: int,
        handshake_s: float,
    ) -> None:
        self._front = front
        self._connections = connections
        self._serve = serve
        self._max_bytes = max_bytes
        self._handshake_s = handshake_s
        self._open: set[OwnConnection] = set()
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """For as long as the node serves. An error is one of the node: it ends, and says why."""
        try:
            await self._serve(self.attach)
        except Exception:
            _log.exception("the own channel failed")
            raise
        raise BadConfig("the own channel has ended: its function runs for as long as the node")

    async def close(self) -> None:
        """Until those that were sent away have been told so, or the time for that is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSING_S):
                while self._open:
                    self._ended.clear()
                    await self._ended.wait()

    async def attach(self, channel: Channel, credential: str | None = None) -> None:
        connection = OwnConnection(self._front, self._max_bytes, credential)
        if not self._may_stay(connection):
            with suppress(Exception):
                async with asyncio.timeout(_CLOSING_S):
                    await channel.send(encode(_FULL))
            return
        self._open.add(connection)
        try:
            await connection.run(channel, self._handshake_s)
        except OSError:
            pass  # connections break
        except Exception:
            _log.exception("a connection of the own channel failed")
        finally:
            self._open.discard(connection)
            self._connections.leave(connection)
            self._ended.set()

    def _may_stay(self, connection: "OwnConnection") -> bool:
        if not self._connections.admit(connection):
            return False
        stays = self._connections.stays(connection)
        if not stays:
            self._connections.leave(connection)
        return stays


_FULL: Final = ServerMessage(
    PROTOCOL,
    not_before_ms=_COME_BACK_MS,
    error=ServerError(Overloaded.code, FULL),
)


class OwnConnection(Conversation):
    """To the node's writer it is a transport: what is written waits here for the channel."""

    def __init__(self, front: Gateway, max_bytes: int, credential: str | None) -> None:
        super().__init__(front, OwnDelivery(encode))
        self._max_bytes = max_bytes
        self._credential = credential
        self._unsent: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._more, self._room = asyncio.Event(), asyncio.Event()
        self._room.set()
        self._closing = False
        self._limit = asyncio.timeout(None)

    async def run(self, channel: Channel, handshake_s: float) -> None:
        delivery, writer = self.delivery, self._front.writer
        delivery.connection = self
        delivery.address = writer.enter(self)  # type: ignore[arg-type]  # all that it uses is here
        self._front.step(Opened(delivery, secrets.token_bytes(_RANDOM_BYTES)))
        try:
            with suppress(TimeoutError):
                async with self._limit:
                    self._end_within(_CLOSING_S if self._closing else handshake_s)
                    await both_ways(self._read(channel), self._write(channel))
        finally:
            writer.leave(delivery.address)
            delivery.end()
            self._front.step(Closed(delivery))
            delivery.connection = None

    async def _read(self, channel: Channel) -> None:
        while (message := await channel.receive()) is not None:
            if len(message) > self._max_bytes:
                self._refuse(TooLarge(f"a message has at most {self._max_bytes} bytes"))
            elif not self._closing:
                self._message(message)
            await asyncio.sleep(0)  # others have their turn, however much it has to say
            await self._room.wait()

    async def _write(self, channel: Channel) -> None:
        while True:
            while self._unsent:
                message = self._unsent.popleft()
                await channel.send(message)
                self._unsent_bytes -= len(message)
            self._room.set()
            if self.delivery.lagging:
                self._front.step(self.delivery.resume())
                continue
            if self._closing:
                return
            self._more.clear()
            await self._more.wait()

    def _end_within(self, seconds: float) -> None:
        with suppress(RuntimeError):  # it has not begun yet, or is over
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    # What the core says.

    def send(self, message: ServerMessage) -> Sequence[Notification]:
        self.write(encode(message))
        if self._unsent_bytes > MAX_UNREAD_BYTES:
            self._room.clear()  # it asks for more than it reads
        return message.notifications

    def close(self) -> None:
        """After what was sent."""
        if not self._closing:
            self._closing = True
            self.delivery.end()
            self._more.set()
            self._end_within(_CLOSING_S)

    def abort(self) -> None:
        self._end_within(0)

    def _hang_up_on(self, error: RoskvaError) -> None:
        self.close()

    def _said_hello(self) -> None:
        if not self._closing:
            self._limit.reschedule(None)

    # What the writer uses of a transport.

    def write(self, data: bytes) -> None:
        self._unsent.append(data)
        self._unsent_bytes += len(data)
        self._more.set()
        if (
            self._unsent_bytes > HIGH_WATER_BYTES
            and not self._closing
            and not self.delivery.lagging
        ):
            self._front.step(self.delivery.pause())

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default
