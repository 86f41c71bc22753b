"""A relay to a server that counts what it says: bytes that were read from it, whoever reads."""

import socket
import threading
from collections.abc import Iterator
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
                server = socket.create_connection(("127.0.0.1", self._to))
                for source, sink, counts in ((client, server, False), (server, client, True)):
                    pump = threading.Thread(
                        target=self._pump, args=(source, sink, counts), daemon=True
                    )
                    pump.start()

    def _pump(self, source: socket.socket, sink: socket.socket, counts: bool) -> None:
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                if counts:
                    with self._lock:
                        self.said += len(data)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listener.close()


@contextmanager
def relayed(to_port: int) -> Iterator[Relay]:
    relay = Relay(to_port)
    try:
        yield relay
    finally:
        relay.close()
