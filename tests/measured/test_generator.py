"""The load generator against small servers: what it counts is what they sent."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from benchmarks.brokers.peers import (
    ALL,
    CORE,
    LAST_ENTRY,
    PUBSUB,
    ROSKVA,
    STREAMS,
    Peer,
    installed,
)
from benchmarks.result import NotMeasured
from benchmarks.serving.generator import Generator, Load, Population
from benchmarks.serving.servers import Server, cpu_s, tree
from tests.serving.nodes import await_that

PEERS = [peer for peer in (*ALL, LAST_ENTRY) if peer is not ROSKVA]
CORES = {0}
CLIENTS, OBJECTS, EACH = 20, 10, 2
PATIENCE_S = 30.0
QUIET_S = 0.5
"""After which a server that forgets has had time to send what it should not have."""


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    try:
        return Generator(tmp_path_factory.mktemp("generator"), CORES)
    except NotMeasured as missing:
        pytest.skip(str(missing))


@pytest.fixture(
    scope="module",
    params=[ROSKVA, *(pytest.param(peer, marks=pytest.mark.verify) for peer in PEERS)],
    ids=lambda peer: peer.name,
)
def peer(request: pytest.FixtureRequest) -> Peer:
    peer: Peer = request.param
    if not installed((peer,)):
        pytest.skip(f"{peer.program} is not installed")
    return peer


@pytest.fixture(scope="module")
def server(peer: Peer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with peer.start(tmp_path_factory.mktemp("server"), CORES) as server:
        yield server


@pytest.fixture
def clients(
    peer: Peer, server: Server, generator: Generator, request: pytest.FixtureRequest
) -> Iterator[Population]:
    app = "away" if "away" in request.function.__name__ else "here"
    with peer.clients(
        generator, server, subscribers=CLIENTS, objects=OBJECTS, each=EACH, app=app
    ) as clients:
        yield clients


def test_all_hear_of_every_update_and_those_who_were_away_of_the_last(
    peer: Peer, clients: Population
) -> None:
    clients.connect()
    clients.publish(2 * OBJECTS, 1)
    here = clients.fresh(PATIENCE_S)
    assert here.stale == 0
    assert here.messages >= CLIENTS * EACH
    assert here.bytes > here.messages * 16  # a version has as many digits

    clients.leave()
    clients.publish(3 * OBJECTS, OBJECTS)
    assert clients.fresh(0).stale == CLIENTS * EACH
    clients.connect()
    forgets = peer in (CORE, PUBSUB)
    back = clients.fresh(QUIET_S if forgets else PATIENCE_S)
    if forgets:
        assert back.stale == CLIENTS * EACH
        assert back.messages == here.messages
    else:
        assert back.stale == 0
        one_by_one = not peer.latest and peer is not ROSKVA
        assert back.messages - here.messages >= CLIENTS * EACH * (3 if one_by_one else 1)


def test_deliveries_are_counted_while_it_measures(clients: Population) -> None:
    clients.connect()
    load = until(2, lambda: clients.measure(window=1.0, seconds=0.2, warmup=0.1))
    each = CLIENTS * EACH // OBJECTS
    assert (load.published - 1) * each <= load.deliveries <= (load.published + 1) * each
    assert 0 < load.p50_us <= load.p99_us <= load.worst_us
    assert 0 < load.mean_us <= load.program_mean_us
    assert load.p50_us <= load.program_p50_us <= load.program_p99_us
    steady = until(5, lambda: clients.measure(rate=50, seconds=0.2, warmup=0))
    assert steady.published <= 50 * steady.seconds + 2


def until(published: int, measure: Callable[[], Load]) -> Load:
    """What is measured when the machine has the time for so many updates."""
    give_up_at = time.monotonic() + PATIENCE_S
    while (load := measure()).published < published:
        assert time.monotonic() < give_up_at
    return load


@pytest.mark.parametrize(
    "killed", [ROSKVA, pytest.param(STREAMS, marks=pytest.mark.verify)], ids=lambda peer: peer.name
)
def test_clients_come_back_to_a_server_that_was_killed(
    killed: Peer, generator: Generator, tmp_path: Path
) -> None:
    if not installed((killed,)):
        pytest.skip(f"{killed.program} is not installed")
    with (
        killed.start(tmp_path, CORES) as server,
        killed.clients(
            generator,
            server,
            subscribers=CLIENTS,
            objects=OBJECTS,
            each=EACH,
            app="test",
            reconnect=True,
        ) as clients,
    ):
        clients.connect()
        clients.publish(OBJECTS, OBJECTS)
        clients.say("until-lost 100")
        killed_at = time.monotonic()
        server.kill()
        with killed.start(tmp_path, CORES, again=server):
            assert clients.hear().ended >= killed_at
            clients.publish(OBJECTS, OBJECTS)
            clients.connect()
            assert clients.fresh(PATIENCE_S).stale == 0


def test_what_ended_children_used_is_counted() -> None:
    child = "import time; sum(range(10**7)); print(time.process_time(), flush=True)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); input()"
    with subprocess.Popen(
        [sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        of_child = float(process.stdout.readline())
        await_that(lambda: len(tree(process.pid)) == 1, PATIENCE_S)
        assert cpu_s(process.pid) > of_child - 0.02  # counted in ticks
        process.stdin.close()


def test_a_generator_that_gives_up_says_so(
    generator: Generator, capfd: pytest.CaptureFixture[str]
) -> None:
    nobody = Server("nobody", 0, mqtt_port=1)
    with (
        generator.population(nobody, subscribers=1) as clients,
        pytest.raises(RuntimeError, match="gave up"),
    ):
        clients.connect()
    assert "nobody listens there" in capfd.readouterr().err
