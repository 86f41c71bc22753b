"""`replay`: a shard's object rows from its feed, after its store was lost.

A node whose store is gone does the same when it starts, one update after the other, and says
nothing until it is done. This does it beforehand: in parallel, and with one write per object.

**The epoch** is the last that the feed has begun, if that answers for all that cannot be read any
more; a feed that is whole from its first record on goes on in its epoch. Otherwise one is proposed,
and the node begins it in the feed when it starts. Clients that had acked what the feed still has
are then told *unknown*, once; those that are behind, or come back without a row, are told the
version.

**What is known.** The feed is complete after the last range in it that cannot be read. A version
from before that, or from before the record of the epoch, is a lower bound, and stands in its row as
of no epoch: the next update has to be above it, and until then clients are told unknown. That is
what the matcher does when it comes to such a range.

**In what order.** Rows first, the marker last: whoever stops in between leaves a store without a
marker, and a node or another replay starts from the beginning.
"""

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from roskva.core.effects import ObjectRow, PutObject, PutShard, Write
from roskva.disk import RealDisk
from roskva.errors import BadInput
from roskva.feed.reader import LogReader
from roskva.model import (
    MAX_VERSION,
    NO_EPOCH,
    NO_GENERATION,
    NO_MARK,
    NO_VERSION,
    WHOLE_SHARD,
    Loss,
    Update,
    app_of,
    shard_epoch,
)
from roskva.pipeline.columns import NamedSource
from roskva.pipeline.history import history
from roskva.store import rows
from roskva.store.rocksdb import RocksStore

FORMAT: Final = "roskva-rows"
_VALUE: Final = ("version", "source", "payload", "published_at", "generation", "offset")
_OF_APP: Final = "(locate('/', object) = length(object) AND length(object) > 1)"
"""`model.is_app`."""
_OF_EPOCH: Final = f"(object = '{WHOLE_SHARD}')"


class Replayed(msgspec.Struct, frozen=True):
    objects: int
    known: int
    """Whose version can be told to clients."""
    last: int
    """The end of the feed."""
    lost_up_to: int
    """The end of the last range that cannot be read; 0 if the feed is whole."""
    epoch: str
    """Large numbers are text in JSON."""


def replay(
    spark: SparkSession,
    feed: Path,
    store: Path,
    *,
    out: Callable[[DataFrame], None] | None = None,
) -> Replayed:
    """The shard must be owned by whoever calls this. `out` is given one row per object."""
    if not feed.is_dir():
        raise BadInput(f"{feed} is not there: there is nothing to replay")
    _refuse_if_used(store)
    reader = LogReader(RealDisk(), str(feed))
    end = reader.end()
    read = history(spark, feed).persist()
    lost = read.filter("object IS NULL").agg(F.max("offset")).first()
    lost_up_to = int(lost[0]) if lost is not None and lost[0] is not None else 0
    of_epochs, of_apps, of_objects = apart(read.filter("object IS NOT NULL"))
    shard, since = begun(of_epochs, reader.lineage, lost_up_to)
    epoch = shard.epoch
    ruled = reigns(spark, of_apps)
    rebuilt = object_rows(of_objects, ruled, since, epoch).persist()
    latest = [tuple(row) for row in ruled.groupBy("app").agg(F.max("generation")).collect()]
    spark.dataSource.register(RowsSink)
    rebuilt.repartition(1).write.format(FORMAT).mode("append").save(str(store))
    with closing(RocksStore(store)) as opened:
        marker = msgspec.structs.replace(shard, applied=end, generations=tuple(latest))
        opened.write(rows.operations_of(marker), sync=True)
    if out is not None:
        known = (F.col("epoch") == epoch).alias("known")
        out(rebuilt.select("object", "version", "mark", known, "source", "published_at"))
    counted = rebuilt.agg(F.count("*"), F.count_if(F.col("epoch") == epoch)).first()
    assert counted is not None
    return Replayed(counted[0], counted[1], end, lost_up_to, str(epoch))


def apart(updates: DataFrame) -> tuple[DataFrame, DataFrame, DataFrame]:
    """The records of epochs, the resets of apps, and what is of single objects."""
    of_objects = updates.filter(f"NOT {_OF_EPOCH} AND NOT {_OF_APP}")
    return updates.filter(_OF_EPOCH), updates.filter(_OF_APP), of_objects


def begun(records: DataFrame, lineage: int, lost_up_to: int) -> tuple[PutShard, int]:
    """The shard's row, but for its marker; and after which offset the feed is known in its epoch.
    `records`: of epochs, a few."""
    loss = Loss(lineage, lost_up_to, "damage" if lost_up_to else "begun")
    shard, since = PutShard(shard_epoch(secrets.randbits(64)), lineage, 0, loss=loss), lost_up_to
    for row in records.orderBy("offset").collect():
        record = Update(row.object, row.version, payload=bytes(row.payload))
        before, shard = shard, shard.after(record)
        if shard.epoch != before.epoch:
            since = row.offset
    return shard, since


def reigns(spark: SparkSession, resets: DataFrame) -> DataFrame:
    """Of each generation of an app: between which offsets updates belong to it. Those before the
    first belong to none. `resets`: of apps, a few."""
    found: list[tuple[str, int, int, int]] = []
    began: dict[str, tuple[int, int]] = {}
    for row in resets.select("object", "offset", "version").orderBy("offset").collect():
        app = app_of(row.object)
        generation, since = began.get(app, (NO_GENERATION, 0))
        if row.version > generation:
            if generation:
                found.append((app, generation, since, row.offset))
            began[app] = row.version, row.offset
    found += [(app, generation, since, MAX_VERSION) for app, (generation, since) in began.items()]
    return spark.createDataFrame(found, "app string, generation long, since long, until long")


def object_rows(updates: DataFrame, reigns: DataFrame, since: int, epoch: int) -> DataFrame:
    """Per object the mark of its last reset, and the highest version after it in the latest
    generation of its app that it has one in; null if none. After `since` they are of this epoch."""
    marks = (
        updates.filter("reset")
        .groupBy("object")
        .agg(F.max("offset").alias("reset_at"), F.max_by("version", "offset").alias("mark"))
    )
    after = (
        updates.filter("NOT reset")
        .join(marks.select("object", "reset_at"), "object", "left")
        .filter("reset_at IS NULL OR offset > reset_at")
        .join(
            F.broadcast(reigns),
            F.expr("substring_index(object, '/', 1) = app AND offset > since AND offset < until"),
            "left",
        )
        .fillna(NO_GENERATION, ["generation"])
    )
    newest = after.groupBy("object").agg(
        F.max_by(F.struct(*_VALUE), F.struct("generation", "version", "offset")).alias("newest")
    )
    known = F.when(F.col("newest.offset") > since, F.lit(epoch)).otherwise(F.lit(NO_EPOCH))
    return newest.join(marks, "object", "full").select(
        "object", "mark", *(f"newest.{name}" for name in _VALUE[:-1]), known.alias("epoch")
    )


def _refuse_if_used(store: Path) -> None:
    if not store.is_dir():
        return
    with closing(RocksStore(store)) as opened:
        used = rows.shard_row(opened.read(rows.SHARD_ROW)) is not None
    if used:
        raise BadInput(
            f"{store} is not lost: the node goes on from it, and reads from the feed what it has "
            "not seen. If it is damaged, delete it first"
        )


class RowsSink(NamedSource):
    """Writes `object_rows` into a store that nobody else has open; from a single task."""

    NAME = FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> "RowsWriter":
        return RowsWriter(Path(self.options["path"]))


@dataclass
class RowsWriter(DataSourceArrowWriter):
    path: Path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        with closing(RocksStore(self.path)) as store:
            for batch in iterator:
                for operations in rows.batches(map(_put, batch.to_pylist())):
                    store.write(operations)
            store.sync()
        return WriterCommitMessage()


def _put(row: dict[str, Any]) -> Write:
    version = NO_VERSION if row["version"] is None else row["version"]
    mark = row["mark"] or NO_MARK
    value = ObjectRow(
        *(version, mark, row["source"], row["payload"], row["published_at"] or 0, row["epoch"]),
        generation=row["generation"] or NO_GENERATION,
    )
    return PutObject(row["object"], value, replace=row["mark"] is not None)
