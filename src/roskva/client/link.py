"""One connection of a client, from dialling to its end: a WebSocket, or the application's channel.

The client core speaks of connecting, transmitting and hanging up, and waits for none of it. A link
does these things in its own time and tells what happens, in this order: `Connected` at most once,
`FromServer` for each message, `Disconnected` once, also after it was told to hang up. In between
comes `Trouble`, if it could not connect, or if what the server said is no message of ours.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from roskva.core.effects import Connected, Disconnected, FromServer, Trouble
from roskva.errors import BadMessage, RoskvaError, Unauthorised, Unavailable, WrongProtocol
from roskva.net.channel import Channel, both_ways
from roskva.net.tls import explained
from roskva.wire import codec
from roskva.wire.messages import MAX_FRAME_BYTES, FromClient

Dial = Callable[[], AbstractAsyncContextManager[Channel]]
"""Opens a connection, and closes it at the end."""
Happening = Connected | FromServer | Trouble | Disconnected

SUBPROTOCOL: Final = Subprotocol("roskva.v1.msgpack")

MAX_UNWRITTEN: Final = 64
"""Messages. The core sends at most 25 in a second: who takes none for so long is not there."""
_PING_TIMEOUT: Final = 20.0
_HANG_UP_TIMEOUT: Final = 1.0
"""For what was sent to leave, and for the other side to say goodbye."""
_REFUSES_ENTRY: Final = (401, 403, 421)
_MAX_TEXT: Final = 300


class ServerLink:
    def __init__(
        self, name: str, dial: Dial, tell: "Callable[[ServerLink, Happening], None]"
    ) -> None:
        """`name`: of what is dialled, for whoever reads of trouble."""
        self._name = name
        self._dial = dial
        self._tell = tell
        self._unwritten: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._limit: asyncio.Timeout | None = None
        self._open = False
        self._over = False

    def send(self, message: FromClient) -> None:
        if self._unwritten.qsize() >= MAX_UNWRITTEN:
            self._end_within(0)
        else:
            self._unwritten.put_nowait(codec.encode(message))

    def hang_up(self) -> None:
        """After what was sent, if the other side takes it."""
        self._over = True
        self._unwritten.put_nowait(None)
        self._end_within(_HANG_UP_TIMEOUT if self._open else 0)

    def _end_within(self, seconds: float) -> None:
        if self._limit is not None and self._limit.when() is None:
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    async def run(self) -> None:
        """Until the connection has ended, for whatever reason."""
        try:
            if not self._over:
                async with asyncio.timeout(None) as self._limit:
                    await self._connect_and_talk()
        except TimeoutError:
            if not self._open:
                self._troubled(Unavailable("no answer"))
        except Exception as error:  # an application's channel may raise anything
            self._troubled(error)
        finally:
            self._limit = None
        self._tell(self, Disconnected())

    async def _connect_and_talk(self) -> None:
        async with self._dial() as channel:
            self._open = True
            self._tell(self, Connected())
            await both_ways(self._read(channel), self._write(channel))

    async def _read(self, channel: Channel) -> None:
        while (frame := await channel.receive()) is not None:
            try:
                message = codec.decode_from_server(frame)
            except BadMessage as error:
                self._troubled(error)
            else:
                self._tell(self, FromServer(message))

    async def _write(self, channel: Channel) -> None:
        while (frame := await self._unwritten.get()) is not None:
            await channel.send(frame)

    def _troubled(self, error: Exception) -> None:
        code = error.code if isinstance(error, RoskvaError) else Unavailable.code
        text = str(error) or type(error).__name__
        self._tell(self, Trouble(code, f"{self._name}: {text}"[:_MAX_TEXT]))


# WebSocket.


class _WebSocketChannel:
    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, message: bytes) -> None:
        with suppress(ConnectionClosed):  # reading comes to its end, too
            await self._socket.send(message)

    async def receive(self) -> bytes | None:
        try:
            frame = await self._socket.recv()
        except ConnectionClosed:
            return None
        return frame if isinstance(frame, bytes) else frame.encode()


@asynccontextmanager
async def websocket(
    url: str, context: ssl.SSLContext | None, ping_interval: float
) -> AsyncIterator[Channel]:
    dialling = connect(
        url,
        ssl=context,
        subprotocols=[SUBPROTOCOL],
        compression=None,
        max_size=MAX_FRAME_BYTES,
        open_timeout=None,  # the core decides how long it waits
        ping_interval=ping_interval,
        ping_timeout=_PING_TIMEOUT,
        close_timeout=_HANG_UP_TIMEOUT,
    )
    try:
        async with dialling as socket:
            if socket.subprotocol != SUBPROTOCOL:
                raise WrongProtocol(f"the server does not speak {SUBPROTOCOL}")
            try:
                yield _WebSocketChannel(socket)
            except asyncio.CancelledError:
                # Closing it in peace would wait for what the other side does not take.
                socket.transport.abort()
                raise
    except (OSError, WebSocketException) as error:
        if isinstance(error, InvalidStatus) and error.response.status_code in _REFUSES_ENTRY:
            said = error.response.body.decode(errors="replace").strip()
            raise Unauthorised(f"{error}: {said}"[:_MAX_TEXT]) from error
        raise Unavailable(str(explained(error, context is not None) or error)) from error
