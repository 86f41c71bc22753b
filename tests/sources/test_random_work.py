"""A database at work, under a node, with everything killed in turns.

Nobody reads less than was told, and in the end every client holds what the database holds.
`ROSKVA_WORK_MINUTES` says for how long: 1, if it does not. `ROSKVA_WORK_KILLS` says how often: 4.
"""

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from tests.serving.nodes import START_S, Node, await_that
from tests.sources.random_work import (
    FLOW,
    ITEMS,
    KINDS,
    NAMES,
    Database,
    Patient,
    row_of,
    set_up,
    working,
)
from tests.sources.servers import MariaDb, Postgres, postgres_binaries
from tests.sources.shop import in_thread, reading, source

import roskva
from roskva.pipeline.machine import what_is_missing

pytestmark = pytest.mark.verify
MINUTES: Final = float(os.environ.get("ROSKVA_WORK_MINUTES", "1"))
KILLS: Final = int(os.environ.get("ROSKVA_WORK_KILLS", "4"))
CLIENTS: Final = 3
CONVERGED_WITHIN_S: Final = 120.0
SETTINGS: Final = """
[source.shop]
url = "{url}"
tables = ["items", "stock", "bulk"]
payload = "row"
"""


FLOWS: Final = f"""
[ingest.flow]
format = "roskva-changes"
path = "shop"
table = "items"
app = "'shop'"
name = "concat('{FLOW}/', key[0])"
"""


@pytest.fixture(params=[*KINDS, "postgresql and Spark"])
def spark(request: pytest.FixtureRequest) -> bool:
    if "Spark" in request.param and "CI" not in os.environ and (missing := what_is_missing()):
        pytest.skip(missing)
    return "Spark" in request.param


@pytest.fixture
def server(request: pytest.FixtureRequest, spark: bool) -> Iterator[tuple[str, Database]]:
    with tempfile.TemporaryDirectory(prefix="roskva-work-") as place:
        name: str = request.node.callspec.params["spark"].split()[0]
        server: Any = (
            Postgres(Path(place), postgres_binaries())
            if name == "postgresql"
            else MariaDb(Path(place))
        )
        try:
            server.make()
            set_up(server, KINDS[name])
            yield name, server
        finally:
            server.kill()


@pytest.fixture
def node(tmp_path: Path, server: tuple[str, Database], spark: bool) -> Iterator[Node]:
    settings = tmp_path / "roskva.toml"
    settings.write_text(SETTINGS.format(url=server[1].url) + FLOWS * spark)
    node = Node(tmp_path / "data", "--config", str(settings), pipeline=spark)
    node.start()
    try:
        yield node
    finally:
        node.end()


class Reader:
    """A client that reads whatever it is told of, and keeps what it read."""

    def __init__(self, server: Database, names: list[str]) -> None:
        self.held: dict[str, int | None] = dict.fromkeys(names)
        self.patient = Patient(server)
        self.reads = self.unknown = 0
        self.stale: list[str] = []

    async def listen(self, client: roskva.Client) -> None:
        async for event in client:
            if isinstance(event, roskva.Notify):
                await in_thread(lambda event=event: self._read(event.name, event.payload))  # type: ignore[misc]
            elif isinstance(event, roskva.NotifyUnknown):
                self.unknown += 1
                await in_thread(lambda event=event: self._read(event.name, None))  # type: ignore[misc]

    def _read(self, name: str, payload: bytes | None) -> None:
        found = self.patient.ask(*row_of(name))
        now = int(found[0][0]) if found else None
        told = None if payload is None else int(msgspec.json.decode(payload)["v"])
        if now is not None and told is not None and now < told:
            self.stale.append(f"{name}: told {told}, read {now}")
        self.held[name] = now
        self.reads += 1


class Killer:
    """Everybody in turns, with −9."""

    def __init__(self, node: Node, server: Database, spark: bool) -> None:
        self.node, self.server = node, server
        self.turns: list[Callable[[], None]] = [self._reader, self._database, self._node]
        self.killed: dict[str, int] = {"source": 0, "database": 0, "node": 0}
        if spark:
            self.turns.append(self._spark)
            self.killed["Spark"] = 0

    def kill(self, turn: int) -> None:
        self.turns[turn % len(self.turns)]()

    def _reader(self) -> None:
        now = source(self.node)
        if now is not None:
            with suppress(ProcessLookupError):
                os.kill(now.pid, signal.SIGKILL)
                self.killed["source"] += 1

    def _database(self) -> None:
        self.server.kill()
        self.server.start()
        self.killed["database"] += 1

    def _spark(self) -> None:
        """Its driver, and all of it ends with that."""
        pid = int(await_that(lambda: self.node.status()["pipeline"].get("pid"), START_S))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.killed["Spark"] += 1

    def _node(self) -> None:
        self.node.kill()
        self.node.start()
        self.killed["node"] += 1


async def _worked_on(name: str, server: Database, node: Node, spark: bool) -> None:
    names = [*NAMES, *(f"{FLOW}/{id}" for id in range(ITEMS) if spark)]
    readers = [Reader(server, names) for _ in range(CLIENTS)]
    killer = Killer(node, server, spark)
    async with AsyncExitStack() as clients, asyncio.TaskGroup() as tasks:
        listening = []
        for reader in readers:
            client = roskva.Client(node.url, app="shop", auto_ack=True)
            await clients.enter_async_context(client)
            listening.append(tasks.create_task(reader.listen(client)))
            for object in names:
                await client.register(object)
        with working(server, KINDS[name]) as workers:
            for turn in range(KILLS):
                await asyncio.sleep(60 * MINUTES / KILLS)
                await in_thread(lambda turn=turn: killer.kill(turn))  # type: ignore[misc]
            await in_thread(lambda: reading(node))
        truth = await in_thread(lambda: _truth(server, names))
        await in_thread(
            lambda: await_that(
                lambda: all(reader.held == truth for reader in readers),
                CONVERGED_WITHIN_S,
                lambda: _differences(readers, truth) + node.said()[-4000:],
            )
        )
        for task in listening:
            task.cancel()
    said = [reader.stale for reader in readers]
    assert not any(said), said
    assert sum(killer.killed.values()) >= KILLS
    sys.stderr.write(
        f"\n{name}: {MINUTES:g} minutes, {[worker.done for worker in workers]} done and "
        f"{[worker.refused for worker in workers]} refused, killed {killer.killed}, "
        f"{sum(reader.reads for reader in readers):,} reads, "
        f"{[reader.unknown for reader in readers]} unknown, 0 stale\n"
    )


def _truth(server: Database, names: list[str]) -> dict[str, int | None]:
    patient = Patient(server)
    found = {name: patient.ask(*row_of(name)) for name in names}
    patient.drop()
    return {name: int(rows[0][0]) if rows else None for name, rows in found.items()}


def _differences(readers: list[Reader], truth: object) -> str:
    assert isinstance(truth, dict)
    return "\n".join(
        f"{name}: holds {reader.held[name]}, is {truth[name]}"
        for reader in readers
        for name in truth
        if reader.held[name] != truth[name]
    )


def test_every_client_ends_with_what_the_database_holds(
    server: tuple[str, Database], node: Node, spark: bool
) -> None:
    reading(node)
    asyncio.run(_worked_on(*server, node, spark))
