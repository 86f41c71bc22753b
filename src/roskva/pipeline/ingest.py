"""Ingest: automatic publishing. Whatever Spark can read as a stream becomes updates.

Reading is Spark's, translating is SQL (`translation.py`), publishing and what becomes of bad rows
is the sink's (`publishing.py`). The checkpoint says how far the source was read; rows may be
published twice after a crash, which for a version is nothing.
"""

import tempfile
from pathlib import Path
from typing import Final

import msgspec
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from roskva.config import IngestConfig
from roskva.errors import BadConfig, RoskvaError
from roskva.pipeline.publishing import (
    NAME,
    Counters,
    PublishSink,
    read_counters,
    update_from,
)
from roskva.pipeline.translation import rows_to_ingest, translated
from roskva.publisher.requests import UpdateBody

_SHOWN: Final = 20
_PREVIEW_S: Final = 120


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
        self,
        spark: SparkSession,
        name: str,
        config: IngestConfig,
        directory: Path,
        *,
        url: str = "",
        data: Path | None = None,
    ) -> None:
        self.name = name
        self.directory = directory
        self._config = config
        self._url = url
        self._data = data
        self._spark = spark
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
        if self._url:
            writer = writer.option("url", self._url)
        if self._data is not None:
            writer = writer.option("data", str(self._data))
        if self._config.key is not None:
            writer = writer.option("key", self._config.key)
        interval = f"{self._config.interval_seconds} seconds"
        writer = (
            writer.trigger(availableNow=True) if once else writer.trigger(processingTime=interval)
        )
        return writer.start()

    def counters(self) -> Counters:
        return read_counters(self.directory)

    def preview(self) -> list[Preview]:
        """The first rows, and what they would become; nothing is published or noted."""
        found: list[Preview] = []

        def look(rows: DataFrame, batch: int) -> None:
            if not found:
                found.extend(_preview(*row) for row in rows.limit(_SHOWN).collect())

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
            return translated(rows_to_ingest(self._spark, self._config), self._config)
        except (AnalysisException, ParseException) as error:
            raise BadConfig(f"[ingest.{self.name}]: {_first_line(error)}") from None


def _preview(
    app: str | None,
    name: str | None,
    version: str | None,
    source: str | None,
    payload: bytearray | None,
    wrong: str | None,
    row: str | None,
) -> Preview:
    try:
        found = None if payload is None else bytes(payload)
        return Preview(row or "", update_from(app, name, version, source, found, wrong))
    except RoskvaError as error:
        return Preview(row or "", reason=str(error))


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
