"""Flows of a source on Spark: what they publish, who is read for together, and what was lost."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.changes import NOW_US, WrittenChanges, changed, flow
from tests.pipeline.scripted_node import ScriptedNode
from tests.serving.nodes import await_that

from roskva.config import IngestConfig, SourceConfig, load
from roskva.disk import RealDisk
from roskva.feed.reader import LogReader
from roskva.feed.upkeep import Retention
from roskva.pipeline.flow import table_in_log
from roskva.pipeline.ingest import Ingest
from roskva.pipeline.publish_sink import NodeAt
from roskva.pipeline.source_flows import FlowStanding, SourceFlows, companies
from roskva.sources.change import version_of
from roskva.sources.losses import losses
from roskva.wire.admin import PartNow

PATIENCE_S = 60.0
ROOT = Path(__file__).parents[2]


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
        self.flows = SourceFlows(
            spark, "shop", settings, directories, node=lambda: NodeAt(node.url, "")
        )

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


def test_all_flows_cost_one_reading_of_the_log(
    spark: SparkSession, changes: WrittenChanges, node: ScriptedNode
) -> None:
    flows = {f"flow{i}": flow(name=f"concat('{i}/', name)") for i in range(5)}
    with Flowing(spark, changes, node, **flows) as flowing:
        flowing.through()
        changes.add(*(changed(key, 1) for key in range(20)))
        flowing.through()
        parts = flowing.until(lambda parts: all(_read_by(part) >= 20 for part in parts.values()))
    assert len(node.published) == 5 * 20
    # The changes once, and the milestones of the ranges; all five see the same batches.
    assert {_read_by(part) for part in parts.values()} == {20 + len(parts["flow0"].recent)}


def _read_by(part: PartNow) -> int:
    return sum(batch.rows for batch in part.recent)


def test_a_flow_that_lags_goes_alone_until_it_meets_the_others(
    spark: SparkSession, changes: WrittenChanges, node: ScriptedNode
) -> None:
    here = {"first": flow(name="concat('first/', name)"), "second": flow(name="concat('2/', name)")}
    changes.add(*(changed(i % 10, i) for i in range(25_000)))
    with Flowing(spark, changes, node, **here) as flowing:
        flowing.through()
    with Flowing(spark, changes, node, **here, late=flow()) as flowing:
        flowing.flows.tick()
        assert {n: part.together for n, part in flowing.parts().items()} == {
            "first": 2,
            "second": 2,
            "late": 1,
        }
        flowing.until(lambda parts: {part.together for part in parts.values()} == {3})
        changes.add(changed(1, 7))
        parts = flowing.through()
    assert (parts["late"].published, parts["late"].superseded) == (11, 24_990)
    assert parts["first"].published == 11
    versions = {n: [int(u["version"]) for u in us] for n, us in flowing.told().items()}
    assert all(found == sorted(set(found)) for found in versions.values())


def test_a_flow_that_fails_is_left_to_itself(
    spark: SparkSession, changes: WrittenChanges, node: ScriptedNode
) -> None:
    flows = {
        "good": flow(name="concat('good/', name)"),
        "fails": flow(filter="if(row.id = 666, raise_error('no'), true)"),
        "never": flow(name="no_such_column"),
        "fine": flow(name="concat('fine/', name)"),
    }
    changes.add(changed(1, 1))
    with Flowing(spark, changes, node, **flows) as flowing:
        flowing.until(lambda parts: all(parts[n].published for n in ("good", "fails", "fine")))
        changes.add(changed(666, 1))
        changes.add(changed(2, 2))
        end = changes.log.last
        parts = flowing.until(
            lambda parts: (
                parts["good"].marker == parts["fine"].marker == end
                and parts["good"].together == 2
                and parts["fails"].state == "failed"
            )
        )
    assert "no" in parts["fails"].last_error
    assert parts["fails"].lag_updates == 2
    assert "no_such_column" in parts["never"].last_error
    assert {"good/products/2", "fine/products/2"} <= flowing.told().keys()


def test_who_is_refused_for_now_holds_up_nobody_and_comes_back(
    spark: SparkSession, changes: WrittenChanges, node: ScriptedNode
) -> None:
    open_now = False

    def like_a_node(updates: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
        node.answers.append(like_a_node)
        results: list[dict[str, Any]] = []
        for update in updates:
            if update["name"].startswith("late/"):
                results.append({"error": {"code": "too_late", "text": "", "retriable": False}})
            elif update["name"].startswith("stuck/") and not open_now:
                results.append({"error": {"code": "unavailable", "text": "", "retriable": True}})
            else:
                node.published.append(update)
                results.append({"version": update["version"]})
        return 200, {"results": results}

    node.answers.append(like_a_node)
    flows = {
        "stuck": flow(name="concat('stuck/', name)"),
        "free": flow(),
        "late": flow(name="concat('late/', name)"),
    }
    with Flowing(spark, changes, node, **flows) as flowing:
        changes.add(changed(1, 1))
        flowing.until(lambda parts: parts["free"].published == 1)
        flowing.until(lambda parts: parts["stuck"].together == 1 and parts["free"].together == 2)
        changes.add(changed(2, 2))
        parts = flowing.until(lambda parts: parts["free"].published == 2)
        assert (parts["stuck"].published, parts["late"].late) == (0, 2)
        open_now = True
        parts = flowing.until(lambda parts: {part.together for part in parts.values()} == {3})
        assert parts["stuck"].published == 2
        assert (parts["late"].published, parts["late"].dead_letters) == (0, 0)


def test_what_is_gone_before_a_flow_has_read_it_is_a_doubt(
    spark: SparkSession, tmp_path: Path, node: ScriptedNode
) -> None:
    limit = Retention(max_age_us=None, last_resort_bytes=1 << 16)
    changes = WrittenChanges(tmp_path / "data", limit, segment_bytes=1 << 14)
    reader = LogReader(RealDisk(), str(changes.place / "changes"))
    changes.add(changed(1, 1))
    with Flowing(spark, changes, node, rows=flow()) as flowing:
        flowing.through()
        began = changes.log.last
    for key in range(600):
        changes.add(changed(key, 2))
    while changes.log.tidy(NOW_US):
        pass
    assert reader.end() > began
    assert reader.start() > began + 1
    with Flowing(spark, changes, node, rows=flow()) as flowing:
        flowing.until(lambda parts: parts["rows"].lost)
        [loss] = losses(RealDisk(), str(changes.place))
        assert f"lost the changes {began + 1} to {reader.start() - 1}" in loss.sentence
        changes.add(changed(1, 3))
        parts = flowing.until(lambda parts: parts["rows"].together == 0)
        assert parts["rows"].marker == began
        changes.doubt()
        parts = flowing.through()
    assert parts["rows"].lost == reader.start() - 1 - began
    assert losses(RealDisk(), str(changes.place)) == []
    assert flowing.told()["products/1"][-1]["version"] == str(version_of(1, changes.log.last - 1))
    changes.close()


def test_a_log_that_was_lost_as_a_whole_is_read_from_its_beginning(
    spark: SparkSession, changes: WrittenChanges, node: ScriptedNode
) -> None:
    changes.add(*(changed(key, 1) for key in range(50)))
    with Flowing(spark, changes, node, rows=flow()) as flowing:
        flowing.through()
        changes.begin_anew()
        changes.add(changed(1, 2))
        parts = flowing.through()
        [_, again] = flowing.told()["products/1"]
    assert again["version"] == str(version_of(2, 2))
    assert parts["rows"].lost == 0


def test_near_flows_are_read_for_together_and_trouble_stays_with_who_has_it() -> None:
    found = companies(
        {
            "new": FlowStanding(0),
            "here": FlowStanding(1000),
            "near": FlowStanding(995),
            "far": FlowStanding(700),
            "suspect": FlowStanding(1000, alone=True),
            "stuck": FlowStanding(10, stuck=True),
            "stuck-too": FlowStanding(990, stuck=True),
        },
        near=10,
    )
    assert set(found) == {
        frozenset(names)
        for names in (
            {"new"},
            {"here", "near"},
            {"far"},
            {"suspect"},
            {"stuck", "stuck-too"},
        )
    }
    assert companies(
        {"a": FlowStanding(0), "b": FlowStanding(8), "c": FlowStanding(16)}, near=10
    ) == [frozenset("abc")]


def test_what_flows_would_publish_can_be_seen_first(
    spark: SparkSession, changes: WrittenChanges, node: ScriptedNode
) -> None:
    changes.add(changed(1, 10), changed(2, "dear"), changed(3, 1, table="orders"))
    changes.doubt()
    settings = changes.settings(rows=flow(payload="row.price"))
    found = Ingest(spark, "rows", settings, changes.data / "pipeline").preview()
    assert [(p.update.name, p.update.version, p.update.payload) for p in found if p.update] == [
        ("products/1", str(version_of(1, 2)), b"10")
    ]
    assert ["not what the format expects" in p.reason for p in found if p.reason] == [True]
    assert node.requests == 0


def test_the_flows_of_the_documents_do_what_is_said_there(
    spark: SparkSession, changes: WrittenChanges, node: ScriptedNode, tmp_path: Path
) -> None:
    said = (ROOT / "docs/sources.md").read_text().partition("## Flows on Spark")[2]
    settings = tmp_path / "roskva.toml"
    settings.write_text(said.partition("```toml\n")[2].partition("```")[0])
    changes.add(changed(17, 9, 10), changed(18, 11, 10), changed(19, None, 10))
    with Flowing(spark, changes, node, **load(settings).ingest) as flowing:
        flowing.through()
        told = flowing.told()
    assert told.keys() == {"cheaper/17", "gone/19"}
    assert told["cheaper/17"][0]["payload"] == "eyJwcmljZSI6OX0="


def test_tables_are_found_however_the_settings_call_them() -> None:
    postgres = SourceConfig(url="postgresql://db/shop")
    mariadb = SourceConfig(url="mariadb://db/shop")
    assert [table_in_log(t, postgres) for t in (None, "a", "public.a", "shop.a")] == [
        *(None, "a", "a", "shop.a")
    ]
    assert [table_in_log(t, mariadb) for t in ("a", "shop.a", "public.a")] == ["a", "a", "public.a"]
