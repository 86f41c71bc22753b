"""The sockets a node listens on."""

import socket
from contextlib import suppress
from typing import Final

from roskva.errors import BadConfig

_MAX_UNSENT_BYTES: Final = 16 * 1024


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
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, _MAX_UNSENT_BYTES)
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
