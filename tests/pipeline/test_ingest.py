"""Sources of all kinds, through Spark, to a node that notes what it is told."""

import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from tests.pipeline.scripted_node import ScriptedNode

from roskva.config import Config, IngestConfig, load
from roskva.errors import BadConfig
from roskva.pipeline.ingest import Ingest

EXAMPLES = Path(__file__).parents[2] / "examples/ingest"


@pytest.fixture
def node() -> Iterator[ScriptedNode]:
    with ScriptedNode() as node:
        yield node


class Ingesting:
    def __init__(self, spark: SparkSession, node: ScriptedNode, directory: Path) -> None:
        self._spark, self._node, self.directory = spark, node, directory

    def made(self, config: IngestConfig) -> Ingest:
        settings = Config(ingest={"test": config})
        return Ingest(self._spark, "test", settings, self.directory / "state", self._node.url)

    def run(self, config: IngestConfig) -> dict[str, dict[str, Any]]:
        """By object; each as the node was told it."""
        query = self.made(config).start(self.directory / "checkpoint", once=True)
        assert query.awaitTermination(120)
        return {f"{u.pop('app')}/{u.pop('name')}": u for u in self._node.published}

    def letters(self) -> list[dict[str, Any]]:
        files = sorted((self.directory / "state/dead-letters").glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.fixture
def ingesting(spark: SparkSession, node: ScriptedNode, tmp_path: Path) -> Ingesting:
    return Ingesting(spark, node, tmp_path)


@pytest.fixture
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, IngestConfig]:
    shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(tmp_path / "examples")
    found = load(Path("roskva.toml")).ingest
    # Spark counts relative paths from where its JVM was started.
    return {name: _at(config, tmp_path / "examples") for name, config in found.items()}


def _at(config: IngestConfig, where: Path) -> IngestConfig:

    return msgspec.structs.replace(config, path=f"{where}/{config.path}")


def test_example_of_a_directory_of_json(
    ingesting: Ingesting, examples: dict[str, IngestConfig]
) -> None:
    assert ingesting.run(examples["products"]) == {
        "catalog/product/1": {"version": "7", "payload": "eyJwcmljZSI6OS45NX0="},
        "catalog/product/2": {"version": "3", "payload": "eyJwcmljZSI6MTIwLjAwfQ=="},
    }


def test_example_of_a_parquet_table_written_by_another_job(
    spark: SparkSession, ingesting: Ingesting, examples: dict[str, IngestConfig]
) -> None:
    inventory = examples["inventory"]
    spark.createDataFrame(
        [("oslo", "x-1", 4), ("oslo", "x-2", 0)], "warehouse STRING, sku STRING, stock INT"
    ).selectExpr("*", "timestamp_micros(1700000000000000 + stock) AS changed").write.parquet(
        str(inventory.path)
    )
    assert ingesting.run(inventory) == {
        "stock/oslo/x-1": {"version": "1700000000000004", "payload": "NA=="},
        "stock/oslo/x-2": {"version": "1700000000000000", "payload": "MA=="},
    }


def test_example_of_a_change_log_in_csv(
    ingesting: Ingesting, examples: dict[str, IngestConfig]
) -> None:
    assert ingesting.run(examples["addresses"]) == {
        "contacts/alice": {"version": "1002"},
        "contacts/bob": {"version": "1003", "source": "phone-17"},
    }


def test_one_row_in_a_hundred_is_bad_and_all_others_are_published(
    node: ScriptedNode, ingesting: Ingesting
) -> None:
    dice = random.Random(1)
    lines, good, bad = [], 0, 0
    for i in range(5000):
        if dice.random() < 0.01:
            bad += 1
            wrong = dice.choice(["rubbish", "version", "name", "missing"])
            row = {
                "rubbish": '{"id": ',
                "version": json.dumps({"id": i, "revision": -1}),
                "name": json.dumps({"id": "a+b", "revision": 1}),
                "missing": json.dumps({"id": i}),
            }[wrong]
        else:
            good += 1
            row = json.dumps({"id": str(i), "revision": i})
        lines.append(row)
    source = ingesting.directory / "source"
    source.mkdir()
    (source / "rows.json").write_text("\n".join(lines))
    refused = {"code": "bad_input", "text": "name a version", "retriable": False}

    def like_a_node(updates: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        node.published += [update for update in updates if "version" in update]
        node.answers.append(like_a_node)
        results = [{"version": "1"} if "version" in u else {"error": refused} for u in updates]
        return 200, {"results": results}

    node.answers.append(like_a_node)
    config = IngestConfig(
        path=str(source),
        columns="id STRING, revision BIGINT",
        app="'app'",
        name="id",
        version="revision",
    )
    found = ingesting.run(config)
    counters = ingesting.made(config).counters()
    assert (counters.rows, counters.published, counters.dead) == (5000, good, bad)
    assert len(found) == good
    letters = ingesting.letters()
    assert len(letters) == bad
    assert all(letter["reason"] for letter in letters)
    assert bad > 20


def test_what_cannot_be_computed_is_a_dead_letter(ingesting: Ingesting) -> None:
    source = ingesting.directory / "source"
    source.mkdir()
    (source / "rows.csv").write_text("a,12\nb,twelve\nc,0\n")
    config = IngestConfig(
        format="csv",
        path=str(source),
        columns="id STRING, number STRING",
        app="'app'",
        name="id",
        version="cast(120 / cast(number AS INT) AS BIGINT)",
        payload="number",
    )
    node_wants_versions = ingesting.run(config)
    assert node_wants_versions["app/a"] == {"version": "10", "payload": "MTI="}
    assert ingesting.made(config).counters().rows == 3


def test_a_dry_run_shows_what_the_first_rows_would_become(
    node: ScriptedNode, ingesting: Ingesting, examples: dict[str, IngestConfig]
) -> None:
    with (Path(str(examples["products"].path)) / "bad.json").open("w") as file:
        file.write('{"id": 4, "revision": -1}\n')
    found = ingesting.made(examples["products"]).preview()
    assert {p.update.name for p in found if p.update is not None} == {"product/1", "product/2"}
    [reason] = [p.reason for p in found if p.update is None]
    assert "a version is a whole number" in reason
    assert node.requests == 0
    assert not (ingesting.directory / "state").exists()


def test_what_is_wrong_with_the_settings_is_said_in_a_sentence(ingesting: Ingesting) -> None:
    config = IngestConfig(path=str(ingesting.directory), columns="id STRING", name="no_such_column")
    with pytest.raises(BadConfig, match=r"\[ingest.test\].*cannot be resolved"):
        ingesting.made(config).start(ingesting.directory / "checkpoint")
