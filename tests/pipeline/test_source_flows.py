"""Flows of a source on Spark: what they publish, who is read for together, and what was lost."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.changes import WrittenChanges, changed, flow
from tests.pipeline.scripted_node import ScriptedNode
from tests.serving.nodes import await_that

from roskva.config import IngestConfig
from roskva.pipeline.publish_sink import NodeAt
from roskva.pipeline.source_flows import SourceFlows
from roskva.sources.change import version_of
from roskva.wire.admin import PartNow

PATIENCE_S = 60.0


@pytest.fixture
def node() -> Iterator[ScriptedNode]:
    with ScriptedNode() as node:
        yield node


@pytest.fixture
def changes(tmp_path: Path) -> Iterator[WrittenChanges]:
    written = WrittenChanges(tmp_path / "data")
    yield written
    written.close()


class Flowing:
    """Used as a context: the flows of `shop`, until its end."""

    def __init__(
        self,
        spark: SparkSession,
        changes: WrittenChanges,
        node: ScriptedNode,
        **flows: IngestConfig,
    ) -> None:
        directories = {name: changes.data / "pipeline" / f"ingest-{name}" for name in flows}
        settings = changes.settings(**flows)
        self.changes, self.directories = changes, directories
        self._node = node
        self.flows = SourceFlows(spark, "shop", settings, directories, node=NodeAt(node.url, ""))

    def __enter__(self) -> "Flowing":
        return self

    def __exit__(self, *_: object) -> None:
        self.flows.stop()

    def parts(self) -> dict[str, PartNow]:
        return {part.name.removeprefix("ingest "): part for part in self.flows.parts}

    def until(self, found: Callable[[dict[str, PartNow]], object]) -> dict[str, PartNow]:
        def look() -> bool:
            self.flows.tick()
            return bool(found(self.parts()))

        await_that(look, PATIENCE_S, lambda: str(self.parts()))
        return self.parts()

    def through(self) -> dict[str, PartNow]:
        """Everybody, with everything."""
        end = self.changes.log.last
        return self.until(lambda parts: all(part.marker == end for part in parts.values()))

    def told(self) -> dict[str, list[dict[str, Any]]]:
        found: dict[str, list[dict[str, Any]]] = {}
        for update in self._node.published:
            found.setdefault(update["name"], []).append(update)
        return found


def test_flows_make_updates_of_rows_by_their_sql(
    spark: SparkSession, changes: WrittenChanges, node: ScriptedNode
) -> None:
    changes.add(changed(1, 10, op="insert"), changed(2, 20, op="insert"))
    changes.add(changed(1, 30, 10), changed(2, 15, 20), changed(7, 1, table="orders"))
    changes.add(changed(2, None, 15), changed(3, "dear", op="insert"))
    with Flowing(
        spark,
        changes,
        node,
        rows=flow(payload="to_json(row)"),
        dearer=flow(name="concat('dearer/', key[0])", filter="row.price > before.price"),
        gone=flow(
            name="concat(table, '-gone/', key[0])", filter="op = 'delete'", payload="before.price"
        ),
        orders=flow(table="orders", columns=None, payload="row"),
    ) as flowing:
        parts = flowing.through()
        told = flowing.told()
    assert {name: [u["version"] for u in us] for name, us in told.items()} == {
        "products/1": [str(version_of(1, 4))],
        "products/2": [str(version_of(1, 7))],
        "dearer/1": [str(version_of(1, 4))],
        "products-gone/2": [str(version_of(1, 7))],
        "orders/7": [str(version_of(1, 6))],
    }
    assert "payload" not in told["products/2"][0]
    assert told["orders/7"][0]["payload"] == "eyJpZCI6NywicHJpY2UiOjF9"
    assert told["products-gone/2"][0]["payload"] == "MTU="
    rows = parts["rows"]
    assert (rows.published, rows.superseded, rows.dead_letters) == (2, 3, 1)
    assert rows.lag_updates == 0
    [letter] = (flowing.directories["rows"] / "dead-letters").glob("*.jsonl")
    found = json.loads(letter.read_text())
    assert "dear" in found["reason"]
    assert found["row"]["row"] == {"id": 3, "price": "dear"}
    assert {part.together for part in parts.values()} == {4}
