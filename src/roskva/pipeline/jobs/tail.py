"""Object rows with what the feed has beyond them laid over."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from roskva.model import NO_VERSION

CURRENT_EPOCH = -1
"""Of a version that is yet to be applied: the one its shard is in by then."""


def with_tail(objects: DataFrame, tail: DataFrame) -> DataFrame:
    """The object rows as they will be when the matcher has caught up."""
    row, tail = objects.alias("row"), tail.alias("tail")
    reset = F.col("tail.mark").isNotNull()
    newer = F.coalesce(F.col("tail.version"), F.lit(NO_VERSION)) > F.coalesce(
        F.col("row.version"), F.lit(NO_VERSION)
    )

    def either(column: str, of_tail: Column) -> Column:
        return F.when(reset | newer, of_tail).otherwise(F.col(f"row.{column}")).alias(column)

    return row.join(tail, "object", "full").select(
        "object",
        either("version", F.col("tail.version")),
        F.coalesce("tail.mark", "row.mark", F.lit(0)).alias("mark"),
        either("epoch", F.lit(CURRENT_EPOCH)),
        either("published_at", F.col("tail.published_at")),
    )
