"""What a node writes into its log: lines for programs, and nothing that is nobody's business."""

import json
import os
import pty
import re
import signal
import stat
import subprocess
from pathlib import Path
from typing import Any

from tests.loops import in_loop
from tests.serving.conftest import StartNode
from tests.serving.everybody import everybody
from tests.serving.keyed import KeyedNode, publish_key
from tests.serving.nodes import HTTP, PATIENCE_S, ROSKVA, Node, await_that

from roskva.disk import RealDisk
from roskva.feed.log import Log
from roskva.model import Update, shard_of
from roskva.server.directory import DataDirectory

NAME, PAYLOAD, SECRET = "kept-to-ourselves", "the-payload-of-it", "correct-horse-battery"
LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ [a-z0-9-]+ [a-z_.]+: ")


@in_loop
async def test_a_busy_node_logs_no_names_payloads_or_secrets(
    start_node: StartNode, tmp_path: Path
) -> None:
    node = start_node("--registrars", "1", "--log", "json")
    key = f"test/{NAME}"
    node.publish(key, 1)
    async with everybody(node) as clients:
        await clients.register(key)
        await clients.took((key, 1))
        node.publish(key, 2)
        await clients.took((key, 2))
    _trouble(node, key)
    node.reload()
    node.crash("registrar-0")
    node.stop()
    said = node.said()
    assert "starting it again" in said
    for hidden in (NAME, PAYLOAD, SECRET):
        assert hidden not in said
    logged = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
    assert logged
    for line in logged:
        assert {"at", "level", "logger", "pid", "message"} <= line.keys()
        assert line["at"].endswith("Z")


def _trouble(node: Node, key: str) -> None:
    """Whatever a node might be tempted to write down."""
    bearer = {"Authorization": f"Bearer {SECRET}"}
    for path in (f"/v1/objects/{key}", f"/v1/objects/{key}%23", "/v1/status", f"/{NAME}"):
        HTTP.get(f"{node.url}{path}", headers=bearer)
    for body in ("{", f'{{"app": "test", "name": "{NAME}#", "version": 1}}'):
        HTTP.post(f"{node.url}/v1/publish", content=body, headers=bearer)
    node.publish(key, 3, text=PAYLOAD)
    node.reset(key)


def test_text_is_for_people(shared: Node) -> None:
    said = shared.said().splitlines()
    assert not any(line.startswith("{") for line in said)
    logged = [line for line in said if not line.startswith("Roskva serves")]
    assert all(LINE.match(line) for line in logged), logged


def test_the_log_tells_how_a_node_starts_what_it_recovers_and_how_it_stops(
    start_node: StartNode,
) -> None:
    node = start_node("--log", "json")
    node.publish("test/x", 1)
    await_that(lambda: _all_saved(node), PATIENCE_S)
    node.stop()
    first = _lines(node)
    assert _story(first, "starts on", "ready after", "stopping", "stopped after")
    assert first[0]["message"].endswith("for the first time")
    assert _one(first, "ready after").endswith("4 shards, nothing to recover")
    assert _one(first, "stopping") == "stopping: SIGTERM"
    assert {line["process"] for line in first} == {"node"}

    node.start()
    node.publish("test/x", 2)
    await_that(lambda: _all_saved(node), PATIENCE_S)
    node.kill()
    second = _lines(node)[len(first) :]
    assert _one(second, "starts on").endswith("after it was stopped in order")
    assert _one(second, "ready after").endswith("4 shards, nothing to recover")

    _commit_unsaved(node, Update("test/x", 3))
    node.start()
    third = _lines(node)[len(first) + len(second) :]
    assert third[0]["level"] == "warning"
    assert "after a crash: process " in third[0]["message"]
    assert _one(third, "ready after").endswith("4 shards, 1 updates read again from the feed")


def _all_saved(node: Node) -> bool:
    return all(shard["durable"] == shard["feed_end"] for shard in node.status()["shards"])


def _commit_unsaved(node: Node, update: Update) -> None:
    """As a node leaves it that dies right after its commit."""
    data = DataDirectory.open(node.data)
    with data.own(shard_of(update.object, data.meta.shards)) as shard:
        log = Log.open(RealDisk(), str(shard.feed_path), lineage=1, now_us=0)
        log.append([update])
        log.commit(0)
        log.close()


def test_the_log_names_what_a_reload_changes_and_what_waits_for_a_restart(tmp_path: Path) -> None:
    keys = [publish_key()[1] for _ in range(2)]
    chat = [f'[apps.chat]\npublish_keys = ["{key}"]\n' for key in keys]
    revoked = "[apps.chat.revoked]\nalice = 2026-01-31T12:00:00Z\n"
    feed = "[feed]\nretention_hours = 5\n"
    restart = "only after a restart: feed.retention_hours"
    node = KeyedNode(tmp_path / "data", chat[0], "--log", "json")
    try:
        node.start()
        for settings, sentence in {
            chat[0]: "none of them has changed",
            chat[0] + feed: restart,
            chat[1] + revoked + feed: (
                f"in use now: apps.chat.publish_keys, apps.chat.revoked; {restart}"
            ),
        }.items():
            node.reload_with(settings)
            said = [line for line in _lines(node) if "were read again" in line["message"]][-1]
            assert said["message"] == f"the settings were read again: {sentence}"
            assert said["level"] == ("warning" if restart in sentence else "info")
    finally:
        node.end()


def test_the_log_says_how_a_process_died_and_when_its_place_is_taken(
    start_node: StartNode,
) -> None:
    node = start_node("--registrars", "1", "--log", "json")
    node.publish("test/x", 1)
    node.crash("state-0")
    await_that(lambda: _readies(node, "state-0") == 2, PATIENCE_S, node.said)
    lines = _lines(node)
    died = [line for line in lines if "was killed" in line["message"]]
    assert [(line["process"], line["level"], line["message"]) for line in died] == [
        ("parent", "warning", "state-0 was killed by SIGKILL: starting it again now")
    ]
    ready = [line["message"] for line in lines if line["process"] == "state-0"][-1]
    assert ready.endswith("4 shards, 1 updates read again from the feed")


def _lines(node: Node) -> list[dict[str, Any]]:
    return [json.loads(line) for line in node.said().splitlines()]


def _one(lines: list[dict[str, Any]], said: str) -> str:
    (message,) = [line["message"] for line in lines if said in line["message"]]
    return str(message)


def _story(lines: list[dict[str, Any]], *said: str) -> bool:
    """In this order, each once."""
    told = [line["message"] for line in lines]
    return [word for message in told for word in said if word in message] == [*said]


def _readies(node: Node, process: str) -> int:
    return sum(
        line["process"] == process and line["message"].startswith("ready after")
        for line in _lines(node)
    )


def test_a_form_that_is_none_is_refused(tmp_path: Path) -> None:
    ended = subprocess.run(
        [ROSKVA, "serve", "--log", "xml", "--data", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    assert '--log: log must be "json" or "text"' in ended.stderr


def test_a_node_ends_with_its_terminal(tmp_path: Path) -> None:
    """Which says so by the signal that otherwise means: read the settings again."""
    pid, terminal = pty.fork()
    if pid == 0:
        words = ["serve", "--data", str(tmp_path / "data"), "--port", "0", "--mqtt-port", "off"]
        os.execv(ROSKVA, [ROSKVA, *words, "--no-pipeline"])
    try:
        said = b""
        while b"Ctrl-C stops it" not in said:
            said += os.read(terminal, 65536)
        os.kill(pid, signal.SIGHUP)
        assert os.waitpid(pid, os.WNOHANG) == (0, 0)
    finally:
        os.close(terminal)
    await_that(lambda: os.waitpid(pid, os.WNOHANG)[0] == pid, 30.0)
    assert not (tmp_path / "data/node.json").exists()


def test_the_data_directory_is_our_own(start_node: StartNode) -> None:
    node = start_node()
    sockets = Path(node.announced()["processes"][0]["socket"]).parent
    for path in (node.data, *node.data.glob("shard-*"), sockets):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    files = [path for path in node.data.rglob("*") if path.is_file()]
    assert node.data / "token.key" in files
    assert [path for path in files if path.stat().st_mode & 0o077] == []


def test_what_others_could_read_of_the_data_is_closed_to_them(start_node: StartNode) -> None:
    node = start_node()
    node.stop()
    os.chmod(node.data, 0o755)
    os.chmod(node.data / "token.key", 0o644)
    node.start()
    assert "is mode 700 now" in node.said()
    assert "is mode 600 now" in node.said()
    assert stat.S_IMODE(node.data.stat().st_mode) == 0o700
    assert stat.S_IMODE((node.data / "token.key").stat().st_mode) == 0o600
