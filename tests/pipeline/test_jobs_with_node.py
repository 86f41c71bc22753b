"""The jobs and a node that is running: what is seen of it, and what it does for them."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from pyspark.sql import SparkSession
from tests.cli.real_node import RealNode
from tests.pipeline.test_state import read

from roskva import Notify, NotifyUnknown
from roskva.blocking import Client, publish
from roskva.cli.job import state_of
from roskva.core.expiry import Keep
from roskva.errors import Unavailable
from roskva.pipeline import node
from roskva.pipeline.bridge import SparkBridge
from roskva.pipeline.history import TraceReader, traces
from roskva.pipeline.jobs.audit import Audit, Look, audit
from roskva.pipeline.jobs.gc import gc
from roskva.pipeline.jobs.latency import latency

GRACE_S = 0.5
"""Acks are written down within two seconds; where that matters, a test waits for them."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RealNode, Path]]:
    data = tmp_path_factory.mktemp("node") / "data"
    # Each shard is several tasks of Spark, in every audit.
    with RealNode(data, "--shards", "2") as running:
        yield running, data


def audited(spark: SparkSession, data: Path, *, repair: bool = False) -> Audit:
    look = Look(partial(state_of, data), partial(node.online, data), partial(node.recheck, data))
    return audit(spark, look, grace_s=GRACE_S, repair=repair)


def told(client: Client) -> Notify | NotifyUnknown:
    """By then its registration is in its row."""
    return next(event for event in client if isinstance(event, Notify | NotifyUnknown))


def notified(client: Client) -> Notify:
    return next(event for event in client if isinstance(event, Notify))


def acked(data: Path, key: str) -> list[object]:
    """By each registration for it, as far as that is written down."""
    with state_of(data) as state:
        registrations = read(state, "registrations")
    return [version for *_, name, version, _ in registrations if name == key]


def until(true: Callable[[], bool], within_s: float = 180.0) -> None:
    give_up_at = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < give_up_at
        time.sleep(0.05)


def test_a_client_that_is_online_and_does_not_ack_is_stale_until_it_does(
    spark: SparkSession, served: tuple[RealNode, Path]
) -> None:
    running, data = served
    publish(running.url, "app/x", 1)
    address = running.url.replace("http", "ws")
    with Client(address, app="app") as quick, Client(address, app="app") as slow:
        for client in (quick, slow):
            client.register("x")
        quick.ack(notified(quick))
        event = notified(slow)
        until(lambda: 1 in acked(data, "app/x"))
        until(lambda: len(node.online(data)) == 2)
        found = audited(spark, data, repair=True)
        assert (found.states["stale"], found.states["fresh"], found.repaired) == (1, 1, 0)
        assert found.stale[0][0] == "app/x"
        slow.ack(event)
        until(lambda: acked(data, "app/x") == [1, 1])
        assert audited(spark, data).states["stale"] == 0
    until(lambda: not node.online(data))
    publish(running.url, "app/x", 2)
    found = audited(spark, data)
    assert (found.states["stale"], found.states["pending"]) == (0, 2)
    assert [(worst.object, worst.due) for worst in found.worst] == [("app/x", 2)]
    assert not list(data.glob("shard-*/checkpoints/*"))


def test_a_notification_that_was_lost_is_sent_again_by_repair(
    spark: SparkSession, served: tuple[RealNode, Path]
) -> None:
    running, data = served
    publish(running.url, "repair/x", 7)
    repairing = threading.Event()
    lost: list[Notify] = []
    taken: list[Notify] = []
    with Client(running.url.replace("http", "ws"), app="repair") as client:

        def lose_all_until_the_repair() -> None:
            for event in client:
                if isinstance(event, Notify):
                    if repairing.is_set():
                        client.ack(event)
                    (taken if repairing.is_set() else lost).append(event)

        reading = threading.Thread(target=lose_all_until_the_repair)
        reading.start()
        client.register("x")
        until(lambda: bool(lost))

        def recheck() -> int:
            repairing.set()
            sessions = node.recheck(data)
            until(lambda: acked(data, "repair/x") == [7], 30.0)
            return sessions

        look = Look(partial(state_of, data), partial(node.online, data), recheck)
        found = audit(spark, look, grace_s=GRACE_S)
        assert found.states["stale"] == 1
        assert found.stale[0][0] == "repair/x"
        # The node tells it again by itself ten seconds after the client came, and then not for a
        # minute: what comes at once after the recheck comes by it.
        until(lambda: len(lost) > 1)
        found = audit(spark, look, grace_s=GRACE_S, repair=True)
        assert (found.states["stale"], found.repaired) == (0, 1)
    reading.join()
    assert taken[0].version == 7


def test_gc_forgets_who_is_away_and_keeps_who_is_here(
    spark: SparkSession, served: tuple[RealNode, Path]
) -> None:
    running, data = served
    address = running.url.replace("http", "ws")
    with Client(address, app="gc") as gone:
        gone.register("x")
        told(gone)
        until(lambda: len(node.online(data)) == 1)
    with Client(address, app="gc") as here:
        here.register("x")
        told(here)
        until(lambda: len(node.online(data)) == 1)
        soon: dict[str, Any] = {
            "keep_of": lambda app: Keep(0.0),
            "now": datetime.now(UTC) + timedelta(days=1),
        }
        with state_of(data) as state:
            dry = gc(spark, state, online=[], forget=None, **soon)
            found = gc(spark, state, online=[], forget=partial(node.forget, data), **soon)
        assert dry.away == found.away >= 2
        assert found.forgotten == found.away - 1, "who is online is kept, whoever asks"
        with state_of(data) as state:
            left = state.table(spark, "clients").collect()
        assert [bytes(row.client) for row in left] == list(node.online(data))


def test_without_a_node_nobody_is_online_and_nothing_is_forgotten(tmp_path: Path) -> None:
    assert node.online(tmp_path) == {}
    assert node.recheck(tmp_path) == 0
    with pytest.raises(Unavailable, match="no node serves"):
        node.forget(tmp_path, {0: []})


def sampling(directory: Path, *flags: str) -> RealNode:
    settings = directory / "roskva.toml"
    settings.write_text("[node]\ntrace_one_in = 1\n")
    running = RealNode(directory / "data")
    running._command += ["--config", str(settings), *flags]
    return running


def noted(data: Path) -> list[dict[str, Any]]:
    """In the order of time, as far as it is written down."""
    reader = TraceReader(data)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted((row for b in batches for row in b.to_pylist()), key=lambda row: row["at"])


def await_acks(data: Path, count: int) -> None:
    """A client that is left gives up what it could not send within a second."""
    until(lambda: [row["stage"] for row in noted(data)].count("acked") == count)


def shards(running: RealNode) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = httpx.get(f"{running.url}/v1/status").json()["shards"]
    return found


def assert_by_the_bridge_alone(running: RealNode, updates: int) -> None:
    ways = sum((Counter(shard["ways"]) for shard in shards(running)), Counter[str]())
    assert +ways == {"bridge": updates}


def test_without_its_bridge_a_shard_reads_by_itself_and_says_so(
    spark: SparkSession, tmp_path: Path
) -> None:
    with RealNode(tmp_path / "data", "--no-fast-path", "--shards", "1") as running:
        bridge = SparkBridge(spark, tmp_path / "data")
        query = bridge.start(tmp_path / "checkpoint")
        try:
            until(lambda: query.lastProgress is not None)
            with Client(running.url.replace("http", "ws"), app="app") as client:
                client.register("x")
                told(client)
                publish(running.url, "app/x", 1)
                client.ack(notified(client))
                assert_by_the_bridge_alone(running, 1)
                query.stop()
                bridge.close()
                heard_at = time.monotonic()
                publish(running.url, "app/x", 2)
                while notified(client).version != 2:
                    pass
                assert time.monotonic() - heard_at > 5.0, "a bridge that was just heard is left it"
        finally:
            query.stop()
            bridge.close()
        with pytest.raises(AssertionError):
            assert_by_the_bridge_alone(running, 2)
        [shard] = shards(running)
        assert shard["ways"] == {"fast": 0, "bridge": 1, "own": 1, "start": 0}
        assert shard["reads_alone"]


def test_what_a_bridge_brings_is_noted_and_its_time_is_that_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    with sampling(tmp_path, "--no-fast-path") as running:
        address = running.url.replace("http", "ws")
        bridge = SparkBridge(spark, tmp_path / "data")
        query = bridge.start(tmp_path / "checkpoint")
        try:
            until(lambda: query.lastProgress is not None)
            with Client(address, app="app") as client:
                for name in "vwxyz":
                    client.register(name)
                    told(client)
                # Each an object of its own: the ack of a version that is not the latest any more
                # would not be noted.
                for name in "vwxyz":
                    publish(running.url, f"app/{name}", 1)
                    event = notified(client)
                    assert event.name == name
                    client.ack(event)
                await_acks(tmp_path / "data", 5)
                assert_by_the_bridge_alone(running, 5)
        finally:
            query.stop()
            bridge.close()
    assert bridge.delivered >= 5
    found = latency(traces(spark, tmp_path / "data"))
    assert found.updates == 5
    stages = [stage.stage for stage in found.stages]
    assert stages == ["appended", "bridged", "matched", "sent", "acked"]
    # Nothing else brought them, so the way through Spark is most of the time until they were sent.
    fastest = dict(zip(stages, found.groups["fastest half"], strict=False))
    assert fastest["bridged"] > 0.5 * sum(fastest.values())


def test_a_node_that_samples_notes_every_stage_of_an_update(tmp_path: Path) -> None:
    with sampling(tmp_path) as running:
        address = running.url.replace("http", "ws")
        with Client(address, app="app") as client:
            client.register("x")
            told(client)
            publish(running.url, "app/x", 7)
            client.ack(notified(client))
            await_acks(tmp_path / "data", 1)
    found = noted(tmp_path / "data")
    assert {(row["object"], row["version"]) for row in found} == {("app/x", 7)}
    assert [row["stage"] for row in found] == [
        "published",
        "appended",
        "matched",
        "sent",
        "acked",
    ]
