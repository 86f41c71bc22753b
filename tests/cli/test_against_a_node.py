"""The commands together, against a node as users start it."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.real_node import Command, RealNode, roskva


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    with RealNode(tmp_path_factory.mktemp("node") / "data") as running:
        yield running


def seen(stdout: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in stdout.splitlines()]
    return {line["object"]: line["version"] for line in lines}


def test_a_watcher_is_told_what_is_and_what_comes(node: RealNode) -> None:
    assert roskva(node, "publish", "live/x", "1")[0] == 0
    with Command(node, "watch", "live/x", "live/never", "other/y", "--json") as watch:
        first = [watch.line() for _ in range(3)]
        assert {line["object"]: line["version"] for line in first} == {
            "live/x": "1",
            "live/never": None,
            "other/y": None,
        }
        assert roskva(node, "publish", "live/x", "2", "--payload", "two")[0] == 0
        told = watch.line()
        assert (told["object"], told["version"], told["payload"]) == ("live/x", "2", "dHdv")
        assert roskva(node, "reset", "live/x")[0] == 0
        assert watch.line()["version"] is None
        watch.interrupt()
        assert watch.ended() == (130, "", "")


def test_people_see_a_line_each(node: RealNode) -> None:
    roskva(node, "publish", "people/x", "7", "--payload", "[bold]")
    code, stdout, stderr = roskva(node, "watch", "people/x", "--count", "1")
    assert (code, stderr) == (0, "")
    assert stdout.split()[1:] == ["people/x", "7", "[bold]"]


def test_with_a_state_the_next_run_says_only_what_changed(tmp_path: Path) -> None:
    state = str(tmp_path / "watched")
    objects = ["a/x", "a/y", "b/z"]
    with RealNode(tmp_path / "data") as node:
        for target in objects:
            roskva(node, "publish", target, "1")
        words = ["watch", *objects, "--json", "--state", state]
        _, stdout, _ = roskva(node, *words, "--count", "3")
        assert seen(stdout) == {"a/x": "1", "a/y": "1", "b/z": "1"}
        for version in ("2", "3"):
            roskva(node, "publish", "a/y", version)
        node.end(signal.SIGKILL)
        node.start()
        with Command(node, *words) as watch:
            assert watch.line()["version"] == "3"
            roskva(node, "publish", "b/z", "2")
            assert watch.line()["object"] == "b/z"
            watch.interrupt()
            assert watch.ended()[:2] == (130, "")


def test_a_watcher_outlives_the_node(tmp_path: Path) -> None:
    with RealNode(tmp_path / "data") as node:
        roskva(node, "publish", "a/x", "1")
        with Command(node, "watch", "a/x", "--json") as watch:
            assert watch.line()["version"] == "1"
            node.end(signal.SIGKILL)
            node.start()
            roskva(node, "publish", "a/x", "2")
            assert watch.line()["version"] == "2"


def test_status_of_a_node(node: RealNode) -> None:
    roskva(node, "publish", "status/x", "1")
    code, stdout, _ = roskva(node, "status", "--json")
    said = json.loads(stdout)
    assert code == 0
    assert [shard["shard"] for shard in said["shards"]] == [0, 1, 2, 3]
    assert sum(shard["feed_end"] for shard in said["shards"]) >= 1
    assert roskva(node, "status")[0] == 0


def test_what_the_node_refuses_is_exit_code_1(node: RealNode) -> None:
    assert roskva(node, "publish", "refused/x")[0] == 1
    assert roskva(node, "publish", "refused/x", "1", "--payload", "x" * 2000)[0] == 1


def test_two_watchers_do_not_share_a_state(node: RealNode, tmp_path: Path) -> None:
    words = ["watch", "shared/x", "--json", "--state", str(tmp_path / "watched")]
    with Command(node, *words) as watch:
        watch.line()
        code, _, stderr = roskva(node, *words)
        assert code == 3
        assert "another client uses" in stderr
