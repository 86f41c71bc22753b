"""What storage does in an exploration: writes by the rules of the store, reads, and the feed.

Operations are carried out one after the other. A write and its answer are one step; a crash may
come after the write and before the answer. A load is carried out, and answered some time later.
"""

from roskva.core.effects import (
    DropClient,
    DropRegistered,
    PutClient,
    PutObject,
    PutRegistered,
    PutShard,
    Write,
)
from roskva.simulation.exploration.machines import Frames, Words
from roskva.simulation.exploration.state import Disk, RowState, index_of


def carry_out(disk: Disk, write: Write, frames: Frames) -> None:
    match write:
        case PutObject(key=key, row=row):
            index = index_of(key)
            if row.version >= frames.messages[disk.objects[index]].version:
                disk.objects[index] = frames.thing(row)
        case PutShard():
            disk.epoch, disk.lineage, disk.applied = write.epoch, write.lineage, write.applied
        case PutClient(client=client, session=session, application=application):
            head = _row(disk, client)
            head.session = max(head.session, session)
            head.created = head.created or application is not None
        case PutRegistered(client=client, session=session, registered=cell):
            _put(_row(disk, client), (index_of(cell.object), session, cell.acked, cell.epoch))
        case DropRegistered(client=client, key=key):
            head = _row(disk, client)
            head.cells = [cell for cell in head.cells if cell[0] != index_of(key)]
        case DropClient(client=client):
            disk.rows = [row for row in disk.rows if row.client != client]


def _row(disk: Disk, client: bytes) -> RowState:
    for row in disk.rows:
        if row.client == client:
            return row
    row = RowState(client)
    disk.rows = sorted([*disk.rows, row], key=lambda other: other.client)
    return row


def _put(row: RowState, new: tuple[int, int, int, int]) -> None:
    """A newer session's cell stays."""
    others = [cell for cell in row.cells if cell[0] != new[0]]
    before = next((cell for cell in row.cells if cell[0] == new[0]), None)
    kept = new if before is None or before[1] <= new[1] else before
    row.cells = sorted([*others, kept])


def answer_of(disk: Disk, operation: Words) -> Words:
    """What a load finds now."""
    whose, _, id, what = operation
    if whose == "matcher":
        return whose, "loaded", id, tuple((index, disk.objects[index]) for index in what)
    row = disk.row(what)
    if row is None:
        return whose, "loaded", id, None
    return whose, "loaded", id, (row.session, tuple((i, a, e) for i, _, a, e in row.cells))


def read_feed(disk: Disk, lineage: int, after: int) -> Words:
    """The event that answers a read of what follows `after`."""
    last, bits = disk.last(), disk.epochs
    if lineage != disk.feed_lineage or after >= last:
        return "feed end", disk.feed_lineage, last, bits
    if after + 1 < disk.feed_first:
        return "feed missing", lineage, disk.feed_first - 1, bits
    return "apply", lineage, after + 1, tuple(disk.feed[after:]), None
