"""The sockets a node listens on."""

import socket
from contextlib import suppress

from roskva.errors import BadConfig


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
        with suppress(OSError):  # inherited by what it accepts: frames are small, and leave at once
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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
