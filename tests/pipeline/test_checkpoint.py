"""Checkpoints of Spark: who may use one, and one that was cut off."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.pipeline.feeds import WrittenData, updates

from roskva.pipeline.checkpoint import Checkpoint, CheckpointInUse, repair
from roskva.pipeline.source import FeedSource

KEYS = [f"app/object-{i}" for i in range(10)]


def test_a_second_run_is_refused_and_told_why(tmp_path: Path) -> None:
    with Checkpoint(tmp_path / "bridge"), pytest.raises(CheckpointInUse, match=str(os.getpid())):
        Checkpoint(tmp_path / "bridge").__enter__()
    with Checkpoint(tmp_path / "bridge"):
        pass


def test_the_lock_outlives_its_owner_in_those_who_inherited_it(tmp_path: Path) -> None:
    with Checkpoint(tmp_path / "bridge") as checkpoint:
        jvm = subprocess.Popen(["sleep", "60"], pass_fds=[checkpoint.lock])
    with pytest.raises(CheckpointInUse):
        Checkpoint(tmp_path / "bridge").__enter__()
    jvm.kill()
    jvm.wait()
    with Checkpoint(tmp_path / "bridge"):
        pass


def test_the_lock_goes_with_a_killed_run(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; "
        "from roskva.pipeline.checkpoint import Checkpoint; "
        "Checkpoint(Path(sys.argv[1])).__enter__(); print('held', flush=True); time.sleep(60)"
    )
    run = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE)
    assert run.stdout is not None
    with run.stdout:
        assert run.stdout.readline() == b"held\n"
        with pytest.raises(CheckpointInUse, match=str(run.pid)):
            Checkpoint(tmp_path).__enter__()
        run.kill()
        run.wait()
    with Checkpoint(tmp_path):
        pass


def test_nothing_is_repaired_where_nothing_is_wrong(tmp_path: Path) -> None:
    assert repair(tmp_path / "never-written") == []


def test_what_a_killed_run_was_writing_does_not_pile_up(tmp_path: Path) -> None:
    log = tmp_path / "spark" / "offsets"
    log.mkdir(parents=True)
    for name in (".2.652d141b.tmp", "..2.652d141b.tmp.crc"):
        (log / name).write_text("v1")
    with Checkpoint(tmp_path) as checkpoint:
        assert list(log.iterdir()) == []
    assert checkpoint.repaired == []


class Query:
    """A stream from a feed into files, run to its end as often as it is asked to."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        spark.dataSource.register(FeedSource)
        self.spark = spark
        self.data = WrittenData(directory / "data")
        self.checkpoint = directory / "checkpoint"
        self.seen: set[tuple[int, int]] = set()

    def run(self, checkpoint: Path) -> None:
        def note(rows: DataFrame, batch: int) -> None:
            self.seen |= {tuple(row) for row in rows.select("shard", "offset").collect()}

        query = (
            self.spark.readStream.format("roskva-feed")
            .load(str(self.data.path))
            .writeStream.foreachBatch(note)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Query:
    query = Query(spark, tmp_path_factory.mktemp("ran"))
    for version in (1, 2):
        query.data.publish(*updates(KEYS, range(version, version + 1)))
        query.run(query.checkpoint)
    query.data.publish(*updates(KEYS, range(3, 4)))
    assert len(query.seen) == 20
    assert repair(query.checkpoint) == []
    return query


@pytest.fixture
def left(ran: Query, tmp_path: Path) -> Path:
    """The checkpoint of a query that ran twice; there is more for it to do."""
    shutil.copytree(ran.checkpoint, tmp_path / "checkpoint")
    return tmp_path / "checkpoint"


def newest(log: Path) -> Path:
    return max(log.glob("[0-9]*"), key=lambda file: int(file.name))


def cut(file: Path, to: int) -> None:
    content = file.read_bytes()
    file.unlink()
    file.write_bytes(content[: min(to, len(content) - 1)])


@pytest.mark.parametrize("part", ["offsets", "commits"])
@pytest.mark.parametrize("length", [0, 1, 3, 40, 1000])
def test_a_newest_entry_that_was_cut_off_is_removed_loudly(
    left: Path, part: str, length: int
) -> None:
    entry = newest(left / part)
    cut(entry, length)
    [sentence, *_] = repair(left)
    assert str(entry) in sentence
    assert "done again" in sentence
    assert not entry.exists()
    assert repair(left) == []


def test_sums_that_were_cut_off_are_found_too(left: Path) -> None:
    entry = newest(left / "offsets")
    cut(entry.with_name(f".{entry.name}.crc"), 5)
    assert repair(left)
    assert not entry.exists()


def test_older_entries_are_never_touched(left: Path) -> None:
    oldest = left / "offsets/0"
    cut(oldest, 3)
    assert repair(left) == []
    assert oldest.read_bytes() == b"v1\n"


@pytest.mark.parametrize("part", ["offsets", "commits", "metadata"])
def test_after_a_repair_the_query_goes_on_and_misses_nothing(
    ran: Query, left: Path, part: str
) -> None:
    cut(left / part if part == "metadata" else newest(left / part), 2)
    assert repair(left)
    ran.seen.clear()
    ran.run(left)
    again = 10 if part == "metadata" else 20
    assert len(ran.seen) == again
