"""The ports of a process that serves clients: opened together, closed together."""

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from roskva.channels.base import Front
from roskva.channels.http_protocol import Entrance, LateApp
from roskva.channels.mqtt import MqttChannel, MqttLimits
from roskva.channels.origins import Origins, with_origins
from roskva.channels.peers import Addresses, AdminDoor, Peers
from roskva.channels.websocket import WebSockets
from roskva.config import Config, open_to_this_machine
from roskva.server.http_port import BACKLOG, HttpPort, tls_options
from roskva.server.listening import Listeners
from roskva.server.reload import Reloads
from roskva.server.tls import Certificates

if TYPE_CHECKING:
    from litestar import Litestar

    from roskva.channels.admin import AdminView

_PING_S: Final = 30.0


class Doors:
    def __init__(self, front: Front, inside: "AdminView", config: Config, reloads: Reloads) -> None:
        limits, first_try = config.limits, open_to_this_machine(config)
        context = None
        if config.tls.enabled:
            certificates = Certificates(config.tls)
            reloads.add("TLS", certificates.reload)
            context = certificates.context
        self._tls = tls_options(context, limits.handshake_seconds)
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

        def beside_clients() -> "Litestar":
            from roskva.channels.http import http_app

            return http_app(front, inside, self._admin_doors[0], limits.max_body_bytes)

        def apart() -> "Litestar":
            from roskva.channels.http import admin_app

            return admin_app(front, inside, self._admin_doors[1], limits.max_body_bytes)

        http, admin = (with_origins(LateApp(make), origins) for make in (beside_clients, apart))
        self._http = HttpPort(http, self._sockets.connection, entrance, self._tls)
        self._admin = HttpPort(admin, None, entrance, self._tls)
        self._mqtt = MqttChannel(
            front,
            addresses,
            MqttLimits(
                max_packet_bytes=limits.max_frame_bytes,
                handshake_timeout_s=limits.handshake_seconds,
            ),
            asyncio.get_running_loop().call_later,
        )
        self.mqtt_counters: Mapping[str, int] = self._mqtt.counters
        self._mqtt_server: asyncio.Server | None = None
        self._serving: list[asyncio.Task[None]] = []

    def _take_admin_key(self, config: Config) -> None:
        for door in self._admin_doors:
            door.reload(config)

    async def open(self, tasks: asyncio.TaskGroup, listeners: Listeners) -> None:
        for port, listener in ((self._http, listeners.http), (self._admin, listeners.admin)):
            if listener is not None:
                self._serving.append(tasks.create_task(port.serve([listener])))
                await port.listening.wait()
        if listeners.mqtt is not None:
            loop = asyncio.get_running_loop()
            self._mqtt_server = await loop.create_server(
                self._mqtt, sock=listeners.mqtt, backlog=BACKLOG, **self._tls
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
