"""A stream of a real PostgreSQL, garbled on its way: what was garbled is read again."""

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from tests.serving.nodes import PATIENCE_S, await_that
from tests.sources.followed import Followed
from tests.sources.servers import Postgres, postgres_binaries

pytestmark = pytest.mark.verify
SOUND: Final = b"t\0\0\0\x06pepper"
GARBLED: Final = b"x\0\0\0\x06pepper"


class Garbler(threading.Thread):
    """Between a reader and its database; it garbles some rows with pepper."""

    def __init__(self, server: Postgres) -> None:
        super().__init__(daemon=True)
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.left = 0
        self._passing: list[threading.Thread] = []
        self._sockets: list[socket.socket] = [self._listening]

    @property
    def url(self) -> str:
        return f"postgresql://roskva@127.0.0.1:{self.port}/shop"

    def run(self) -> None:
        with suppress(OSError):
            while True:
                reader, _ = self._listening.accept()
                database = socket.create_connection(("127.0.0.1", self._server.port))
                for source, sink in ((reader, database), (database, reader)):
                    self._sockets.append(source)
                    passing = threading.Thread(target=self._pass, args=(source, sink), daemon=True)
                    passing.start()
                    self._passing.append(passing)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if self.left and SOUND in data:
                    self.left -= 1
                    data = data.replace(SOUND, GARBLED, 1)
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """When nobody is connected any more."""
        self._listening.shutdown(socket.SHUT_RDWR)
        for thread in (self, *self._passing):
            thread.join(PATIENCE_S)
        for each in self._sockets:
            each.close()


@pytest.fixture
def server() -> Iterator[Postgres]:
    with TemporaryDirectory(prefix="roskva-postgres-") as place:
        server = Postgres(Path(place), postgres_binaries())
        try:
            server.make()
            server.run(
                "CREATE TABLE products (id int PRIMARY KEY, name text)",
                "CREATE PUBLICATION roskva_shop FOR TABLE products",
            )
            yield server
        finally:
            server.kill()


def test_what_was_garbled_is_read_again_and_nothing_is_lost_or_wrong(
    server: Postgres, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    garbler = Garbler(server)
    garbler.start()
    source = Followed(server, tmp_path / "source", "products", url=garbler.url)
    source.start()
    try:
        source.reading()
        for key in range(1, 11):
            garbler.left = 2
            server.run(
                f"INSERT INTO products VALUES ({key}, 'salt')",
                f"UPDATE products SET name = 'pepper' WHERE id = {key}",
            )
            await_that(lambda key=key: len(source.names()) >= 2 * key, PATIENCE_S)  # type: ignore[misc]
            assert not garbler.left
    finally:
        source.stop()
        garbler.close()
    assert source.names() == [f"products/{key}" for key in range(1, 11) for _ in range(2)]
    assert source.doubts() == ["attached"]
    assert "a value of the table public.products comes as 'x'" in caplog.text
    assert ", after 0/" in caplog.text
