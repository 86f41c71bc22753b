"""Accepts what comes to a port, and counts it from that moment.

An event loop's own server tells its protocols of a connection when TLS has shaken hands, and of one
that never does it tells nobody. Here each has its place before, and gives it up however that ends.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from roskva.channels.connections import Connections

BACKLOG: Final = 4096
_AT_ONCE: Final = 64
"""Accepted in one turn of the loop."""
_PAUSE_S: Final = 0.5
"""When the system has no file descriptor or memory for another."""

_log = logging.getLogger(__name__)


class _Arrival:
    """A socket whose protocol has not begun yet."""

    def __init__(self, conn: socket.socket) -> None:
        self._conn = conn

    def abort(self) -> None:
        """Whatever reads or writes it hears that it is over, and closes it."""
        with suppress(OSError):
            self._conn.shutdown(socket.SHUT_RDWR)


class Acceptor:
    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        make: Callable[[], asyncio.Protocol],
        tls: dict[str, Any],
        refusal: bytes = b"",
    ) -> None:
        """`tls`: options of `connect_accepted_socket`. `refusal`: what is said where there is no
        place, if there is no TLS."""
        self._listener = listener
        self._connections = connections
        self._make = make
        self._tls = tls
        self._refusal = b"" if tls else refusal
        self._beginning: dict[asyncio.Task[None], _Arrival] = {}
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        listener.setblocking(False)
        listener.listen(BACKLOG)
        self._loop.add_reader(listener, self._accept)

    def close(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._loop.remove_reader(self._listener)
        self._listener.close()
        for arrival in self._beginning.values():
            arrival.abort()

    async def wait_closed(self) -> None:
        """For handshakes that were under way."""
        await asyncio.gather(*self._beginning)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                conn, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("no connection can be accepted for a moment: %s", error.strerror)
                self._loop.remove_reader(self._listener)
                self._pause = self._loop.call_later(_PAUSE_S, self._accept_again)
                return
            self._take(conn)

    def _accept_again(self) -> None:
        self._loop.add_reader(self._listener, self._accept)

    def _take(self, conn: socket.socket) -> None:
        conn.setblocking(False)
        arrival = _Arrival(conn)
        if not self._connections.admit(arrival):
            with suppress(OSError):
                conn.send(self._refusal)
            conn.close()
            return
        task = self._loop.create_task(self._begin(conn, arrival))
        self._beginning[task] = arrival
        task.add_done_callback(self._beginning.pop)

    async def _begin(self, conn: socket.socket, arrival: _Arrival) -> None:
        try:
            # With TLS this returns when hands are shaken.
            await self._loop.connect_accepted_socket(self._make, conn, **self._tls)
        except (OSError, TimeoutError):
            pass  # it has gone, was late, or speaks something else
        finally:
            self._connections.leave(arrival)
