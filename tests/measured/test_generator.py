"""The load generator against small servers: what it counts is what they sent."""

import time
from collections.abc import Iterator
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
from benchmarks.serving.generator import Generator, Population
from benchmarks.serving.servers import Server

CORES = {0}
CLIENTS, OBJECTS, EACH = 20, 10, 2
QUIET_S = 0.5
"""That a server needs, at most, to send what it has to."""


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    try:
        return Generator(tmp_path_factory.mktemp("generator"), CORES)
    except NotMeasured as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module", params=[*ALL, LAST_ENTRY], ids=lambda peer: peer.name)
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
    here = clients.fresh(QUIET_S)
    assert here.stale == 0
    assert here.messages >= CLIENTS * EACH
    assert here.bytes > here.messages * 16  # a version has as many digits

    clients.leave()
    clients.publish(3 * OBJECTS, OBJECTS)
    assert clients.fresh(0).stale == CLIENTS * EACH
    clients.connect()
    back = clients.fresh(QUIET_S)
    if peer in (CORE, PUBSUB):
        assert back.stale == CLIENTS * EACH
        assert back.messages == here.messages
    else:
        assert back.stale == 0
        one_by_one = not peer.latest and peer is not ROSKVA
        assert back.messages - here.messages >= CLIENTS * EACH * (3 if one_by_one else 1)


def test_deliveries_are_counted_while_it_measures(clients: Population) -> None:
    clients.connect()
    load = clients.measure(window=1.0, seconds=0.2, warmup=0.1)
    each = CLIENTS * EACH // OBJECTS
    assert load.published > 1
    assert (load.published - 1) * each <= load.deliveries <= (load.published + 1) * each
    assert 0 < load.p50_us <= load.p99_us <= load.worst_us
    assert load.mean_us > 0
    steady = clients.measure(rate=50, seconds=0.2, warmup=0)
    assert 5 <= steady.published <= 12


@pytest.mark.parametrize("killed", [ROSKVA, STREAMS], ids=lambda peer: peer.name)
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
            assert clients.fresh(5).stale == 0


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
