"""What a shard has of objects and clients, whether anybody is online or not."""

import re
from collections.abc import Sequence

from roskva.core.effects import ObjectRow
from roskva.core.objects import ObjectEntry
from roskva.model import NO_VERSION, Key, Update, object_epoch
from roskva.server.inside.facts import Held, ObjectFacts, RowFacts
from roskva.server.shard import ShardServer
from roskva.store import rows as layout

_CLIENT = re.compile(r"[0-9a-fA-F]{32}")


def client_id(text: str) -> bytes | None:
    return bytes.fromhex(text) if _CLIENT.fullmatch(text) else None


async def of_objects(shard: ShardServer, keys: Sequence[Key]) -> dict[Key, ObjectFacts]:
    """As a registrar would be told that asks now."""
    rows = await shard.store.run(
        lambda store: layout.object_rows(keys, store.read_cells(layout.object_cells(keys)))
    )
    return {key: _facts(shard, key, row) for key, row in rows.items()}


def _facts(shard: ShardServer, key: Key, row: ObjectRow) -> ObjectFacts:
    matcher = shard.matcher
    entry = ObjectEntry()
    if row.version != NO_VERSION:
        entry.update = Update(key, row.version, row.source, row.payload, row.published_at)
    entry.mark, entry.epoch = row.mark, row.epoch
    for unflushed in (matcher.flushing, matcher.unflushed):
        if unflushed is not None:
            unflushed.lay_over(entry, key)
    update, known = entry.update, entry.epoch == matcher.epoch
    epoch = object_epoch(matcher.epoch, entry.mark)
    if update is None:
        return ObjectFacts(NO_VERSION, epoch, reset=bool(entry.mark), caught_up=matcher.caught_up)
    return ObjectFacts(
        update.version if known else NO_VERSION,
        epoch,
        NO_VERSION if known else update.version,
        bool(entry.mark),
        update.published_at,
        update.source,
        None if update.payload is None else len(update.payload),
        matcher.caught_up,
    )


async def of_client(shard: ShardServer, client: bytes) -> RowFacts | None:
    """None: it never registered for anything, or was forgotten."""
    row = await shard.store.run(
        lambda store: (
            layout.stored_client(cells)
            if (cells := store.read(layout.client_key(client)))
            else None
        )
    )
    if row is None or row.created_at is None or row.application is None:
        return None
    return RowFacts(
        row.application,
        row.session,
        row.created_at,
        row.seen_at or row.created_at,
        [Held(cell.object, cell.acked, cell.epoch) for cell in row.registered],
    )
