"""Rows become updates, or dead letters; none of them stops the others."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from tests.pipeline.scripted_node import ScriptedNode

from roskva.pipeline.publish_sink import (
    TRANSLATED,
    Counters,
    DeadLetters,
    NodeAt,
    Written,
    delete_dead_letters,
    publish_rows,
    read_counters,
    write_counters,
)

SCHEMA = to_arrow_schema(TRANSLATED, timezone="UTC")
Row = dict[str, Any]


@pytest.fixture
def node() -> Iterator[ScriptedNode]:
    with ScriptedNode() as node:
        yield node


class Ingested:
    def __init__(self, node: ScriptedNode, directory: Path) -> None:
        self._url = node.url
        self._file = directory / "dead-letters" / "1.jsonl"

    def ingest(self, *rows: Row) -> Written:
        full = [{name: row.get(name) for name in SCHEMA.names} for row in rows]
        done = Written()
        with DeadLetters(self._file) as dead:
            with closing(NodeAt(self._url, "")) as node:
                publish_rows(pa.RecordBatch.from_pylist(full, schema=SCHEMA), node, dead, done)
            done.dead = dead.count
        return done

    def letters(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._file.read_text().splitlines()]


@pytest.fixture
def ingested(node: ScriptedNode, tmp_path: Path) -> Ingested:
    return Ingested(node, tmp_path)


def row(name: str | None = "a", version: str | None = "1", **more: Any) -> Row:
    given = {"app": "app", "name": name, "version": version, "row": json.dumps({"id": name})}
    return {**given, **more}


def test_good_rows_are_published_as_they_are(node: ScriptedNode, ingested: Ingested) -> None:
    done = ingested.ingest(row("a", "5", source="phone", payload=b"\xff"), row("b", None))
    assert done == Written(rows=2, published=2)
    assert node.published == [
        {"app": "app", "name": "a", "version": "5", "source": "phone", "payload": "/w=="},
        {"app": "app", "name": "b"},
    ]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (row(None), "name is null"),
        (row(app=None), "app is null"),
        (row(app="No Such App"), "an app is 1 to 63"),
        (row("x" * 300), "a name is 1 to 255 bytes"),
        (row("a+b"), "a name has no control characters"),
        (row(version="-1"), "a version is a whole number"),
        (row(version="1.5"), "a version is a whole number"),
        (row(version="9223372036854775808"), "a version is a whole number"),
        (row(version="9" * 5000), "a version is a whole number"),
        (row(version="٣"), "a version is a whole number"),
        (row(wrong="{rubbish"), "not what the format expects: {rubbish"),
    ],
)
def test_a_bad_row_is_kept_with_its_reason_and_stops_nobody(
    ingested: Ingested, bad: Row, reason: str
) -> None:
    done = ingested.ingest(row("first"), bad, row("last"))
    assert (done.published, done.dead) == (2, 1)
    [letter] = ingested.letters()
    assert reason in letter["reason"]
    assert letter["row"] == json.loads(bad["row"])


def test_what_the_node_refuses_is_a_dead_letter_too(node: ScriptedNode, ingested: Ingested) -> None:
    refused = {"code": "too_large", "text": "a payload has at most 8 bytes", "retriable": False}
    node.answers = [lambda updates: (200, {"results": [{"version": "1"}, {"error": refused}]})]
    done = ingested.ingest(row("a"), row("b"))
    assert (done.published, done.dead) == (1, 1)
    [letter] = ingested.letters()
    assert letter["reason"] == "a payload has at most 8 bytes (too_large)"


def test_what_cannot_be_taken_now_is_sent_again(node: ScriptedNode, ingested: Ingested) -> None:
    busy = {"code": "unavailable", "text": "not now", "retriable": True}
    node.answers = [
        lambda updates: (503, {"error": busy}),
        lambda updates: (200, {"results": [{"version": "1"}, {"error": busy}]}),
    ]
    assert ingested.ingest(row("a"), row("b")) == Written(rows=2, published=2)
    assert [update["name"] for update in node.published] == ["b"]


def test_of_rows_that_come_together_the_last_word_is_published(
    node: ScriptedNode, ingested: Ingested
) -> None:
    done = ingested.ingest(row("a", "9", source="phone"), row("a", "10"), row("a", "8"))
    assert done == Written(rows=3, published=1, superseded=2)
    assert node.published == [{"app": "app", "name": "a", "version": "10"}]


def test_where_versions_are_assigned_the_last_row_counts(
    node: ScriptedNode, ingested: Ingested
) -> None:
    ingested.ingest(row("a", None, payload=b"1"), row("a", None, payload=b"2"))
    assert [update["payload"] for update in node.published] == ["Mg=="]


def test_requests_stay_within_what_a_node_takes(node: ScriptedNode, ingested: Ingested) -> None:
    done = ingested.ingest(*(row(f"o{i}", payload=b"x" * 1000) for i in range(2500)))
    assert done.published == 2500
    assert node.requests == 4


def test_a_micro_batch_done_again_replaces_its_dead_letters_and_counts_once(
    node: ScriptedNode, ingested: Ingested, tmp_path: Path
) -> None:
    for _ in range(2):
        done = ingested.ingest(row(None), row("a"))
        write_counters(tmp_path, read_counters(tmp_path).plus(1, [done]))
    assert len(ingested.letters()) == 1
    assert read_counters(tmp_path) == Counters(1, rows=2, published=1, dead=1)


def test_dead_letters_appear_when_they_are_complete(tmp_path: Path) -> None:
    file = tmp_path / "dead.jsonl"
    dead = DeadLetters(file)
    dead.add("why", None)
    assert not file.exists()
    dead.__exit__(RuntimeError, None, None)
    assert list(tmp_path.iterdir()) == []
    with DeadLetters(file):
        pass
    assert list(tmp_path.iterdir()) == []


def test_dead_letters_that_are_old_go_and_others_stay(tmp_path: Path) -> None:
    letters = tmp_path / "dead-letters"
    letters.mkdir()
    old, new = letters / "1.jsonl", letters / "2.jsonl"
    for file, days in ((old, 31), (new, 29)):
        file.write_text("{}")
        os.utime(file, (time.time() - days * 86_400,) * 2)
    delete_dead_letters(tmp_path, None)
    assert old.exists()
    delete_dead_letters(tmp_path, 30)
    assert (old.exists(), new.exists()) == (False, True)
