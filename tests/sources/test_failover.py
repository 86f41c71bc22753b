"""Another server in place of the one that was read: promoted, put back, or a stranger."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests.serving.nodes import PATIENCE_S, await_that
from tests.sources.followed import Followed
from tests.sources.postgres_losses import set_up
from tests.sources.servers import Postgres, newer_binaries, postgres_binaries

pytestmark = pytest.mark.verify
Make = Callable[[], Path]

_FOLLOWS = """
primary_conninfo = 'host=127.0.0.1 port={port} user=postgres dbname=shop'
primary_slot_name = 'standby'
hot_standby_feedback = on
"""
_KEEPS_SLOTS = "sync_replication_slots = on\n"


@pytest.fixture
def place() -> Iterator[Make]:
    with ExitStack() as places:
        yield lambda: Path(places.enter_context(TemporaryDirectory(prefix="roskva-postgres-")))


@pytest.fixture
def servers() -> Iterator[list[Postgres]]:
    """Killed at the end."""
    started: list[Postgres] = []
    yield started
    for server in started:
        server.kill()


def _primary(place: Make, servers: list[Postgres], binaries: Path) -> Postgres:
    server = Postgres(place(), binaries)
    servers.append(server)
    server.make()
    set_up(server)
    return server


def _standby(
    primary: Postgres, place: Make, servers: list[Postgres], settings: str = ""
) -> Postgres:
    """Following; the primary is stopped for a moment."""
    primary.administer(
        "SELECT pg_create_physical_replication_slot('standby') "
        "WHERE NOT EXISTS (SELECT 1 FROM pg_replication_slots WHERE slot_name = 'standby')"
    )
    primary.stop()
    follows = _FOLLOWS.format(port=primary.port) + settings
    standby = primary.copy(place(), follows, standby=True)
    servers.append(standby)
    primary.start()
    standby.start()
    return standby


def _follow(primary: Postgres, tmp_path: Path) -> Followed:
    source = Followed(primary, tmp_path / "source", "products", "orders")
    source.start()
    source.reading()
    assert source.doubt() == "attached"
    return source


def _go_on_with(source: Followed, server: Postgres) -> None:
    """As if the address now led there."""
    source.stop()
    source.server = server
    source.start()


def _caught_up(primary: Postgres, standby: Postgres) -> None:
    [(end,)] = primary.administer("SELECT pg_current_wal_flush_lsn()::text")
    replayed = f"SELECT pg_last_wal_replay_lsn() >= '{end}'"
    await_that(lambda: standby.administer(replayed)[0][0], PATIENCE_S)


def test_a_promoted_standby_of_15_has_no_slots_and_that_is_a_doubt(
    place: Make, servers: list[Postgres], tmp_path: Path
) -> None:
    primary = _primary(place, servers, postgres_binaries())
    standby = _standby(primary, place, servers)
    source = _follow(primary, tmp_path)
    try:
        primary.run("INSERT INTO products VALUES (2, 20)")
        source.told("products/2")
        primary.stop()

        _go_on_with(source, standby)
        await_that(lambda: "is a standby" in source.why, PATIENCE_S, lambda: source.why)
        standby.promote()
        assert source.doubt() == "slot missing"
        standby.run("INSERT INTO products VALUES (3, 30)")
        source.told("products/3")

        # And back: the old one does not know what the new one has told us.
        primary.start()
        _go_on_with(source, primary)
        assert source.doubt() == "fork"
        primary.run("INSERT INTO products VALUES (4, 40)")
        source.told("products/4")
    finally:
        source.stop()


def test_a_standby_that_keeps_slots_is_gone_over_to_without_a_doubt(
    place: Make, servers: list[Postgres], tmp_path: Path
) -> None:
    primary = _primary(place, servers, newer_binaries())
    standby = _standby(primary, place, servers, _KEEPS_SLOTS)
    source = _follow(primary, tmp_path)
    try:
        primary.run("INSERT INTO products VALUES (2, 20)")
        source.told("products/2")
        _await_slot(standby)
        primary.run("INSERT INTO products VALUES (3, 30)")
        source.told("products/3")
        source.stop()
        primary.run("INSERT INTO products VALUES (4, 40)")
        primary.stop()
        standby.promote()
        standby.run("INSERT INTO products VALUES (5, 50)")
        _go_on_with(source, standby)
        source.told("products/5")
        assert source.names() == [f"products/{key}" for key in (2, 3, 4, 5)]
        assert source.doubts() == ["attached"]
    finally:
        source.stop()


def test_a_standby_that_was_behind_us_is_a_doubt_although_it_keeps_slots(
    place: Make, servers: list[Postgres], tmp_path: Path
) -> None:
    primary = _primary(place, servers, newer_binaries())
    standby = _standby(primary, place, servers, _KEEPS_SLOTS)
    source = _follow(primary, tmp_path)
    try:
        primary.run("INSERT INTO products VALUES (2, 20)")
        source.told("products/2")
        _await_slot(standby)
        standby.kill()
        primary.run("INSERT INTO products VALUES (3, 30)")
        told = source.told("products/3")
        primary.kill()
        standby.start()
        standby.promote()
        _go_on_with(source, standby)
        assert source.doubt() == "fork"
        standby.run("INSERT INTO products VALUES (3, 31)")
        again = source.told("products/3")
        assert again.version > told.version
    finally:
        source.stop()


def _await_slot(standby: Postgres) -> None:
    """Kept there for good: at first it may be ahead of what the standby has."""
    kept = (
        "SELECT 1 FROM pg_replication_slots "
        "WHERE slot_name = 'roskva_shop' AND synced AND NOT temporary"
    )
    await_that(lambda: standby.administer(kept), 2 * PATIENCE_S)


def test_another_cluster_is_refused_until_it_is_adopted(
    place: Make, servers: list[Postgres], tmp_path: Path
) -> None:
    ours, other = (_primary(place, servers, postgres_binaries()) for _ in range(2))
    source = _follow(ours, tmp_path)
    try:
        ours.run("INSERT INTO products VALUES (2, 20)")
        source.told("products/2")
        _go_on_with(source, other)
        await_that(lambda: "--adopt" in source.why, PATIENCE_S, lambda: source.why)
        other.run("INSERT INTO products VALUES (3, 30)")
        assert source.names() == ["products/2"]
        source.stop()
        source.start(adopt=True)
        assert source.doubt() == "adopted"
        other.run("INSERT INTO products VALUES (4, 40)")
        source.told("products/4")
    finally:
        source.stop()


def test_a_database_that_is_as_it_was_before_is_a_doubt(
    place: Make, servers: list[Postgres], tmp_path: Path
) -> None:
    """Put back from an archive, on a timeline of its own; and its files put back, on the same."""
    server = _primary(place, servers, postgres_binaries())
    source = _follow(server, tmp_path)
    try:
        server.stop()
        archive = server.copy(place(), "restore_command = 'false'\n")
        files = server.copy(place())
        servers += [archive, files]
        server.start()
        for key in range(2, 9):
            server.run(f"INSERT INTO products VALUES ({key}, 20)")
        source.told("products/8")
        server.kill()

        files.start()
        _go_on_with(source, files)
        assert source.doubt() == "fork"
        files.run("INSERT INTO products VALUES (2, 21)")
        source.told("products/2")
        files.kill()

        (archive.data / "recovery.signal").touch()
        archive.start()
        await_that(lambda: not archive.administer("SELECT pg_is_in_recovery()")[0][0], PATIENCE_S)
        _go_on_with(source, archive)
        assert source.doubt() == "fork"
        archive.run("INSERT INTO products VALUES (2, 22)")
        source.told("products/2")
    finally:
        source.stop()


def test_a_log_of_changes_that_is_gone_or_old_is_a_doubt(
    place: Make, servers: list[Postgres], tmp_path: Path
) -> None:
    server = _primary(place, servers, postgres_binaries())
    source = _follow(server, tmp_path)
    try:
        server.run("INSERT INTO products VALUES (2, 20)")
        source.told("products/2")
        source.stop()
        shutil.copytree(source.place, tmp_path / "old")
        source.start()
        server.run("INSERT INTO products VALUES (3, 30)")
        told = source.told("products/3")
        source.stop()

        shutil.rmtree(source.place)
        shutil.copytree(tmp_path / "old", source.place)
        source.start()
        assert source.doubt() == "slot ahead"
        server.run("UPDATE products SET price = 31 WHERE id = 3")
        again = source.told("products/3")
        assert again.version > told.version

        source.stop()
        shutil.rmtree(source.place)
        source.seen = 0
        source.start()
        assert source.doubt() == "attached"
        server.run("UPDATE products SET price = 32 WHERE id = 3")
        assert source.told("products/3").version > again.version
    finally:
        source.stop()


def test_a_server_that_does_not_log_changes_any_more_is_a_doubt_when_it_does_again(
    place: Make, servers: list[Postgres], tmp_path: Path
) -> None:
    server = _primary(place, servers, postgres_binaries())
    source = _follow(server, tmp_path)
    try:
        with source.away():
            server.administer("SELECT pg_drop_replication_slot('roskva_shop')")
        server.stop()
        server.configure("wal_level = replica")
        server.start()
        await_that(lambda: "wal_level" in source.why, PATIENCE_S, lambda: source.why)
        server.run("INSERT INTO products VALUES (2, 20)")
        server.stop()
        server.configure("wal_level = logical")
        server.start()
        assert source.doubt() == "slot missing"
        server.run("INSERT INTO products VALUES (3, 30)")
        source.told("products/3")
    finally:
        source.stop()
