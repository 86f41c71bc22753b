"""`roskva status`: what a node says, for people and for scripts."""

import json
import time
from typing import Any

import pytest
import typer
from tests.cli.fake_node import FakeNode
from typer.testing import CliRunner, Result

from roskva.cli import status
from roskva.cli.options import add_commands

app = typer.Typer()
add_commands(app, status.__name__)

A_NODE: dict[str, Any] = {
    "version": "0.1.0",
    "started_at": time.time() - 7300,
    "processes": [
        {
            "name": "registrar-0",
            "role": "registrar",
            "pid": 4711,
            "rss_bytes": 100 << 20,
            "cpu_seconds": 12.34,
            "counters": {"published": 3, "refused": 0},
            "sessions": {"websocket": 1200, "mqtt": 3, "events": 1},
        },
        {"name": "registrar-1", "counters": {"published": 4}, "from": "a later version"},
    ],
    "shards": [
        {
            "shard": 1,
            "epoch": "77",
            "applied": 90,
            "feed_end": 100,
            "objects": 12345,
            "links": 2,
            "ways": {"fast": 3, "bridge": 40},
        },
        {
            "shard": 0,
            "epoch": "1099511627776",
            "applied": 5,
            "feed_end": 5,
            "process": "state-0",
            "ways": {"bridge": 2, "own": 1},
            "reads_alone": True,
        },
    ],
}


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words, env={"COLUMNS": "120"})


def rows(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines() if line.strip()]


def test_processes_shards_and_counters_are_shown(node: FakeNode) -> None:
    node.answer = lambda *_: (200, A_NODE)
    result = run("--url", node.url)
    assert result.exit_code == 0
    assert rows(result.stdout) == [
        ["roskva", "0.1.0,", "up", "2", "hours"],
        ["process", "role", "pid", "memory", "CPU", "websocket", "mqtt", "events", "own"],
        ["registrar-0", "registrar", "4711", "100", "MiB", "12.3", "s", "1,200", "3", "1", "0"],
        ["registrar-1", "0", "0", "MiB", "0.0", "s", "0", "0", "0", "0"],
        [
            "shard",
            "process",
            "epoch",
            "applied",
            "feed",
            "end",
            "lag",
            "objects",
            "links",
            "collected",
        ],
        ["0", "state-0", "1099511627776", "5", "5", "0", "0", "0", "0,", "at", "0%"],
        ["1", "77", "90", "100", "10", "12,345", "2", "0,", "at", "0%"],
        *rows(
            "updates came to their shards: 3 by the fast path, 42 by the bridge, 1 by itself "
            "(0 when it started)\n"
            "no bridge brings what is not on the fast path: shard 0 reads it"
        ),
        ["counted", "since", "the", "start"],
        ["published", "7"],
    ]
    assert node.requests == [("GET", "/v1/status", None)]


def test_scripts_get_what_the_node_said(node: FakeNode) -> None:
    node.answer = lambda *_: (200, A_NODE)
    result = run("--json", "--url", node.url)
    assert json.loads(result.stdout) == A_NODE


def test_a_process_that_does_not_answer_is_exit_code_1(node: FakeNode) -> None:
    node.answer = lambda *_: (200, {"processes": [{"name": "state-1", "error": "no answer"}]})
    result = run("--url", node.url)
    assert result.exit_code == 1
    assert ["state-1", "no", "answer"] in rows(result.stdout)
    assert run("--url", node.url, "--json").exit_code == 1


def test_a_node_that_says_little_is_shown_all_the_same(node: FakeNode) -> None:
    node.answer = lambda *_: (200, {})
    assert run("--url", node.url).exit_code == 0


def test_nobody_there_is_exit_code_3(nobody: str) -> None:
    result = run("--url", nobody)
    assert result.exit_code == 3
    assert f"no node answers at {nobody}" in result.stderr


@pytest.mark.parametrize(
    ("code", "body", "exit_code"),
    [(200, b"<html>", 1), (404, b"<html>", 1), (503, b"", 3), (200, {"shards": "all"}, 1)],
)
def test_what_is_no_node_of_ours(node: FakeNode, code: int, body: object, exit_code: int) -> None:
    node.answer = lambda *_: (code, body)
    result = run("--url", node.url)
    assert result.exit_code == exit_code
    assert result.stderr.startswith("roskva: ")


def test_names_are_not_taken_for_markup(node: FakeNode) -> None:
    node.answer = lambda *_: (200, {"processes": [{"name": "[bold]x", "role": "[/]"}]})
    assert "[bold]x" in run("--url", node.url).stdout


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 seconds"),
        (119, "119 seconds"),
        (120, "2 minutes"),
        (7200, "2 hours"),
        (2e5, "2 days"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert status.duration(seconds) == text
