"""What a real PostgreSQL loses is noticed: at the start, after it was away, and at work."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serving.nodes import PATIENCE_S, await_that
from tests.sources.followed import Followed
from tests.sources.postgres_losses import LOSSES, set_up
from tests.sources.servers import Postgres, postgres_binaries

CHEAP = ("the slot is dropped", "a table is taken out and put back")


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with tempfile.TemporaryDirectory(prefix="roskva-postgres-") as place:
        server = Postgres(Path(place), postgres_binaries())
        try:
            server.make()
            yield server
        finally:
            server.kill()


@pytest.fixture
def source(server: Postgres, tmp_path: Path) -> Iterator[Followed]:
    """It has begun, and told of a change."""
    set_up(server)
    source = Followed(server, tmp_path / "source", "products", "orders")
    source.start()
    try:
        source.reading()
        assert source.doubt() == "attached"
        server.run("INSERT INTO products VALUES (2, 20)")
        source.told("products/2")
        yield source
    finally:
        source.stop()


def _goes_on(server: Postgres, source: Followed) -> None:
    """After the doubt, and there is no other."""
    server.run("INSERT INTO products (id, price) VALUES (3, 30)", "INSERT INTO orders VALUES (3)")
    source.told("products/3")
    source.told("orders/3")
    assert len(source.doubts()) == source.seen
    await_that(lambda: not source.why, PATIENCE_S, lambda: source.why)


def _provoked(server: Postgres, source: Followed, name: str, when: str) -> None:
    loss = LOSSES[name]
    if when == "at the start":
        source.stop()
        with source.away():
            loss.provoke(server)
        source.start()
    elif when == "after it was away":
        with source.away():
            loss.provoke(server)
    else:
        loss.provoke(server)
    assert source.doubt() == (loss.at_work if when == "at work" else loss.cause)
    _goes_on(server, source)


@pytest.mark.parametrize("name", CHEAP)
def test_a_loss_is_a_doubt(server: Postgres, source: Followed, name: str) -> None:
    _provoked(server, source, name, "after it was away")


@pytest.mark.verify
@pytest.mark.parametrize("when", ["at the start", "after it was away"])
@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_a_doubt(server: Postgres, source: Followed, name: str, when: str) -> None:
    _provoked(server, source, name, when)


@pytest.mark.verify
@pytest.mark.parametrize("name", [name for name, loss in LOSSES.items() if loss.at_work])
def test_a_loss_is_a_doubt_while_it_is_read(server: Postgres, source: Followed, name: str) -> None:
    _provoked(server, source, name, "at work")
