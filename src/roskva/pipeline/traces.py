"""`roskva-trace`: when sampled updates passed each stage, as a table for Spark."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import LongType, StringType, StructField, StructType

from roskva.disk import RealDisk
from roskva.errors import BadInput
from roskva.feed.base import START, Batch, Marker, Missing
from roskva.feed.reader import LogReader
from roskva.feed.record import META
from roskva.feed.trace import DIRECTORY

FORMAT: Final = "roskva-trace"
SCHEMA: Final = StructType(
    [
        StructField("object", StringType(), nullable=False),
        StructField("version", LongType(), nullable=False),
        StructField("stage", StringType(), nullable=False),
        StructField("at", LongType(), nullable=False),
    ]
)
"""`at` is wall-clock microseconds."""


def traces(spark: SparkSession, data: Path) -> DataFrame:
    spark.dataSource.register(TraceSource)
    return spark.read.format(FORMAT).load(str(data))


class _Log(InputPartition):
    def __init__(self, path: str) -> None:
        self.path = path


class TraceSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> "TraceReader":
        return TraceReader(Path(self.options["path"]))


class TraceReader(DataSourceReader):
    def __init__(self, data: Path) -> None:
        self._data = data

    def partitions(self) -> Sequence[InputPartition]:
        found = sorted((self._data / DIRECTORY).glob(f"*/{META}"))
        if not found:
            raise BadInput(f"{self._data} has no traces: the node has to be told to sample updates")
        return [_Log(str(meta.parent)) for meta in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Log)
        schema = to_arrow_schema(SCHEMA, timezone="UTC")
        reader = LogReader(RealDisk(), partition.path)
        after = START
        while isinstance(read := reader.read(Marker(reader.lineage, after)), Batch | Missing):
            after = read.last
            if isinstance(read, Batch):
                columns = [read.rows[name] for name in ("object", "version", "source")]
                yield pa.RecordBatch.from_arrays(
                    [*columns, read.rows["published_at"]], schema=schema
                )
