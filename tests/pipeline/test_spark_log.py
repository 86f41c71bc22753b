"""What Spark prints, bounded, and without what is no news."""

import os
from pathlib import Path

from tests.serving.nodes import await_that

from roskva.pipeline.spark_log import SparkLog, worth_reading

HUNG_UP = [
    b"Traceback (most recent call last):\n",
    b'  File "pyspark/daemon.py", line 264, in manager\n',
    b'  File "pyspark/daemon.py", line 95, in worker\n',
    b"BrokenPipeError: [Errno 32] Broken pipe\n",
]
FAILED = [
    b"Traceback (most recent call last):\n",
    b'  File "roskva/pipeline/bridge.py", line 1, in read\n',
    b"roskva.errors.Damaged: it is damaged\n",
]


def test_a_worker_that_was_hung_up_on_is_no_news_and_one_that_failed_is() -> None:
    printed = [b"before\n", *HUNG_UP, *FAILED, *HUNG_UP, b"after\n"]
    assert list(worth_reading(printed)) == [b"before\n", *FAILED, b"after\n"]


def test_a_traceback_that_is_cut_off_or_never_ends_is_kept() -> None:
    assert list(worth_reading(HUNG_UP[:2])) == HUNG_UP[:2]
    endless = [HUNG_UP[0], *([HUNG_UP[1]] * 500), HUNG_UP[3]]
    assert list(worth_reading(endless)) == endless


def test_it_stays_within_its_bounds_and_the_latest_is_there(tmp_path: Path) -> None:
    file = tmp_path / "spark.log"
    log = SparkLog(file, max_bytes=1000)
    log.say("Spark starts")
    with os.fdopen(log.pipe(), "wb") as printer:
        for number in range(1000):
            printer.write(b"line %d\n" % number)
    await_that(lambda: file.exists() and file.read_bytes().endswith(b"line 999\n"), 60.0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spark.log", "spark.log.1"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())
    before, now = (tmp_path / "spark.log.1").read_bytes(), file.read_bytes()
    assert b"line %d\n" % (int(now.split()[1]) - 1) == before.splitlines(True)[-1]


def test_a_start_is_told_with_its_time_and_goes_on_below_the_last(tmp_path: Path) -> None:
    for _ in range(2):
        log = SparkLog(tmp_path / "spark.log")
        log.say("Spark starts")
        os.close(log.pipe())
    lines = (tmp_path / "spark.log").read_text().splitlines()
    assert [line.split(" ", 2)[2] for line in lines] == ["roskva: Spark starts"] * 2
