"""`roskva job NAME` as it is called: what it prints, what it writes, and how it ends.

The commands run in this process, on the session that all tests share: each would start another JVM.
"""

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from benchmarks.population import plain_states, write_population
from benchmarks.traces import write_traces
from pyspark.sql import SparkSession
from tests.pipeline.feeds import WrittenData, updates
from typer.testing import CliRunner, Result

from roskva.cli.main import application

CLIENTS, EACH, OBJECTS = 300, 4, 50
_FEW_TASKS = ("--conf", "spark.sql.shuffle.partitions=1")
_CHANGED = ("spark.sql.adaptive.enabled", "spark.sql.shuffle.partitions")


class Job:
    def __init__(self) -> None:
        self._app = application(["job"])

    def __call__(self, *words: str | Path) -> Result:
        return CliRunner().invoke(self._app, ["job", *map(str, words), *_FEW_TASKS])

    def json(self, *words: str | Path, code: int = 0) -> dict[str, Any]:
        done = self(*words, "--json")
        assert done.exit_code == code, done.output
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture
def job(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(SparkSession, "stop", lambda session: None)
    before = {key: spark.conf.get(key) for key in _CHANGED}
    yield Job()
    for key, value in before.items():
        spark.conf.set(key, value or "")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("population") / "data"
    write_population(path, CLIENTS, EACH, OBJECTS, shards=2)
    return path


def rows_of(file: Path) -> list[dict[str, Any]]:
    if file.suffix == ".parquet":
        found: list[dict[str, Any]] = pq.read_table(file).to_pylist()
        return found
    with file.open() as lines:
        return list(csv.DictReader(lines))


# What is wrong with a command is said before Spark starts: here it could not.


@pytest.mark.parametrize("name", ["audit", "gc", "latency", "replay", "plan"])
@pytest.mark.parametrize(
    ("out", "sentence"),
    [("rows.xlsx", ".parquet or .csv"), ("nowhere/rows.csv", "is no directory")],
)
def test_a_file_that_cannot_be_written_is_refused_before_spark_starts(
    name: str, out: str, sentence: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = Job()(name, data, "--out", tmp_path / out)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert "Java" not in done.output


@pytest.mark.parametrize("name", ["audit", "gc", "replay", "plan"])
def test_a_directory_without_data_is_refused_before_spark_starts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = Job()(name, tmp_path / "empty")
    assert done.exit_code == 2
    assert "Java" not in done.output


def test_without_java_the_exit_code_is_that_of_bad_configuration(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    done = Job()("audit", data)
    assert done.exit_code == 2
    assert "Java was not found" in done.stderr


def test_a_setting_of_spark_has_a_key_and_a_value(data: Path) -> None:
    done = Job()("audit", data, "--conf", "spark.ui.enabled")
    assert (done.exit_code, "KEY=VALUE" in done.stderr) == (2, True)


# What they print and write.


@pytest.mark.parametrize("suffix", [".parquet", ".csv"])
def test_audit_writes_who_has_not_heard(job: Job, data: Path, tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"behind{suffix}"
    found = job.json("audit", data, "--out", out)
    plain = plain_states({int(p.name[6:]): p / "store" for p in data.glob("shard-*")})
    assert {state: count for state, count in found["states"].items() if count} == plain
    written = rows_of(out)
    assert len(written) == found["registrations"] - plain["fresh"]
    assert {row["state"] for row in written} == plain.keys() - {"fresh"}
    assert all(bytes.fromhex(row["client"]) for row in written)
    assert list(tmp_path.iterdir()) == [out], "nothing is left beside it"


def test_audit_ends_with_how_many_are_stale(job: Job, data: Path) -> None:
    done = job("audit", data)
    assert done.exit_code == 0, done.output
    assert done.stdout.rstrip().endswith("0 stale")


def test_gc_that_is_dry_writes_who_would_be_forgotten(job: Job, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "gone.csv"
    found = job.json("gc", data, "--days", "1", "--dry-run", "--out", out)
    assert (found["clients"], found["forgotten"]) == (CLIENTS, None)
    assert len(rows_of(out)) == found["away"] + found["orphaned"] == CLIENTS


def test_gc_without_a_node_may_succeed_later(job: Job, data: Path) -> None:
    done = job("gc", data, "--days", "1")
    assert done.exit_code == 3
    assert "no node serves" in done.stderr


def test_latency_draws_and_writes_one_row_per_delivery(job: Job, tmp_path: Path) -> None:
    write_traces(tmp_path / "data", 50, bridged=False)
    out, plots = tmp_path / "deliveries.parquet", tmp_path / "plots"
    plots.mkdir()
    found = job.json("latency", tmp_path / "data", "--plots", plots, "--out", out)
    assert len(rows_of(out)) == found["deliveries"] == 150
    assert sorted(path.name for path in plots.iterdir()) == [
        *("latency-cdf.png", "latency-cdf.svg"),
        *("latency-stages.png", "latency-stages.svg"),
    ]


def test_latency_of_a_node_that_does_not_sample_is_bad_usage(job: Job, data: Path) -> None:
    done = job("latency", data)
    assert done.exit_code == 2
    assert "has no traces" in done.stderr


def test_replay_writes_what_it_brought_back_and_refuses_a_store_that_is_not_lost(
    job: Job, tmp_path: Path
) -> None:
    written = WrittenData(tmp_path / "data", shards=1)
    written.publish(*updates(["a/x", "a/y"], range(1, 4)))
    written.close()
    out = tmp_path / "rows.csv"
    found = job.json("replay", tmp_path / "data", "--shard", "0", "--out", out)
    assert (found["objects"], found["known"]) == (2, 2)
    rows = sorted((row["object"], row["version"], row["known"]) for row in rows_of(out))
    assert rows == [("a/x", "3", "true"), ("a/y", "3", "true")]
    again = job("replay", tmp_path / "data")
    assert again.exit_code == 2
    assert "is not lost" in again.stderr


@pytest.mark.parametrize("made_up", [True, False])
def test_plan_writes_one_row_per_process(
    job: Job, data: Path, tmp_path: Path, made_up: bool
) -> None:
    of = ["--clients", "200", "--objects", "50"] if made_up else [str(data)]
    out = tmp_path / "plan.parquet"
    found = job.json("plan", *of, "--registrars", "3", "--matchers", "2", "--out", out)
    assert [row["process"] for row in rows_of(out)] == [
        *("registrar-0", "registrar-1", "registrar-2", "state-0", "state-1")
    ]
    assert rows_of(out) == found["processes"]
