"""A port of HTTP and WebSocket, served by uvicorn."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import uvicorn

from roskva.channels.http_protocol import BoundedHttp, Entrance

BACKLOG: Final = 4096
_GOODBYE_S: Final = 2


class HttpPort(uvicorn.Server):
    """uvicorn without its signals, as the node has its own, and with deadlines for TLS."""

    def __init__(
        self,
        app: Any,
        websocket: Callable[..., asyncio.Protocol] | None,
        entrance: Entrance,
        tls: dict[str, Any],
    ) -> None:
        """`tls`: see `tls_options`."""
        super().__init__(
            uvicorn.Config(
                app,
                http=BoundedHttp,
                ws=websocket or "none",  # type: ignore[arg-type]  # any factory of protocols will do
                lifespan="off",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=_GOODBYE_S,
            )
        )
        self.listening = asyncio.Event()
        self._entrance = entrance
        self._tls = tls

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        connection = partial(
            BoundedHttp,
            self._entrance,
            config=self.config,
            server_state=self.server_state,
            app_state={},
            _loop=loop,
        )
        self.servers = [
            await loop.create_server(connection, sock=each, backlog=BACKLOG, **self._tls)
            for each in sockets or []
        ]
        self.started = True
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def tls_options(context: ssl.SSLContext | None, handshake_s: float) -> dict[str, Any]:
    """Of `create_server`, for any port."""
    if context is None:
        return {}
    return {
        "ssl": context,
        "ssl_handshake_timeout": handshake_s,
        "ssl_shutdown_timeout": handshake_s,
    }
