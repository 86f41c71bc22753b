"""Changes of a source as columns, and the SQL that flows have over them.

| column | |
|---|---|
| `op` | `insert`, `update` or `delete` |
| `table`, `key` array | which row |
| `app`, `name` | the object that the row is, as the direct flow publishes it |
| `row`, `before` struct | the columns that were asked for, after the change and before it |
| `missing` array | columns of `row` that the change left alone and the database did not send |
| `transaction`, `at` | by whom and when it was committed |
| `version` | of the change: it rises, whatever the database does |

What cannot be read as these columns has its text in `_corrupt_record`.

Several flows are one projection over the same rows: each has its own reading of the record, as its
columns are its own, and a row becomes as many updates as flows want it. A flow names its columns
as if it were alone, so its SQL is a subquery over one row; Spark makes plain expressions of it.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from roskva.config import IngestConfig
from roskva.errors import BadConfig

CORRUPT: Final = "_corrupt_record"
MILESTONE: Final = -1
"""In place of a flow's number: this row is a milestone of the reader, and in its payload."""

_LOG: Final = "offset BIGINT, object STRING, version BIGINT, payload BINARY, published_at TIMESTAMP"
_APP: Final = "substring_index(object, '/', 1)"
_NAME: Final = "substring(object, instr(object, '/') + 1)"
_OF_THE_ROW: Final = {"app", "name", "table", "key"}
"""What is the same in all changes of a row."""
_ALL: Final = "row STRING, before STRING"
"""Without columns they are text: JSON, as it stands in the log."""


def change_rows(log: DataFrame, columns: str | None = None, table: str | None = None) -> DataFrame:
    """`log`: rows of `roskva-changes`; `columns`: those of the table that are wanted, as in
    `id BIGINT, price INT`."""
    changes = log.where("substring(object, -1) != '/'")  # a doubt is about the app
    if table is not None:
        changes = changes.where(F.split_part("object", F.lit("/"), F.lit(2)) == table)
    read = changes.withColumn("_body", _body(columns))
    return read.selectExpr(*(f"{sql} AS {name}" for name, sql in _columns("_body").items()))


def _body(columns: str | None) -> Column:
    rows = _ALL if columns is None else f"row STRUCT<{columns}>, before STRUCT<{columns}>"
    schema = (
        f"table STRING, op STRING, key ARRAY<STRING>, transaction STRING, {rows}, "
        f"missing ARRAY<STRING>, {CORRUPT} STRING"
    )
    return F.from_json(F.col("payload").cast("string"), schema, {_KEEP: CORRUPT})


_KEEP: Final = "columnNameOfCorruptRecord"


def _columns(body: str) -> dict[str, str]:
    own = ("op", "table", "key", "transaction", "row", "before")
    return {
        **{name: f"{body}.{name}" for name in own},
        "missing": f"coalesce({body}.missing, array())",
        "app": _APP,
        "name": _NAME,
        "at": "published_at",
        "version": "version",
        CORRUPT: f"{body}.{CORRUPT}",
    }


# What a flow makes of them.


class FlowSql(msgspec.Struct, frozen=True):
    """What is needed to read for a flow together with others. Made by `flow_sql`."""

    ingest: IngestConfig
    binary: bool
    """Its payload is, and need not become so."""
    last_only: bool
    """Of the changes of a row that come together the last says it all: whether it counts, and
    under which name, is the same for each."""


def flow_sql(spark: SparkSession, name: str, ingest: IngestConfig) -> FlowSql:
    """Or BadConfig, with what is wrong in its SQL."""
    try:
        rows = change_rows(spark.createDataFrame([], _LOG), ingest.columns)
        rows.selectExpr(ingest.name, ingest.source or "NULL")
        if ingest.filter is not None:
            rows.where(ingest.filter)
        payload = "NULL" if ingest.payload is None else ingest.payload
        binary = isinstance(rows.selectExpr(payload).schema[0].dataType, BinaryType)
    except (AnalysisException, ParseException) as error:
        first_line = str(error).strip().splitlines()[0]
        raise BadConfig(f"[ingest.{name}]: {first_line}") from None
    given = [sql for sql in (ingest.name, ingest.filter) if sql is not None]
    last_only = ingest.source is None and _columns_in(rows.selectExpr(*given)) <= _OF_THE_ROW
    return FlowSql(ingest, binary, last_only)


def _columns_in(rows: DataFrame) -> set[str]:
    """Those that it was computed from."""
    found = rows._jdf.queryExecution().analyzed().references().toSeq()
    return {found.apply(i).name() for i in range(found.size())}


class Boarding(msgspec.Struct, frozen=True):
    """A flow that is read for, and from where on."""

    sql: FlowSql
    after: int
    prefix: str
    """Of the objects that are its table's; of all if it is empty."""


def updates_of_flows(log: DataFrame, flows: Sequence[Boarding]) -> DataFrame:
    """Of rows with an offset, what each flow makes of them: `flow` is its number here. Flows that
    want the same columns of the same table share the reading of a record."""
    bodies: dict[tuple[str, str | None], str] = {}
    for flow in flows:
        bodies.setdefault((flow.prefix, flow.sql.ingest.columns), f"_body{len(bodies)}")
    read = log.select(
        *("offset", "object", "version", "published_at", "payload"),
        *(_wanted(*which).alias(body) for which, body in bodies.items()),
    )
    outputs = [_MILESTONE]
    for number, flow in enumerate(flows):
        outputs.append(_output(number, flow, bodies[flow.prefix, flow.sql.ingest.columns]))
    made = read.selectExpr("offset", "version", f"array({', '.join(outputs)}) AS outs")
    each = made.select("offset", "version", F.explode("outs").alias("out"))
    return each.where("out IS NOT NULL").select("offset", "version", "out.*")


_MILESTONE: Final = (
    f"IF(object IS NULL, named_struct('flow', {MILESTONE}, 'name', CAST(NULL AS STRING), 'source', "
    "CAST(NULL AS STRING), 'payload', payload, 'wrong', CAST(NULL AS STRING)), NULL)"
)


def _wanted(prefix: str, columns: str | None) -> Column:
    """Null for what is no change of that table."""
    named = F.col("object").startswith(prefix) if prefix else F.col("object").isNotNull()
    return F.when(named, _body(columns))


def _output(number: int, flow: Boarding, body: str) -> str:
    ingest = flow.sql.ingest
    columns = ", ".join(f"{sql} AS {name}" for name, sql in _columns(body).items())
    kept = "true" if ingest.filter is None else f"(coalesce(({ingest.filter}\n), false) OR _wrong)"
    payload = "CAST(NULL AS BINARY)"
    if ingest.payload is not None:
        text = ingest.payload if flow.sql.binary else f"CAST(({ingest.payload}\n) AS STRING)"
        payload = f"CAST(({text}\n) AS BINARY)"
    return (
        f"(SELECT IF(offset > {flow.after} AND _there AND {kept}, "
        f"named_struct('flow', {number}, 'name', CAST(({ingest.name}\n) AS STRING), 'source', "
        f"CAST(({ingest.source or 'NULL'}\n) AS STRING), 'payload', {payload}, "
        f"'wrong', {CORRUPT}), NULL) FROM (SELECT {columns}, "
        f"{body} IS NOT NULL AS _there, {body}.{CORRUPT} IS NOT NULL AS _wrong))"
    )
