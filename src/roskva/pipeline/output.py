"""A DataFrame as one file, and how far Spark is with making it."""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from roskva.errors import BadInput

if TYPE_CHECKING:  # what is wrong with a path is said before Spark is even loaded
    from pyspark.sql import DataFrame, SparkSession

_SUFFIXES: Final = {".parquet": "parquet", ".csv": "csv"}


def writer(path: Path | None) -> "Callable[[DataFrame], None] | None":
    """Writes one file, Parquet or CSV by its suffix; the directory must be there."""
    if path is None:
        return None
    if path.suffix not in _SUFFIXES:
        raise BadInput(f"{path}: the suffix says what is written, {' or '.join(_SUFFIXES)}")
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent} is no directory")
    return lambda table: _write(table, path)


def _write(table: "DataFrame", path: Path) -> None:
    kind = _SUFFIXES[path.suffix]
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as parts:
        target = f"{parts}/{kind}"
        table.coalesce(1).write.format(kind).option("header", True).save(f"file://{_whole(target)}")
        [made] = Path(target).glob(f"part-*.{kind}")
        shutil.move(made, path)


def _whole(path: str) -> str:
    return str(Path(path).resolve())


class Tasks:
    """How many tasks Spark has done, of those it knows of so far."""

    def __init__(self, spark: "SparkSession") -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._stages: dict[int, tuple[int, int]] = {}

    def look(self) -> tuple[int, int]:
        for number, (_, total) in list(self._stages.items()):
            self._stages[number] = (total, total)  # done, unless it is found to be active
        for number in self._tracker.getActiveStageIds():
            stage = self._tracker.getStageInfo(number)
            if stage is not None:
                self._stages[number] = (stage.numCompletedTasks, stage.numTasks)
        done, totals = zip(*self._stages.values(), strict=True) if self._stages else ((0,), (0,))
        return sum(done), sum(totals)
