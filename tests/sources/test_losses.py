"""What a flow beside the source has lost, until a doubt makes up for it."""

from tests.sources.test_changes import at, attached, change

from roskva.feed.reader import LogReader
from roskva.simulation.disk import SimulatedDisk
from roskva.sources.changes import Slice
from roskva.sources.losses import FlowLoss, losses, made_up_for, note_loss, take_back
from roskva.sources.position import Doubt


def test_only_a_doubt_that_is_younger_than_a_loss_makes_up_for_it() -> None:
    disk = SimulatedDisk()
    log = attached(disk)
    reader = LogReader(disk, "shop/changes")
    loss = FlowLoss(log.lineage, log.last, "2 to 3 are gone")
    note_loss(disk, "shop", "cheap", loss)
    log.append([Slice("731", [change("17")], at(20))], 0)
    assert losses(disk, "shop") == [loss]
    assert not made_up_for(reader, loss)
    log.doubt(Doubt("log lost", loss.sentence), 6, at(20), 0)
    assert made_up_for(reader, loss)
    assert not made_up_for(reader, FlowLoss(log.lineage, log.last, "4 to 5 are gone"))
    take_back(disk, "shop", "cheap")
    take_back(disk, "shop", "cheap")
    assert losses(disk, "shop") == []


def test_a_log_that_was_lost_as_a_whole_begins_with_a_doubt_anyway() -> None:
    disk = SimulatedDisk()
    attached(disk)
    assert made_up_for(LogReader(disk, "shop/changes"), FlowLoss(99, 10**6, "2 to 3 are gone"))


def test_a_note_that_a_crash_cut_off_is_written_again() -> None:
    disk = SimulatedDisk()
    attached(disk)
    assert losses(disk, "shop") == []
    disk.make_directory("shop/losses")
    file = disk.create("shop/losses/cheap")
    file.write_at(b'{"lineage":1,"end":', 0)
    file.close()
    assert losses(disk, "shop") == []
