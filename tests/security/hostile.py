"""An app's backend in the hands of somebody hostile: it answers hooks, and requests for keys, with
whatever might harm the node that asks.
"""

import gzip
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

_OK: Final = "HTTP/1.1 200 OK\r\n"
_DEEP: Final = b"[" * 100_000
_MAX_S: Final = 20.0
"""Nobody asks for longer."""
Answer = Callable[[], Iterable[bytes]]


def _whole(body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{header}\r\n" for header in (*headers, f"content-length: {len(body)}"))
    return f"{_OK}{lines}\r\n".encode() + body


def _bomb() -> bytes:
    """A hundred megabytes in a few hundred bytes: it is packed twice."""
    return gzip.compress(gzip.compress(bytes(100 << 20)))


def _huge() -> Iterator[bytes]:
    yield f"{_OK}content-length: {1 << 40}\r\n\r\n".encode()
    yield from iter(lambda: bytes(1 << 16), b"")


def _dripping() -> Iterator[bytes]:
    yield f"{_OK}content-length: 1000\r\n\r\n".encode()
    while True:
        time.sleep(0.05)
        yield b" "


def _in_small_parts() -> Iterator[bytes]:
    yield f"{_OK}transfer-encoding: chunked\r\n\r\n".encode()
    yield from iter(lambda: b"1\r\n \r\n" * 1000, b"")


def _endless_head() -> Iterator[bytes]:
    yield _OK.encode()
    yield from iter(lambda: b"x: " + b"y" * 1000 + b"\r\n", b"")


def _silent() -> Iterator[bytes]:
    time.sleep(_MAX_S)
    yield b""


ANSWERS: Final[dict[str, Answer]] = {
    "a bomb": lambda: [_whole(_bomb(), "content-encoding: gzip, gzip")],
    "nested without end": lambda: [_whole(b'{"keys":[{"x":' + _DEEP)],
    "nested beside what is asked": lambda: [_whole(b'{"allow":[],"x":' + _DEEP)],
    "huge": _huge,
    "in small parts": _in_small_parts,
    "an endless head": _endless_head,
    "dripping": _dripping,
    "silent": _silent,
    "hanging up": tuple,
    "garbage": lambda: [bytes(range(256)) * 100],
    "a bad redirect": lambda: [b"HTTP/1.1 302 \r\nlocation: http://[::\r\n\r\n"],
}


class HostileBackend:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/"
        self.answer: Answer = ANSWERS["hanging up"]
        self.requests: list[bytes] = []


@contextmanager
def hostile_backend() -> Iterator[HostileBackend]:
    def respond(conn: socket.socket) -> None:
        give_up_at = time.monotonic() + _MAX_S
        with conn, suppress(OSError):
            conn.settimeout(_MAX_S)
            backend.requests.append(conn.recv(65536))
            for part in backend.answer():
                conn.sendall(part)
                if time.monotonic() > give_up_at:
                    return

    def serve() -> None:
        with suppress(OSError):
            while True:
                conn, _ = listener.accept()
                threading.Thread(target=respond, args=(conn,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        backend = HostileBackend(listener.getsockname()[1])
        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield backend
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()
