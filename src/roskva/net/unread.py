"""Whether the other end of a connection takes what was written to it."""

import asyncio
import socket
import sys
from contextlib import suppress
from struct import Struct
from typing import Final

_TCP_INFO: Final = getattr(socket, "TCP_INFO", None) if sys.platform == "linux" else None
_FIELDS: Final = Struct("=24xI92xQ16xI")
"""unacked segments, bytes acked, bytes not sent yet."""
_NO_LINGER: Final = Struct("ii").pack(1, 0)


def taken_by(transport: asyncio.BaseTransport) -> int | None:
    """A number that changes whenever the other end takes something; None: nothing is left for it.

    The kernel knows, also behind TLS: whatever waits anywhere, some of it waits there.
    """
    peer = transport.get_extra_info("socket")
    if _TCP_INFO is not None and peer is not None:
        try:
            found = peer.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _FIELDS.size)
        except (OSError, ValueError):  # it is closed
            found = b""
        if len(found) == _FIELDS.size:
            unacked, acked, unsent = _FIELDS.unpack(found)
            return int(acked) if unacked or unsent else None
    size: int = transport.get_write_buffer_size()  # type: ignore[attr-defined]
    return -size or None


def reset(transport: asyncio.Transport) -> None:
    """Cut it off, and let go of what it did not take: else the kernel would go on offering that."""
    peer = transport.get_extra_info("socket")
    if peer is not None:
        with suppress(OSError, ValueError):
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    transport.abort()
