"""Rows of any source as updates: by the SQL of an `[ingest.NAME]` table, and nothing else."""

from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from roskva.config import IngestConfig

TRANSLATED: Final = StructType(
    [
        StructField("app", StringType()),
        StructField("name", StringType()),
        StructField("version", StringType()),
        StructField("source", StringType()),
        StructField("payload", BinaryType()),
        StructField("wrong", StringType()),
        StructField("row", StringType()),
    ]
)
"""All as text: whoever publishes them says what is wrong with which. `wrong`: the source itself
could not make sense of this; `row`: what there was, as JSON."""

_CORRUPT: Final = "_corrupt_record"
_MAY_BE_CORRUPT: Final = ("json", "csv", "xml")


def rows_to_ingest(spark: SparkSession, ingest: IngestConfig) -> DataFrame:
    reader = spark.readStream.format(ingest.format)
    for name, value in (ingest.options or {}).items():
        reader = reader.option(name, value)
    if ingest.columns is not None:
        columns = ingest.columns
        if ingest.format in _MAY_BE_CORRUPT and _CORRUPT not in columns:
            columns += f", {_CORRUPT} STRING"
        reader = reader.schema(columns)
    return reader.load() if ingest.path is None else reader.load(ingest.path)


def translated(rows: DataFrame, ingest: IngestConfig) -> DataFrame:
    """As `TRANSLATED`. Rows for which the filter is not true are left out, unless they are corrupt:
    of those nobody knows."""
    corrupt = F.col(_CORRUPT) if _CORRUPT in rows.columns else F.lit(None).cast("string")
    if ingest.filter is not None:
        rows = rows.where(F.expr(ingest.filter) | corrupt.isNotNull())
    given = [name for name in rows.columns if name != _CORRUPT]
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
