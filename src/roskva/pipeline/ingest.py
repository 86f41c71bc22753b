"""Ingest: automatic publishing. Whatever Spark can read as a stream becomes updates.

Reading is Spark's. Translating is done by the SQL of an `[ingest.NAME]` table, and nothing else.
Publishing and what becomes of bad rows is the sink's (`publish_sink.py`). The checkpoint says how
far the source was read; rows may be published twice after a crash, which for a version is nothing.

Flows of a change source are read in another way, several together: see `source_flows.py`.
"""

import tempfile
from pathlib import Path
from typing import Final

import msgspec
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType

from roskva.config import CHANGES_FORMAT, Config, IngestConfig
from roskva.errors import BadConfig, RoskvaError
from roskva.pipeline.changes import CORRUPT, change_rows
from roskva.pipeline.flow import table_in_log
from roskva.pipeline.publish_sink import (
    NAME,
    Counters,
    PublishSink,
    delete_dead_letters,
    read_counters,
    update_from,
)
from roskva.pipeline.source import ChangesSource
from roskva.publisher.requests import UpdateBody
from roskva.sources.changes import DIRECTORY

_MAY_BECORRUPT: Final = ("json", "csv", "xml")

_SHOWN: Final = 20
_PREVIEW_S: Final = 120


# Rows of any source as updates.


def rows_to_ingest(spark: SparkSession, ingest: IngestConfig) -> DataFrame:
    reader = spark.readStream.format(ingest.format)
    for name, value in (ingest.options or {}).items():
        reader = reader.option(name, value)
    if ingest.columns is not None:
        columns = ingest.columns
        if ingest.format in _MAY_BECORRUPT and CORRUPT not in columns:
            columns += f", {CORRUPT} STRING"
        reader = reader.schema(columns)
    return reader.load() if ingest.path is None else reader.load(ingest.path)


def translated(rows: DataFrame, ingest: IngestConfig) -> DataFrame:
    """As `TRANSLATED`. Rows for which the filter is not true are left out, unless they are corrupt:
    of those nobody knows."""
    corrupt = F.col(CORRUPT) if CORRUPT in rows.columns else F.lit(None).cast("string")
    if ingest.filter is not None:
        rows = rows.where(F.expr(ingest.filter) | corrupt.isNotNull())
    given = [name for name in rows.columns if name != CORRUPT]
    return rows.select(
        _text(ingest.app).alias("app"),
        _text(ingest.name).alias("name"),
        _text(ingest.version).alias("version"),
        _text(ingest.source).alias("source"),
        _binary(rows, ingest.payload).alias("payload"),
        corrupt.alias("wrong"),
        F.to_json(F.struct(*given), {"ignoreNullFields": "false"}).alias("row"),
    )


def _text(expression: str | None) -> Column:
    return (F.lit(None) if expression is None else F.expr(expression)).cast("string")


def _binary(rows: DataFrame, expression: str | None) -> Column:
    if expression is None:
        return F.lit(None).cast("binary")
    found = F.expr(expression)
    if isinstance(rows.select(found).schema[0].dataType, BinaryType):
        return found
    return found.cast("string").cast("binary")


# The query.


class Preview(msgspec.Struct, frozen=True):
    """What a row would become."""

    row: str
    update: UpdateBody | None = None
    reason: str = ""
    """Why it would be a dead letter instead."""


class Ingest:
    """`directory`: its checkpoint, its dead letters and its counters. The node is named by its
    address, or found by its data directory."""

    def __init__(
        self, spark: SparkSession, name: str, settings: Config, directory: Path, url: str = ""
    ) -> None:
        self.name, self.directory = name, directory
        self._config, self._data = settings.ingest[name], settings.node.data
        self._url, self._spark = url, spark
        self._sources = settings.source
        # A value that cannot be computed is null, instead of the end of the query.
        spark.conf.set("spark.sql.ansi.enabled", "false")
        spark.dataSource.register(PublishSink)

    def start(self, checkpoint: Path, *, once: bool = False) -> StreamingQuery:
        """`once`: what there is now, and no more."""
        writer = (
            self._updates()
            .writeStream.queryName(f"ingest {self.name}")
            .format(NAME)
            .option("path", str(self.directory))
            .option("checkpointLocation", str(checkpoint))
        )
        node = {"url": self._url, "data": str(self._data), "key": self._config.key or ""}
        for name, value in node.items():
            writer = writer.option(name, value)
        if once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._config.interval_seconds} seconds").start()

    def counters(self) -> Counters:
        return read_counters(self.directory)

    def tidy(self) -> None:
        """Dead letters that nobody looked at for long go."""
        delete_dead_letters(self.directory, self._config.dead_letter_days)

    def preview(self) -> list[Preview]:
        """The first rows, and what they would become; nothing is published or noted."""
        found: list[Preview] = []

        def look(rows: DataFrame, batch: int) -> None:
            if not found:
                found.extend(map(_preview, rows.limit(_SHOWN).collect()))

        with tempfile.TemporaryDirectory(prefix="roskva-") as checkpoint:
            query = (
                self._updates()
                .writeStream.foreachBatch(look)
                .option("checkpointLocation", checkpoint)
                .trigger(availableNow=True)
                .start()
            )
            query.awaitTermination(_PREVIEW_S)
            query.stop()
        return found

    def _updates(self) -> DataFrame:
        try:
            return translated(self._rows(), self._config)
        except (AnalysisException, ParseException) as error:
            first_line = str(error).strip().splitlines()[0]
            raise BadConfig(f"[ingest.{self.name}]: {first_line}") from None

    def _rows(self) -> DataFrame:
        config = self._config
        if config.format != CHANGES_FORMAT:
            return rows_to_ingest(self._spark, config)
        self._spark.dataSource.register(ChangesSource)
        source = config.path or ""
        place = self._data / DIRECTORY / source
        log = self._spark.readStream.format(CHANGES_FORMAT).load(str(place))
        return change_rows(log, config.columns, table_in_log(config.table, self._sources[source]))


def _preview(translated: Row) -> Preview:
    app, name, version, source, payload, wrong, row = translated
    try:
        found = None if payload is None else bytes(payload)
        return Preview(row or "", update_from(app, name, version, source, found, wrong))
    except RoskvaError as error:
        return Preview(row or "", reason=str(error))
