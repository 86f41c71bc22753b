"""The ports of a process that serves clients: opened together, closed together."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import uvicorn

from roskva.channels.base import Gateway
from roskva.channels.http_protocol import BoundedHttp, Entrance, LateApp
from roskva.channels.mqtt import MqttChannel, MqttLimits
from roskva.channels.origins import Origins, with_origins
from roskva.channels.peers import Addresses, AdminDoor, Peers
from roskva.channels.websocket import WebSockets
from roskva.config import Config, open_to_this_machine
from roskva.errors import BadConfig
from roskva.net.address import Ports
from roskva.server.reload import Reloads
from roskva.server.tls import Certificates

if TYPE_CHECKING:
    from litestar import Litestar
    from litestar.types import ASGIApp

    from roskva.channels.admin import AdminView

MAX_UNSENT_BYTES: Final = 16 * 1024
BACKLOG: Final = 4096
_GOODBYE_S: Final = 2
_PING_S: Final = 30.0


# Sockets.


class PortSockets(msgspec.Struct, frozen=True):
    http: socket.socket
    mqtt: socket.socket | None
    admin: socket.socket | None

    @property
    def ports(self) -> Ports:
        """As they are in fact, where any free one was asked for."""
        return Ports(
            self.http.getsockname()[1],
            None if self.mqtt is None else self.mqtt.getsockname()[1],
            None if self.admin is None else self.admin.getsockname()[1],
        )


def listen_all(config: Config, ports: Ports, *, shared: bool) -> PortSockets:
    node, admin = config.node, config.admin
    return PortSockets(
        listen(node.host, ports.http, shared=shared),
        None if ports.mqtt is None else listen(node.host, ports.mqtt, shared=shared),
        None if ports.admin is None else listen(admin.host, ports.admin, shared=shared),
    )


def wanted_ports(config: Config) -> Ports:
    return Ports(config.node.port, config.node.mqtt_port, config.admin.port)


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """`shared`: other processes of this node listen on the same port."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise BadConfig(f"{host} is no address to listen on: {error.strerror}") from None
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        # Inherited by what it accepts: frames are small and leave at once, and little waits in the
        # kernel for a slow reader, where what is outdated could not be left out any more.
        with suppress(OSError):
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, MAX_UNSENT_BYTES)
        listener.bind(address)
    except OSError as error:
        listener.close()
        raise BadConfig(
            f"port {port} of {host} cannot be used ({error.strerror}): stop what uses it, or name "
            "another port"
        ) from None
    listener.setblocking(False)
    return listener


# Listeners.


class HttpPort(uvicorn.Server):
    """uvicorn without its signals, as the node has its own, and with deadlines for TLS."""

    def __init__(
        self,
        app: Any,
        websocket: Callable[..., asyncio.Protocol] | None,
        entrance: Entrance,
        tls: dict[str, Any],
    ) -> None:
        """`tls`: options of `create_server`."""
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


class Listeners:
    def __init__(
        self, front: Gateway, inside: "AdminView", config: Config, reloads: Reloads
    ) -> None:
        limits, first_try = config.limits, open_to_this_machine(config)
        self._tls: dict[str, Any] = {}
        if config.tls.enabled:
            certificates = Certificates(config.tls)
            reloads.add("TLS", certificates.reload)
            self._tls = {
                "ssl": certificates.context,
                "ssl_handshake_timeout": limits.handshake_seconds,
                "ssl_shutdown_timeout": limits.handshake_seconds,
            }
        peers = Peers(config.node.behind_proxy)
        origins = Origins(config.node.allowed_origins, first_try)
        addresses = Addresses(peers, limits.max_connections_per_address)
        entrance = Entrance(peers, addresses, limits.handshake_seconds, limits.body_seconds)
        self._sockets = WebSockets(
            *(front, peers, addresses, origins),
            max_bytes=limits.max_frame_bytes,
            handshake_s=limits.handshake_seconds,
        )
        self._admin_doors = AdminDoor(config, open=first_try), AdminDoor(config, open=True)
        reloads.add("the admin key", self._take_admin_key)

        def app(door: AdminDoor, *, for_clients: bool) -> "ASGIApp":
            def made() -> "Litestar":
                from roskva.channels.http import http_app

                return http_app(front, inside, door, limits.max_body_bytes, for_clients=for_clients)

            return with_origins(LateApp(made), origins)

        beside_clients, apart = self._admin_doors
        shared_app = app(beside_clients, for_clients=True)
        self._http = HttpPort(shared_app, self._sockets.connection, entrance, self._tls)
        self._admin = HttpPort(app(apart, for_clients=False), None, entrance, self._tls)
        self._mqtt = MqttChannel(
            front,
            addresses,
            MqttLimits(
                max_packet_bytes=limits.max_frame_bytes,
                handshake_timeout_s=limits.handshake_seconds,
            ),
            asyncio.get_running_loop().call_later,
        )
        self.mqtt_counters = self._mqtt.counters
        self._mqtt_server: asyncio.Server | None = None
        self._serving: list[asyncio.Task[None]] = []

    def _take_admin_key(self, config: Config) -> None:
        for door in self._admin_doors:
            door.reload(config)

    async def open(self, tasks: asyncio.TaskGroup, sockets: PortSockets) -> None:
        for port, listening in ((self._http, sockets.http), (self._admin, sockets.admin)):
            if listening is not None:
                self._serving.append(tasks.create_task(port.serve([listening])))
                await port.listening.wait()
        if sockets.mqtt is not None:
            loop = asyncio.get_running_loop()
            self._mqtt_server = await loop.create_server(
                self._mqtt, sock=sockets.mqtt, backlog=BACKLOG, **self._tls
            )

    async def ping(self) -> None:
        await self._sockets.ping(_PING_S)

    def shut(self) -> None:
        """Nobody comes in any more by MQTT; the others may still be told something. What has been
        acked is known to the core."""
        if self._mqtt_server is not None:
            self._mqtt_server.close()
        self._mqtt.take_acks()

    async def close(self) -> None:
        self._http.should_exit = self._admin.should_exit = True
        await asyncio.gather(*self._serving)
        await self._mqtt.close()
