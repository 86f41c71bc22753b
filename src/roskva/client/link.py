"""One WebSocket connection of a client, from dialling to its end.

The client core speaks of connecting, transmitting and hanging up, and waits for none of it. A link
does these things in its own time and tells what happens, in this order: `Connected` at most once,
`FromServer` for each message, `Disconnected` once, also after it was told to hang up. In between
comes `Trouble`, if it could not connect, or if what the server said is no message of ours.
"""

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from roskva.core.effects import Connected, Disconnected, FromServer, Trouble
from roskva.errors import BadMessage, Unauthorised, Unavailable, WrongProtocol
from roskva.net.tls import explained
from roskva.wire import codec
from roskva.wire.messages import MAX_FRAME_BYTES, FromClient

Happening = Connected | FromServer | Trouble | Disconnected

SUBPROTOCOL: Final = Subprotocol("roskva.v1.msgpack")

MAX_UNWRITTEN: Final = 64
"""Messages. The core sends at most 25 in a second: who takes none for so long is not there."""
_PING_TIMEOUT: Final = 20.0
_HANG_UP_TIMEOUT: Final = 1.0
"""For what was sent to leave, and for the other side to say goodbye."""
_REFUSES_ENTRY: Final = (401, 403)
_MAX_TEXT: Final = 300


class WebSocketLink:
    def __init__(
        self,
        url: str,
        context: ssl.SSLContext | None,
        ping_interval: float,
        tell: "Callable[[WebSocketLink, Happening], None]",
    ) -> None:
        self._url = url
        self._context = context
        self._ping_interval = ping_interval
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
        except ConnectionClosed:
            pass
        except TimeoutError:
            if not self._open:
                self._troubled(Unavailable("no answer"))
        except (OSError, WebSocketException, WrongProtocol) as error:
            self._troubled(error)
        finally:
            self._limit = None
        self._tell(self, Disconnected())

    async def _connect_and_talk(self) -> None:
        dialling = connect(
            self._url,
            ssl=self._context,
            subprotocols=[SUBPROTOCOL],
            compression=None,
            max_size=MAX_FRAME_BYTES,
            open_timeout=None,  # the core decides how long it waits
            ping_interval=self._ping_interval,
            ping_timeout=_PING_TIMEOUT,
            close_timeout=_HANG_UP_TIMEOUT,
        )
        async with dialling as socket:
            if socket.subprotocol != SUBPROTOCOL:
                raise WrongProtocol(f"the server does not speak {SUBPROTOCOL}")
            self._open = True
            self._tell(self, Connected())
            try:
                async with asyncio.TaskGroup() as tasks:
                    writing = tasks.create_task(self._write(socket))
                    await self._read(socket)
                    writing.cancel()
            except asyncio.CancelledError:
                # Closing it in peace would wait for what the other side does not take.
                socket.transport.abort()
                raise

    async def _read(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            async for frame in socket:
                try:
                    message = codec.decode_from_server(
                        frame if isinstance(frame, bytes) else frame.encode()
                    )
                except BadMessage as error:
                    self._troubled(error)
                else:
                    self._tell(self, FromServer(message))

    async def _write(self, socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            while (frame := await self._unwritten.get()) is not None:
                await socket.send(frame)
            await socket.close()

    def _troubled(self, error: Exception) -> None:
        if isinstance(error, BadMessage):
            code = error.code
        elif isinstance(error, InvalidStatus) and error.response.status_code in _REFUSES_ENTRY:
            code = Unauthorised.code
        else:
            code = Unavailable.code
        text = explained(error, self._context is not None) or error
        self._tell(self, Trouble(code, f"{self._url}: {text}"[:_MAX_TEXT]))
