"""A node's state with as many clients as you like, and what is true of it by plain computation."""

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from roskva.core.effects import ObjectRow, PutClient, PutObject, PutRegistered, PutShard, Write
from roskva.core.freshness import Due, due
from roskva.model import NO_EPOCH, NO_VERSION, Key, object_epoch, shard_of
from roskva.server.directory import DataDirectory
from roskva.store import rows
from roskva.store.base import MAX_BATCH, Operation
from roskva.store.rocksdb import RocksStore
from roskva.wire.links import Registered

NOW_US: Final = 1_700_000_000_000_000
SESSION: Final = 7 << 32
MARK: Final = 5


def write_population(data: Path, clients: int, each: int, objects: int, shards: int = 4) -> None:
    """Nine of ten registrations are fresh; the others are behind in every way there is."""
    directory = DataDirectory.open_or_create(data, shards)
    with ExitStack() as owning:
        owned = [owning.enter_context(directory.own(number)) for number in range(shards)]
        stores = [RocksStore(shard.store_path) for shard in owned]
        waiting: list[list[Operation]] = [[] for _ in stores]
        for shard, write in _writes(clients, each, objects, shards):
            batch = waiting[shard]
            batch.extend(rows.operations_of(write))
            if len(batch) > MAX_BATCH - 8:
                stores[shard].write(batch)
                batch.clear()
        for store, batch in zip(stores, waiting, strict=True):
            store.write(batch, sync=True)
            store.close()


def plain_states(stores: dict[int, Path]) -> Counter[str]:
    """How many registrations are in each state."""
    return Counter(plain_audit(stores).values())


def plain_audit(stores: dict[int, Path], parts: int = 1) -> dict[tuple[bytes, Key], str]:
    """The states of all registrations; with `parts`, of the clients in the first of so many."""
    opened = {number: RocksStore(path, read_only=True) for number, path in stores.items()}
    epochs = {
        number: stored.epoch
        for number, store in opened.items()
        if (stored := rows.shard_row(store.read(rows.SHARD_ROW)))
    }
    found = {}
    for store in opened.values():
        for key, cells in store.scan(*rows.ranges(rows.CLIENT, parts)[0]):
            client = rows.stored_client(cells)
            for cell in client.registered:
                shard = shard_of(cell.object, len(opened))
                row = rows.stored_object(opened[shard].read(rows.object_key(cell.object)))
                version = row.version if row.epoch == epochs[shard] else NO_VERSION
                known = (version, object_epoch(epochs[shard], row.mark))
                state = _state(client, (cell.acked, cell.epoch), known)
                found[rows.client_of(key), cell.object] = state
    for store in opened.values():
        store.close()
    return found


def _state(client: rows.StoredClient, acked: tuple[int, int], known: tuple[int, int]) -> str:
    if client.created_at is None:
        return "orphaned"
    if due(acked, known) is not Due.NOTHING:
        return "pending"
    return "unknown" if known[0] == NO_VERSION else "fresh"


def _epoch(shard: int) -> int:
    return 1_000_000 + shard


def _object(number: int) -> Key:
    return f"app-{number % 5}/object-{number:07}"


def _row(number: int, epoch: int) -> ObjectRow | None:
    """Some are of an earlier epoch, some were reset, and some were never published."""
    if number % 50 == 49:
        return None
    return ObjectRow(
        1000 + number % 7,
        MARK if number % 20 == 3 else 0,
        published_at=NOW_US + number,
        epoch=epoch - 1 if number % 100 == 50 else epoch,
    )


def _writes(clients: int, each: int, objects: int, shards: int) -> Iterator[tuple[int, Write]]:
    for number in range(objects):
        key = _object(number)
        shard = shard_of(key, shards)
        row = _row(number, _epoch(shard))
        if row is not None:
            yield shard, PutObject(key, row, replace=bool(row.mark))
    for number in range(clients):
        client = number.to_bytes(16)
        shard = shard_of(client, shards)
        if number % 1000 != 17:
            head = PutClient(client, SESSION, NOW_US - number, f"application-{number % 10}")
            yield shard, head
        for cell in _registered(number, each, objects, shards):
            yield shard, PutRegistered(client, SESSION, cell)
    for shard in range(shards):
        yield shard, PutShard(_epoch(shard), 1, 0)


def _registered(client: int, each: int, objects: int, shards: int) -> Iterable[Registered]:
    """Half of them for the hundredth part of the objects that is popular."""
    for i in range(client * each, client * each + each):
        mixed = zlib.crc32(i.to_bytes(8))
        popular = max(1, objects // 100) if i % 2 else objects
        number = mixed % popular
        key = _object(number)
        shard = shard_of(key, shards)
        row = _row(number, _epoch(shard)) or ObjectRow()
        version = row.version if row.epoch == _epoch(shard) else NO_VERSION
        epoch = object_epoch(_epoch(shard), row.mark)
        match mixed % 100:
            case 90 | 91 | 92 | 93:
                yield Registered(key, max(NO_VERSION, version - 1), epoch)
            case 94 | 95:
                yield Registered(key, NO_VERSION, NO_EPOCH)
            case 96 | 97:
                yield Registered(key, version, epoch - (1 << 20))
            case 98:
                yield Registered(key, version + 5, epoch - (1 << 20))
            case 99:
                yield Registered(key, version + 5, epoch)
            case _:
                yield Registered(key, version, epoch)
