"""Records and markers: small files that are replaced as a whole."""

import pytest
from tests.feed.scenes import LINEAGE, SMALL, open_log, publish, tidy

from roskva.errors import BadConfig, Damaged
from roskva.feed.base import Marker
from roskva.feed.log import LogConfig
from roskva.feed.record import (
    Meta,
    read_markers,
    read_meta,
    read_record,
    write_marker,
    write_record,
)
from roskva.feed.segment import FORMAT
from roskva.feed.upkeep import Retention
from roskva.simulation.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    disk = SimulatedDisk()
    disk.make_directory("feed/markers")
    return disk


def test_a_record_is_a_line_that_people_can_read(disk: SimulatedDisk) -> None:
    write_marker(disk, "feed", "bridge", Marker(7, 42))
    line = disk.read("feed/markers/bridge", 0, 1000).decode()
    assert line.startswith('{"lineage":7,"offset":42} ')
    assert line.endswith("\n")


def test_every_flipped_bit_of_a_record_is_noticed(disk: SimulatedDisk) -> None:
    write_record(disk, "feed/meta", Meta(1, LINEAGE))
    for bit in range(disk.size("feed/meta") * 8):
        disk.flip("feed/meta", bit)
        with pytest.raises(Damaged):
            read_record(disk, "feed/meta", Meta)
        disk.flip("feed/meta", bit)
    assert read_meta(disk, "feed") == Meta(1, LINEAGE)


def test_a_truncated_record_is_damaged(disk: SimulatedDisk) -> None:
    disk.create("feed/meta").write_at(b'{"format":1', 0)
    with pytest.raises(Damaged):
        read_meta(disk, "feed")


def test_a_newer_format_is_refused_with_advice(disk: SimulatedDisk) -> None:
    write_record(disk, "feed/meta", Meta(FORMAT + 1, LINEAGE))
    with pytest.raises(BadConfig, match="update"):
        read_meta(disk, "feed")


def test_half_a_replacement_is_no_marker(disk: SimulatedDisk) -> None:
    disk.create("feed/markers/bridge.tmp")
    assert read_markers(disk, "feed") == ({}, [])


def test_a_damaged_marker_holds_everything_until_it_is_set_again(disk: SimulatedDisk) -> None:
    retention = Retention(max_age_us=None, max_bytes=0)
    log = open_log(disk, "feed", LogConfig(SMALL.segment_bytes, retention))
    for number in range(1, 11):
        publish(log, number)
    log.set_marker("bridge", Marker(LINEAGE, 10))
    disk.flip("feed/markers/bridge", 30)
    tidy(log)
    assert log.reader().start() == 1
    log.set_marker("bridge", Marker(LINEAGE, 10))
    tidy(log)
    assert log.reader().start() > 1
