"""`roskva-state`: what the stores of a node hold, as tables for Spark.

    spark.dataSource.register(StateSource)
    spark.read.format("roskva-state").option("table", "objects").load("/mnt/backups/monday")

A path is a backup, or a data directory. A node that runs changes its stores all the time, so of a
data directory the *checkpoint* is read whose name is given as an option; `roskva job` makes one and
removes it afterwards.

    table           one row per
    clients         client: when it was created and last seen, how many registrations it has
    registrations   registration: what the client acked, in which epoch
    objects         object: its version, its mark, and the shard's epoch and its app's generation
                    that the version is of
    shards          shard: its epoch, with what the store does not have yet; its marker in the
                    feed, the epoch of objects without a row
    tail            object that was updated after the marker: what the store does not have yet
    apps            app that was reset, in each shard: its generation, with what the store does not
                    have yet

Rows lie evenly over the key space, so each store is read as `parts` ranges of it, in parallel.
Columns that have nothing to say are null; so is a version that is not known.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from roskva.core.effects import PutShard
from roskva.core.objects import Unflushed, coalesce
from roskva.disk import RealDisk
from roskva.errors import BadInput
from roskva.feed.base import Batch, Marker
from roskva.feed.reader import LogReader
from roskva.model import (
    NO_EPOCH,
    NO_GENERATION,
    NO_VERSION,
    WHOLE_SHARD,
    Update,
    app_of,
    is_app,
)
from roskva.pipeline.columns import NamedSource, columns
from roskva.store import rows
from roskva.store.base import Row
from roskva.store.rocksdb import RocksStore

FORMAT: Final = "roskva-state"
DEFAULT_PARTS: Final = 4
_BATCH_ROWS: Final = 16_384

_Values = tuple[Any, ...]


class ShardFiles(NamedTuple):
    """A shard, as it is to be read."""

    shard: int
    store: Path
    feed: Path


class Table(NamedTuple):
    schema: StructType
    kind: bytes
    """Of the rows it is read from: how their keys begin."""
    values: Callable[[ShardFiles, bytes, Row], Iterator[_Values]]
    """Of one row in the store of a shard."""


def _clients(place: ShardFiles, key: bytes, cells: Row) -> Iterator[_Values]:
    client, scanned = rows.stored_client(cells), rows.scanned_client(key, cells)
    row = (client.application, client.created_at, client.seen_at, client.session)
    kept = (scanned.open, scanned.expiry_s, " ".join(scanned.apps))
    yield (place.shard, scanned.client, *row, scanned.registrations, *kept)


def _registrations(place: ShardFiles, key: bytes, cells: Row) -> Iterator[_Values]:
    client, id = rows.stored_client(cells), rows.client_of(key)
    created = client.created_at is not None
    for cell in client.registered:
        acked = None if cell.acked == NO_VERSION else cell.acked
        epoch = None if cell.epoch == NO_EPOCH else cell.epoch
        yield place.shard, id, created, client.seen_at, cell.object, acked, epoch


def _objects(place: ShardFiles, key: bytes, cells: Row) -> Iterator[_Values]:
    row, name = rows.stored_object(cells), rows.object_of(key)
    if row.version == NO_VERSION:
        yield place.shard, name, None, row.mark, None, None, None, None, None
    else:
        epoch = None if row.epoch == NO_EPOCH else row.epoch
        value = (row.generation, row.source, row.payload, row.published_at)
        yield (place.shard, name, row.version, row.mark, epoch, *value)


def _after_marker(place: ShardFiles, row: PutShard) -> list[tuple[int, Update]]:
    """What cannot be read any more is left out: the matcher will say so, with a new epoch."""
    kept: list[tuple[int, Update]] = []
    if not place.feed.is_dir():
        return kept
    reader, after = LogReader(RealDisk(), str(place.feed)), Marker(row.lineage, row.applied)
    while isinstance(read := reader.read(after), Batch):
        kept = coalesce([*kept, *read.entries()])
        after = Marker(row.lineage, read.last)
    return kept


def _tail(place: ShardFiles, key: bytes, cells: Row) -> Iterator[_Values]:
    """As the matcher will merge it."""
    row = rows.shard_row(cells)
    if row is None:
        return
    generations, merged = dict(row.generations), Unflushed()
    for _, update in _after_marker(place, row):
        app = app_of(update.object)
        generation = generations.get(app, NO_GENERATION)
        if update.object == WHOLE_SHARD:
            row = row.after(update)
        elif update.reset and is_app(update.object):
            generations[app] = max(generation, update.version)
        elif update.reset:
            merged.forget(update.object, update.version)
        else:
            merged.merge(update, row.epoch, generation)
    for name in merged.marks | merged.updates:
        mark = merged.marks.get(name)
        if name not in merged.updates:
            yield place.shard, name, None, mark, None, None, None
        else:
            update, epoch, generation = merged.updates[name]
            value = (update.version, mark, epoch, generation, update.published_at)
            yield (place.shard, name, *value)


def _apps(place: ShardFiles, key: bytes, cells: Row) -> Iterator[_Values]:
    row = rows.shard_row(cells)
    if row is None:
        return
    generations = dict(row.generations)
    for _, update in _after_marker(place, row):
        if update.reset and is_app(update.object):
            app = app_of(update.object)
            generations[app] = max(generations.get(app, NO_GENERATION), update.version)
    for app, generation in generations.items():
        yield place.shard, app, generation


def _shards(place: ShardFiles, key: bytes, cells: Row) -> Iterator[_Values]:
    row = rows.shard_row(cells)
    if row is None:
        return
    stored = row
    for _, update in _after_marker(place, row):
        if update.object == WHOLE_SHARD:
            row = row.after(update)
    absent = rows.absent_of(cells) if row.epoch == stored.epoch else NO_EPOCH
    marker = row.lineage, row.applied, rows.boot_of(cells)
    yield place.shard, row.epoch, *marker, absent or row.epoch


TABLES: Final = {
    "clients": Table(
        columns(
            "shard int, client bytes, application text?, created_at time?, "
            "seen_at time?, session long, registrations int, open bool, expiry_s long?, apps text"
        ),
        rows.CLIENT,
        _clients,
    ),
    "registrations": Table(
        columns(
            "shard int, client bytes, created bool, seen_at time?, object text, "
            "acked long?, epoch long?"
        ),
        rows.CLIENT,
        _registrations,
    ),
    "objects": Table(
        columns(
            "shard int, object text, version long?, mark int, epoch long?, generation long?, "
            "source text?, payload bytes?, published_at time?"
        ),
        rows.OBJECT,
        _objects,
    ),
    "shards": Table(
        columns("shard int, epoch long, lineage long, applied long, boot long, absent long"),
        rows.SHARD_ROW,
        _shards,
    ),
    "tail": Table(
        columns(
            "shard int, object text, version long?, mark int?, epoch long?, generation long?, "
            "published_at time?"
        ),
        rows.SHARD_ROW,
        _tail,
    ),
    "apps": Table(columns("shard int, app text, generation long"), rows.SHARD_ROW, _apps),
}


class State(NamedTuple):
    """Where to read: a backup, or a checkpoint of this name in a data directory."""

    path: Path
    checkpoint: str | None = None

    def shards(self) -> list[ShardFiles]:
        below = f"checkpoints/{self.checkpoint}" if self.checkpoint else "store"
        return [
            ShardFiles(int(path.name[len("shard-") :]), path / below, path / "feed")
            for path in sorted(self.path.glob("shard-*"))
        ]

    def table(self, spark: SparkSession, name: str, parts: int = DEFAULT_PARTS) -> DataFrame:
        spark.dataSource.register(StateSource)
        reader = spark.read.format(FORMAT).option("table", name).option("parts", parts)
        if self.checkpoint:
            reader = reader.option("checkpoint", self.checkpoint)
        return reader.load(str(self.path))


@dataclass
class _KeyRange(InputPartition):
    """A part of one shard's store, by its keys."""

    place: ShardFiles
    start: bytes
    end: bytes


class StateSource(NamedSource):
    NAME = FORMAT

    def schema(self) -> StructType:
        return self._table().schema

    def reader(self, schema: StructType) -> "StateReader":
        options = self.options
        if "path" not in options:
            raise BadInput(f"{FORMAT} needs a path: .load('/mnt/backups/monday')")
        state = State(Path(options["path"]), options.get("checkpoint"))
        return StateReader(self._table(), state, int(options.get("parts", DEFAULT_PARTS)))

    def _table(self) -> Table:
        name = self.options.get("table", "")
        if name not in TABLES:
            raise BadInput(f"{FORMAT}: option 'table' is one of {', '.join(TABLES)}; got '{name}'")
        return TABLES[name]


@dataclass
class StateReader(DataSourceReader):
    table: Table
    state: State
    parts: int

    def partitions(self) -> Sequence[InputPartition]:
        shards = self.state.shards()
        if not shards:
            raise BadInput(f"{self.state.path} is no data directory and no backup of one")
        missing = [place.store for place in shards if not place.store.is_dir()]
        if missing:
            raise BadInput(f"{missing[0]} is not there, or not any more")
        kind = self.table.kind
        cuts = [(kind, kind + b"\0")] if kind == rows.SHARD_ROW else rows.ranges(kind, self.parts)
        return [_KeyRange(place, *cut) for place in shards for cut in cuts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _KeyRange)
        schema = to_arrow_schema(self.table.schema, timezone="UTC")
        with closing(RocksStore(partition.place.store, read_only=True)) as store:
            values = (
                value
                for key, cells in store.scan(partition.start, partition.end)
                for value in self.table.values(partition.place, key, cells)
            )
            while batch := list(islice(values, _BATCH_ROWS)):
                columns = zip(*batch, strict=True)
                arrays = [
                    _array(column, field) for column, field in zip(columns, schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _array(values: Sequence[Any], field: pa.Field) -> pa.Array:
    if pa.types.is_timestamp(field.type):
        return pa.array(values, pa.int64()).cast(field.type)
    return pa.array(values, field.type)
