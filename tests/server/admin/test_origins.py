"""Which change a version came from: found while the log of changes has it."""

from pathlib import Path

import pytest

from roskva.disk import RealDisk
from roskva.feed.log import LogConfig
from roskva.feed.upkeep import Retention
from roskva.server.admin.origins import origin_of
from roskva.sources.change import NULL, Change, version_of
from roskva.sources.changes import DIRECTORY, ChangesLog, Slice
from roskva.sources.position import Doubt, PostgresPosition

ORDINAL = 16_500


def opened(data: Path, lineage: int = 7) -> ChangesLog:
    (data / DIRECTORY).mkdir(parents=True, exist_ok=True)
    config = LogConfig(segment_bytes=1, retention=Retention(max_bytes=1))
    directory = str(data / DIRECTORY / "shop-db")
    return ChangesLog.open(RealDisk(), directory, "shop", lineage=lineage, now_us=1, config=config)


def append(log: ChangesLog, transaction: str, key: str) -> None:
    change = Change("products", "update", (key,), NULL, NULL, 5_000_000)
    end = PostgresPosition("7", 1, int(transaction))
    log.append([Slice(transaction, [change], end)], 1)


@pytest.fixture
def log(tmp_path: Path) -> ChangesLog:
    log = opened(tmp_path)
    log.doubt(Doubt("attached", "the source begins"), ORDINAL, PostgresPosition("7", 1, 1), 1)
    append(log, "731", "17")
    append(log, "732", "18")
    return log


def test_a_version_names_its_transaction(log: ChangesLog, tmp_path: Path) -> None:
    found = origin_of(tmp_path, "shop-db", version_of(ORDINAL, 3))
    assert (found.transaction, found.object) == ("732", "shop/products/18")
    assert (found.op, found.at, found.why) == ("update", 5.0, "")
    assert (found.ordinal, found.offset) == (str(ORDINAL), "3")


def test_what_retention_has_dropped_is_said_to_be(log: ChangesLog, tmp_path: Path) -> None:
    for transaction in range(800, 810):
        append(log, str(transaction), "19")
    log.set_marker("direct", log.last)
    while log.tidy(10**12):
        pass
    found = origin_of(tmp_path, "shop-db", version_of(ORDINAL, 2))
    assert "older than what the log of changes keeps" in found.why


@pytest.mark.parametrize("version", [version_of(ORDINAL - 1, 3), version_of(ORDINAL, 99), 12])
def test_versions_of_another_log_are_not_taken_for_those_of_this_one(
    log: ChangesLog, tmp_path: Path, version: int
) -> None:
    assert "begun anew" in origin_of(tmp_path, "shop-db", version).why


def test_a_log_that_is_not_there_is_said(tmp_path: Path) -> None:
    assert origin_of(tmp_path, "shop-db", version_of(ORDINAL, 3)).why
