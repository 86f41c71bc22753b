"""A relay to a server that counts what it says: bytes that were read from it, whoever reads."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_CHUNK: Final = 1 << 16


class Relay:
    def __init__(self, to_port: int) -> None:
        self._to = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.said = 0
        """Bytes that the server has sent."""
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(("127.0.0.1", self._to)) as server:
            asking = threading.Thread(target=_pump, args=(client, server), daemon=True)
            asking.start()
            _pump(server, client, self._count)
            asking.join()

    def _count(self, said: int) -> None:
        with self._lock:
            self.said += said

    def close(self) -> None:
        self._listener.close()


def _pump(
    source: socket.socket, sink: socket.socket, count: Callable[[int], None] = lambda said: None
) -> None:
    """Until one of them is closed; then both are."""
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            count(len(data))
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def relayed(to_port: int) -> Iterator[Relay]:
    relay = Relay(to_port)
    try:
        yield relay
    finally:
        relay.close()
