"""What a node writes into its log: lines for programs, and nothing that is nobody's business."""

import json
import os
import pty
import signal
import stat
import subprocess
from pathlib import Path

from tests.loops import in_loop
from tests.serving.conftest import StartNode
from tests.serving.everybody import everybody
from tests.serving.nodes import HTTP, ROSKVA, Node, await_that

NAME, PAYLOAD, SECRET = "kept-to-ourselves", "the-payload-of-it", "correct-horse-battery"


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
    assert not any(line.startswith("{") for line in shared.said().splitlines())


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
    assert stat.S_IMODE((node.data / "token.key").stat().st_mode) == 0o600


def test_a_data_directory_that_others_can_read_is_complained_about(start_node: StartNode) -> None:
    node = start_node()
    node.stop()
    os.chmod(node.data, 0o755)
    node.start()
    assert "is open to other users of this machine" in node.said()
