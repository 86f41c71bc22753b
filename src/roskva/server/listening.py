"""The sockets a node listens on."""

import socket
from contextlib import suppress
from typing import Final

import msgspec

from roskva.config import Config
from roskva.errors import BadConfig

MAX_UNSENT_BYTES: Final = 16 * 1024


class Ports(msgspec.Struct, frozen=True):
    """As they are in fact, where any free one was asked for."""

    http: int
    mqtt: int | None
    admin: int | None


class Listeners(msgspec.Struct, frozen=True):
    http: socket.socket
    mqtt: socket.socket | None
    admin: socket.socket | None

    @property
    def ports(self) -> Ports:
        return Ports(
            port_of(self.http),
            None if self.mqtt is None else port_of(self.mqtt),
            None if self.admin is None else port_of(self.admin),
        )


def listen_all(config: Config, ports: Ports, *, shared: bool) -> Listeners:
    node, admin = config.node, config.admin
    return Listeners(
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


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port
