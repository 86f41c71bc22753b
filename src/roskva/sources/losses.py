"""What a flow beside the source's process has lost, and how the app is then reset.

    DATA/sources/NAME/losses/FLOW     a loss, for as long as nothing makes up for it

A flow on Spark may find that changes are gone before it has read them: retention had a last resort,
or the disk is damaged. What it should have published is lost, so the app has to be reset, and only
the process of the source does that. So the flow leaves a note, and waits until the log has a doubt
that is younger than the note: any will do, whatever its cause. Then it takes the note back and goes
on behind what was lost. Whoever is killed in between begins again with the note; the worst that
comes of it is another doubt.

A note is written by its flow alone, the log by the process of the source alone.
"""

from typing import Final

import msgspec

from roskva.disk import Disk
from roskva.errors import Damaged
from roskva.feed.base import Batch, Marker
from roskva.feed.reader import LogReader
from roskva.feed.record import read_record, write_record

LOSSES: Final = "losses"


class FlowLoss(msgspec.Struct, frozen=True):
    lineage: int
    """Of the log of changes."""
    end: int
    """Where that log ended when the loss was noted: a doubt beyond makes up for it."""
    sentence: str


def note_loss(disk: Disk, source: str, flow: str, loss: FlowLoss) -> None:
    """`source`: its directory."""
    disk.make_directory(f"{source}/{LOSSES}")
    write_record(disk, f"{source}/{LOSSES}/{flow}", loss)


def take_back(disk: Disk, source: str, flow: str) -> None:
    if disk.exists(f"{source}/{LOSSES}/{flow}"):
        disk.remove(f"{source}/{LOSSES}/{flow}")


def losses(disk: Disk, source: str) -> list[FlowLoss]:
    """Those that are noted now."""
    directory = f"{source}/{LOSSES}"
    names = disk.list(directory) if disk.exists(directory) else []
    found = [_read(disk, f"{directory}/{name}") for name in names if not name.endswith(".tmp")]
    return [loss for loss in found if loss is not None]


def made_up_for(reader: LogReader, loss: FlowLoss) -> bool:
    """Whether the log has a doubt that is younger."""
    if reader.lineage != loss.lineage:
        return True  # it was lost as a whole, and what follows begins with a doubt
    after = loss.end
    while isinstance(read := reader.read(Marker(loss.lineage, after)), Batch):
        if any(read.rows["reset"].to_pylist()):
            return True
        after = read.last
    return False


def _read(disk: Disk, path: str) -> FlowLoss | None:
    try:
        return read_record(disk, path, FlowLoss)
    except (FileNotFoundError, Damaged):
        return None  # it was just taken back, or will be written again
