"""The ports of a process that serves clients: opened together, closed together."""

import asyncio
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
import uvicorn

from roskva.channels.base import Gateway
from roskva.channels.connections import Connections
from roskva.channels.hosts import Hosts
from roskva.channels.http_protocol import FULL, BoundedHttp, Entrance, LateApp
from roskva.channels.mqtt import MqttChannel, MqttLimits
from roskva.channels.origins import Origins, for_browsers
from roskva.channels.own import OwnChannel, own_channel
from roskva.channels.peers import Addresses, AdminDoor, Peers
from roskva.channels.websocket import WebSockets
from roskva.config import Config, open_to_this_machine, takes_any_name
from roskva.errors import BadConfig
from roskva.net.address import Ports
from roskva.net.certificates import names_in
from roskva.server.acceptor import Acceptor
from roskva.server.reload import Reloads
from roskva.server.tls import Certificates

if TYPE_CHECKING:
    from litestar import Litestar
    from litestar.types import ASGIApp

    from roskva.channels.admin import AdminView

MAX_UNSENT_BYTES: Final = 16 * 1024
_GOODBYE_S: Final = 2


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
    """uvicorn without its signals and its way to accept, as the node has its own."""

    def __init__(
        self,
        app: Any,
        websocket: Callable[..., asyncio.Protocol] | None,
        entrance: Entrance,
        tls: dict[str, Any],
    ) -> None:
        """`tls`: options of `connect_accepted_socket`."""
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
            Acceptor(each, self._entrance.connections, connection, self._tls, FULL)  # type: ignore[misc]
            for each in sockets or []
        ]
        self.started = True
        self.listening.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Listeners:
    def __init__(
        self,
        front: Gateway,
        inside: "AdminView",
        config: Config,
        shards: int,
        reloads: Reloads,
    ) -> None:
        """`shards`: of the node."""
        limits, sessions = config.limits, config.sessions
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.connections = Connections(limits.connections(open_files, shards))
        first_try = open_to_this_machine(config)
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
        self._names = Hosts(_names_of(config), any_name=takes_any_name(config))
        self._admin_names = Hosts(_names_of(config))
        reloads.add("the names in the certificate", self._take_names)
        addresses = Addresses(peers, limits.max_connections_per_address)
        entrance = Entrance(
            *(peers, addresses, self.connections),
            *(limits.handshake_seconds, limits.body_seconds, limits.write_seconds),
        )
        self._sockets = WebSockets(
            *(front, peers, addresses, self.connections, self._names, origins),
            max_bytes=limits.max_frame_bytes,
            handshake_s=limits.handshake_seconds,
            write_s=limits.write_seconds,
        )
        self._ping_s = sessions.websocket_ping_seconds
        self._admin_doors = AdminDoor(config, open=first_try), AdminDoor(config, open=True)
        reloads.add("the admin key", self._take_admin_key)

        def app(door: AdminDoor, names: Hosts, *, for_clients: bool) -> "ASGIApp":
            def made() -> "Litestar":
                from roskva.channels.http import http_app

                return http_app(
                    *(front, inside, door, limits.max_body_bytes, sessions.events_ping_seconds),
                    limits.events_per_second,
                    for_clients=for_clients,
                )

            return for_browsers(LateApp(made), names, origins)

        beside_clients, apart = self._admin_doors
        shared_app = app(beside_clients, self._names, for_clients=True)
        admin_app = app(apart, self._admin_names, for_clients=False)
        self._http = HttpPort(shared_app, self._sockets.connection, entrance, self._tls)
        self._admin = HttpPort(admin_app, None, entrance, self._tls)
        self._mqtt = MqttChannel(
            front,
            addresses,
            self.connections,
            MqttLimits(
                max_packet_bytes=limits.max_frame_bytes,
                handshake_timeout_s=limits.handshake_seconds,
                write_timeout_s=limits.write_seconds,
                max_keep_alive_s=sessions.mqtt_keep_alive_seconds,
                sign_of_life_s=sessions.heartbeat_seconds,
            ),
            asyncio.get_running_loop().call_later,
        )
        self._own: OwnChannel | None = None
        if config.node.channel is not None:
            serve = own_channel(config.node.channel)
            self._own = OwnChannel(
                *(front, self.connections, serve),
                *(limits.max_frame_bytes, limits.handshake_seconds),
            )
        self.mqtt_counters = self._mqtt.counters
        self._mqtt_server: Acceptor | None = None
        self._serving: list[asyncio.Task[None]] = []
        self._serving_own: asyncio.Task[None] | None = None

    def _take_admin_key(self, config: Config) -> None:
        for door in self._admin_doors:
            door.reload(config)

    def _take_names(self, config: Config) -> None:
        for hosts in (self._names, self._admin_names):
            hosts.take(_names_of(config))

    async def open(self, tasks: asyncio.TaskGroup, sockets: PortSockets) -> None:
        for port, listening in ((self._http, sockets.http), (self._admin, sockets.admin)):
            if listening is not None:
                self._serving.append(tasks.create_task(port.serve([listening])))
                await port.listening.wait()
        if sockets.mqtt is not None:
            self._mqtt_server = Acceptor(sockets.mqtt, self.connections, self._mqtt, self._tls)

        if self._own is not None:
            self._serving_own = tasks.create_task(self._own.run())

    async def ping(self) -> None:
        await self._sockets.ping(self._ping_s)

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
        if self._own is not None and self._serving_own is not None:
            await self._own.close()
            self._serving_own.cancel()


def _names_of(config: Config) -> list[str]:
    """That the node may be called by."""
    node, admin, certificate = config.node, config.admin, config.tls.certificate
    certified = [] if certificate is None else names_in(certificate)
    return [node.host, admin.host, *node.allowed_hosts, *certified]
