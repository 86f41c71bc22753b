"""How far so many updates reach, whatever lies between them."""

from tests.feed.scenes import open_log, publish

from roskva.feed.base import Batch, Marker
from roskva.feed.segment import RESERVED
from roskva.simulation.disk import SimulatedDisk


def test_updates_are_counted_and_voids_are_not() -> None:
    disk = SimulatedDisk()
    publish(open_log(disk, "feed"), 1, 2, 3)
    log = open_log(disk, "feed", takeover=True)  # the other one never said goodbye
    assert publish(log, 4, 5) > RESERVED
    reader = log.reader()
    end = reader.end()
    assert reader.count(0) == 5
    assert reader.count(2) == 3
    assert reader.count(end) == 0
    assert [reader.advance(0, rows) for rows in (1, 3, 4, 5, 6)] == [1, 3, end - 1, end, end]
    assert reader.advance(end, 1) == end


def test_wherever_it_ends_reading_goes_on_without_a_hole() -> None:
    disk = SimulatedDisk()
    publish(open_log(disk, "feed"), 1, 2, 3)
    log = open_log(disk, "feed", takeover=True)
    publish(log, *range(4, 20))
    reader = log.reader()
    after = 0
    while after < reader.end():
        answer = reader.read(Marker(reader.lineage, after), max_rows=2)
        assert isinstance(answer, Batch)
        assert answer.rows.num_rows == 2 or answer.last == reader.advance(after, 1)
        after = reader.advance(after, answer.rows.num_rows)
        assert after == answer.last
