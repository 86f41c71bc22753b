"""A shop in a database, and clients that watch its rows over a node."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from tests.serving.nodes import PATIENCE_S, Node, await_that
from tests.sources.servers import MariaDb, Postgres, postgres_binaries

import roskva
from roskva.links.processes import read_report, running
from roskva.wire.admin import SourceNow

SETTINGS = """
[source.shop]
url = "{url}"
tables = ["products"]
payload = "row"
"""


@contextmanager
def served_shop(source: str = "shop") -> Iterator[Postgres]:
    """In a place that its user can reach, whoever runs the tests."""
    with tempfile.TemporaryDirectory(prefix="roskva-postgres-") as place:
        server = Postgres(Path(place), postgres_binaries())
        try:
            server.make()
            server.run(
                "CREATE TABLE products (id bigint PRIMARY KEY, price int)",
                f"CREATE PUBLICATION roskva_{source} FOR TABLE products",
            )
            yield server
        finally:
            server.kill()


@contextmanager
def served_mariadb_shop() -> Iterator[MariaDb]:
    with tempfile.TemporaryDirectory(prefix="roskva-mariadb-") as place:
        server = MariaDb(Path(place))
        try:
            server.make()
            server.run("CREATE TABLE products (id bigint PRIMARY KEY, price int)")
            yield server
        finally:
            server.kill()


def source(node: Node) -> SourceNow | None:
    """It is beside the sockets, which are elsewhere if the path to the data is a long one."""
    found = running(node.data)
    if found is None:
        return None
    return read_report(Path(found.processes[0].socket).with_name("source-shop.json"), SourceNow)


def reading(node: Node, but: int = 0) -> SourceNow:
    """In another process than that."""

    def found() -> SourceNow | None:
        now = source(node)
        return now if now and now.state == "reading" and now.pid != but else None

    return await_that(found, PATIENCE_S, lambda: f"{source(node)}\n{node.said()}")


class Watcher:
    def __init__(self, client: roskva.Client) -> None:
        self.client = client
        self.unknown = 0

    async def told(self) -> roskva.Notify:
        """The next version; how often it was unknown before is counted."""
        async with asyncio.timeout(PATIENCE_S):
            async for event in self.client:
                if isinstance(event, roskva.Notify):
                    return event
                self.unknown += isinstance(event, roskva.NotifyUnknown)
        raise AssertionError("the client has ended")


@asynccontextmanager
async def watcher(node: Node, *names: str) -> AsyncIterator[Watcher]:
    async with roskva.Client(node.url, app="shop", auto_ack=True) as client:
        for name in names:
            await client.register(name)
        yield Watcher(client)


def in_thread(call: Callable[[], object]) -> "asyncio.Future[object]":
    return asyncio.get_running_loop().run_in_executor(None, call)
