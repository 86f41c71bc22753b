"""How objects, clients and the shard itself are laid out as rows.

    key                         column   timestamp   value
    o ‖ hash ‖ app/name         v        version     source, payload, published_at, epoch
                                m        0           the mark of its last reset
    c ‖ hash ‖ client id        c        session     application, created_at, account
                                s        session     seen_at
                                e        session     open, expiry_s
                                r ‖ key  session     acked, epoch (one per registration)
    s                           e        0           epoch, lineage, applied, excused, loss
                                 g ‖ app  generation  —
                                 d        0           epoch of objects without a row, and within
                                                      which epoch of the shard
                                b        boot        —
                                a        limit       — (versions assigned so far are below it)

- The version of an object *is* its timestamp: the store itself lets no older one in, and of a later
  generation of its app any. A reset of the object starts the row anew. Its mark has a cell of its
  own, so that whoever writes a version need not know it.
- A client's cells carry the session that wrote them: what a fenced session left behind in some
  queue changes nothing.
- The hash spreads each kind evenly over its part of the key space, whatever the names look like, so
  that a job can cut it into equal ranges without looking. It is the same that chooses the shard
  (`model.shard_of`), the CRC-32 of zip files: every language has it, and Spark's SQL does.
- Values are msgpack arrays; new fields go to the end, with a default.
"""

import zlib
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from roskva.core import effects
from roskva.core.expiry import ScannedClient
from roskva.model import NO_EPOCH, NO_VERSION, NOTHING_LOST, Key, Loss
from roskva.store.base import (
    MAX_BATCH,
    Cell,
    CellName,
    DeleteCell,
    DeleteRow,
    Operation,
    Put,
    Row,
    Store,
)
from roskva.wire.links import Registered

OBJECT: Final = b"o"
CLIENT: Final = b"c"
SHARD_ROW: Final = b"s"

_VERSION: Final = b"v"
_MARK: Final = b"m"
_CREATED: Final = b"c"
_SEEN: Final = b"s"
_END: Final = b"e"
_REGISTERED: Final = b"r"
_EPOCH: Final = b"e"
_GENERATION: Final = b"g"
_ABSENT: Final = b"d"
_BOOT: Final = b"b"
_ASSIGNED: Final = b"a"

_HASH_BYTES: Final = 4
_HASHES: Final = 1 << (8 * _HASH_BYTES)
_ID_AT: Final = 1 + _HASH_BYTES


class _Version(msgspec.Struct, frozen=True, array_like=True, gc=False):
    source: str | None
    payload: bytes | None
    published_at: int
    epoch: int = NO_EPOCH


class _Created(msgspec.Struct, frozen=True, array_like=True, gc=False):
    application: str
    created_at: int
    account: bytes = b""


class _End(msgspec.Struct, frozen=True, array_like=True, gc=False):
    open: bool
    expiry_s: int | None


class _Absent(msgspec.Struct, frozen=True, array_like=True, gc=False):
    epoch: int
    within: int


class StoredClient(msgspec.Struct, frozen=True, gc=False):
    """A client row as it lies there, for whoever looks at all of them. Times are wall-clock
    microseconds; `created_at` is None in a row that was never created, or only half forgotten."""

    session: int
    seen_at: int | None
    application: str | None
    created_at: int | None
    registered: list[Registered]


class _Acked(msgspec.Struct, frozen=True, array_like=True, gc=False):
    version: int
    epoch: int


class _Epoch(msgspec.Struct, frozen=True, array_like=True, gc=False):
    epoch: int
    lineage: int
    applied: int
    excused: int = NOTHING_LOST
    loss: Loss | None = None


_encode = msgspec.msgpack.Encoder().encode
_decode_version = msgspec.msgpack.Decoder(_Version).decode
_decode_created = msgspec.msgpack.Decoder(_Created).decode
_decode_end = msgspec.msgpack.Decoder(_End).decode
_decode_absent = msgspec.msgpack.Decoder(_Absent).decode
_decode_acked = msgspec.msgpack.Decoder(_Acked).decode
_decode_epoch = msgspec.msgpack.Decoder(_Epoch).decode
_decode_int = msgspec.msgpack.Decoder(int).decode


# Keys


def object_key(key: Key) -> bytes:
    name = key.encode()
    return OBJECT + zlib.crc32(name).to_bytes(_HASH_BYTES) + name


def client_key(client: bytes) -> bytes:
    return CLIENT + zlib.crc32(client).to_bytes(_HASH_BYTES) + client


def object_of(row: bytes) -> Key:
    return row[_ID_AT:].decode()


def client_of(row: bytes) -> bytes:
    return row[_ID_AT:]


def ranges(kind: bytes, parts: int) -> list[tuple[bytes, bytes]]:
    """All rows of a kind as so many ranges of equal size, to be scanned side by side."""
    cuts = [kind + (_HASHES * part // parts).to_bytes(_HASH_BYTES) for part in range(parts)]
    end = bytes([kind[0] + 1])
    return list(zip(cuts, [*cuts[1:], end], strict=True))


SAMPLE_CELLS: Final = 2000


def estimated_rows(store: Store) -> dict[str, int]:
    """How many objects, clients and registrations there are. Counted are the first few of a kind,
    and as hashes spread them evenly, the hash of the last says what part of all they are."""
    objects, _ = _estimate(store, OBJECT)
    clients, registrations = _estimate(store, CLIENT)
    return {"objects": objects, "clients": clients, "registrations": registrations}


def _estimate(store: Store, kind: bytes) -> tuple[int, int]:
    rows = registrations = seen = 0
    part = 1.0
    for key, cells in store.scan(*ranges(kind, 1)[0]):
        rows += 1
        registrations += sum(map(_is_registration, cells)) if kind == CLIENT else 0
        seen += len(cells)
        if seen >= SAMPLE_CELLS:
            part = (int.from_bytes(key[1:_ID_AT]) + 1) / _HASHES
            break
    return round(rows / part), round(registrations / part)


def _is_registration(column: bytes) -> bool:
    return column[:1] == _REGISTERED


# What the core persists, as operations


def batches(writes: Iterable[effects.Write]) -> Iterator[list[Operation]]:
    """The writes of one `Persist`, in order, as batches a store accepts.

    More than one is as good as a single one where the marker comes last: versions that are ahead of
    it are merged once more, and never wrong. No single write is torn.
    """
    batch: list[Operation] = []
    for write in writes:
        operations = operations_of(write)
        if len(batch) + len(operations) > MAX_BATCH:
            yield batch
            batch = []
        batch.extend(operations)
    yield batch


def operations_of(write: effects.Write) -> Sequence[Operation]:
    match write:
        case effects.PutObject():
            return _put_object(write)
        case effects.DropObject():
            return (DeleteCell(object_key(write.key), _VERSION),)
        case effects.PutShard():
            marker = write.epoch, write.lineage, write.applied
            value = _encode(_Epoch(*marker, write.excused, write.loss))
            generations = [
                Put(SHARD_ROW, _GENERATION + app.encode(), generation, b"")
                for app, generation in write.generations
            ]
            return (*generations, Put(SHARD_ROW, _EPOCH, 0, value))
        case effects.PutAbsent():
            return (Put(SHARD_ROW, _ABSENT, 0, _encode(_Absent(write.epoch, write.within))),)
        case effects.PutAssigned(limit=limit):
            return (Put(SHARD_ROW, _ASSIGNED, limit, b""),)
        case effects.PutRegistered(client=client, session=session, registered=cell):
            column = _REGISTERED + cell.object.encode()
            return (
                Put(client_key(client), column, session, _encode(_Acked(cell.acked, cell.epoch))),
            )
        case effects.PutClient():
            return _put_client(write)
        case effects.DropRegistered():
            return (DeleteCell(client_key(write.client), _REGISTERED + write.key.encode()),)
        case effects.DropClient():
            return (DeleteRow(client_key(write.client)),)


def put_boot(boot: int) -> Put:
    """This start of the shard's owner is number `boot`."""
    return Put(SHARD_ROW, _BOOT, boot, b"")


def _put_object(write: effects.PutObject) -> list[Operation]:
    key, row = object_key(write.key), write.row
    operations: list[Operation] = []
    if write.replace:
        operations += (DeleteRow(key), Put(key, _MARK, 0, _encode(row.mark)))
    if row.version != NO_VERSION:
        value = _encode(_Version(row.source, row.payload, row.published_at, row.epoch))
        operations.append(Put(key, _VERSION, row.version, value, row.generation))
    return operations


def _put_client(write: effects.PutClient) -> list[Operation]:
    key, end = client_key(write.client), _End(write.open, write.expiry_s)
    operations: list[Operation] = [
        Put(key, _SEEN, write.session, _encode(write.seen_at)),
        Put(key, _END, write.session, _encode(end)),
    ]
    if write.application is not None:
        created = _encode(_Created(write.application, write.seen_at, write.account))
        operations.append(Put(key, _CREATED, write.session, created))
    return operations


# What the core loads, from cells


def object_cells(keys: Sequence[Key]) -> list[CellName]:
    """What to read for `object_rows`."""
    rows = [object_key(key) for key in keys]
    return [(row, column) for row in rows for column in (_VERSION, _MARK)]


def object_rows(keys: Sequence[Key], cells: Sequence[Cell | None]) -> dict[Key, effects.ObjectRow]:
    pairs = zip(cells[::2], cells[1::2], strict=True)
    return {
        key: object_row(version, mark) for key, (version, mark) in zip(keys, pairs, strict=True)
    }


def object_row(version: Cell | None, mark: Cell | None) -> effects.ObjectRow:
    reset = _decode_int(mark.value) if mark else 0
    if version is None:
        return effects.ObjectRow(mark=reset)
    kept = _decode_version(version.value)
    return effects.ObjectRow(
        *(version.timestamp, reset, kept.source, kept.payload),
        *(kept.published_at, kept.epoch, version.generation),
    )


def client_row(cells: Row) -> effects.ClientRow | None:
    if _CREATED not in cells:
        return None
    created = _decode_created(cells[_CREATED].value)
    return effects.ClientRow(
        cells[_SEEN].timestamp, created.application, _registered(cells), created.account
    )


def stored_client(cells: Row) -> StoredClient:
    created = _decode_created(cells[_CREATED].value) if _CREATED in cells else None
    return StoredClient(
        max(cell.timestamp for cell in cells.values()),
        _decode_int(cells[_SEEN].value) if _SEEN in cells else None,
        created.application if created else None,
        created.created_at if created else None,
        _registered(cells),
    )


def stored_object(cells: Row) -> effects.ObjectRow:
    return object_row(cells.get(_VERSION), cells.get(_MARK))


def _registered(cells: Row) -> list[Registered]:
    acked = (
        (column, _decode_acked(cell.value))
        for column, cell in cells.items()
        if column.startswith(_REGISTERED)
    )
    return [
        Registered(column[len(_REGISTERED) :].decode(), cell.version, cell.epoch)
        for column, cell in acked
    ]


# A page of everything, for the collector


def read_page(store: Store, asked: effects.LoadPage, bits: int) -> effects.Page:
    """`after` is the last key of the page before."""
    if asked.clients:
        found = [(key, store.read(key)) for key in map(client_key, asked.clients)]
    else:
        end = SHARD_ROW if asked.objects else OBJECT
        found = list(islice(store.scan(asked.after and asked.after + b"\0", end), asked.rows))
    last = found[-1][0] if len(found) == asked.rows and not asked.clients else None
    return effects.Page(
        [scanned_client(key, cells) for key, cells in found if cells and key.startswith(CLIENT)],
        [(object_of(key), stored_object(cells)) for key, cells in found if key.startswith(OBJECT)],
        last,
        0.0 if last is None else _share_before(last, asked.objects),
        bits,
    )


class ClientPage(msgspec.Struct, frozen=True):
    found: list[tuple[bytes, int]]
    """Clients, and when each was seen last."""
    looked_at: int
    after: bytes
    """Where the next page begins; empty: this was the last."""


def find_application(store: Store, application: str, after: bytes, rows: int) -> ClientPage:
    """Among so many client rows, those with this application id."""
    page = list(islice(store.scan((after and after + b"\0") or CLIENT, OBJECT), rows))
    found = [
        (client_of(key), row.seen_at or row.created_at or 0)
        for key, row in ((key, stored_client(cells)) for key, cells in page if _CREATED in cells)
        if row.application == application
    ]
    return ClientPage(found, len(page), page[-1][0] if len(page) == rows else b"")


def scanned_client(key: bytes, cells: Row) -> ScannedClient:
    objects = [column[1:] for column in cells if column.startswith(_REGISTERED)]
    end = _decode_end(cells[_END].value) if _END in cells else _End(False, None)
    created = _decode_created(cells[_CREATED].value) if _CREATED in cells else None
    return ScannedClient(
        client_of(key),
        max(cell.timestamp for cell in cells.values()),
        created is not None,
        _decode_int(cells[_SEEN].value) if _SEEN in cells else 0,
        end.open,
        end.expiry_s,
        len(objects),
        tuple({name.partition(b"/")[0].decode() for name in objects}),
        b"" if created is None else created.account,
    )


def _share_before(key: bytes, objects: bool) -> float:
    """Clients come first, then objects, each spread evenly by their hashes."""
    share = int.from_bytes(key[1:_ID_AT]) / _HASHES
    return share if not objects else (share + key.startswith(OBJECT)) / 2


def shard_row(cells: Row) -> effects.PutShard | None:
    """None: this shard has never been used."""
    if _EPOCH not in cells:
        return None
    kept = _decode_epoch(cells[_EPOCH].value)
    generations = [
        (column[len(_GENERATION) :].decode(), cell.timestamp)
        for column, cell in cells.items()
        if column.startswith(_GENERATION)
    ]
    marker = kept.epoch, kept.lineage, kept.applied
    return effects.PutShard(*marker, tuple(generations), kept.excused, kept.loss)


def absent_of(cells: Row) -> int:
    """The epoch of objects without a row; NO_EPOCH: that of the shard."""
    if _ABSENT not in cells:
        return NO_EPOCH
    shard, absent = shard_row(cells), _decode_absent(cells[_ABSENT].value)
    return absent.epoch if shard is not None and shard.epoch == absent.within else NO_EPOCH


def boot_of(cells: Row) -> int:
    return cells[_BOOT].timestamp if _BOOT in cells else 0


def assigned_of(cells: Row) -> int:
    return cells[_ASSIGNED].timestamp if _ASSIGNED in cells else 0
