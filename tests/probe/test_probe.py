"""`roskva probe` against real nodes, and the prober of a node with keys and TLS."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.probe.hurting import GENEROUS, SETTINGS, Probed
from tests.serving.certificates import made
from tests.serving.keyed import Issuer, KeyedNode
from tests.serving.nodes import ROSKVA, Node, await_that

from roskva.config import SLIS
from roskva.model import PROBE_APP, PROBE_SLOW_APP
from roskva.server.access.prober import credential
from roskva.store.rocksdb import RocksStore
from roskva.store.rows import CLIENT

KEY = "a key for probing from elsewhere"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data")
    yield node
    node.end()


def roskva_probe(
    node: Node, expected: int, *flags: str, slo: Path | None = None
) -> tuple[dict[str, Any], str]:
    """What was measured, by SLI, and the sentence."""
    result = subprocess.run(
        [
            *(ROSKVA, "probe", "--once", "--json", "--url", node.url),
            *("--mqtt-port", str(node.mqtt_port), "--config", str(slo or GENEROUS), *flags),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == expected, result.stdout + result.stderr
    found = json.loads(result.stdout)
    return {outcome["sli"]: outcome for outcome in found["outcomes"]}, found["sentence"]


def hurt(outcomes: dict[str, Any]) -> set[str]:
    return {sli for sli, outcome in outcomes.items() if outcome["seconds"] is None}


def client_rows(node: Node) -> int:
    """Of a node that has stopped."""
    count = 0
    for shard in sorted(node.data.glob("shard-*")):
        store = RocksStore(shard / "store")
        count += sum(1 for _ in store.scan(CLIENT, CLIENT + b"\xff"))
        store.close()
    return count


def test_a_whole_node_fails_nothing_and_the_same_clients_come_again(node: Node) -> None:
    node.start("--versions", "assigned")
    outcomes, _ = roskva_probe(node, 0)
    assert set(outcomes) == set(SLIS) - {"notify-pipeline"}
    assert not hurt(outcomes)
    assert node.counter("applied") == 0
    assert node.counter("probe_applied") > 0
    node.stop()
    left = client_rows(node)
    node.start()
    roskva_probe(node, 0)
    roskva_probe(node, 0)
    node.stop()
    assert client_rows(node) == left


@pytest.mark.verify
def test_processes_that_hang_are_noticed_and_named(node: Node) -> None:
    node.start("--matchers", "2", "--registrars", "1")
    node.signal("state-1", signal.SIGSTOP)
    outcomes, said = roskva_probe(node, 1)
    assert hurt(outcomes) >= {"notify-websocket", "publish"}
    assert "notify-events" not in hurt(outcomes)
    assert "publish fails (publisher → feed): state-1: " in said


def test_a_target_that_is_missed_is_exit_code_1(node: Node, tmp_path: Path) -> None:
    node.start()
    settings = tmp_path / "slo.toml"
    settings.write_text("[slo]\nregister_ms = 1\n")
    outcomes, said = roskva_probe(node, 1, slo=settings)
    assert not hurt(outcomes)
    assert said.startswith("register took ")


def test_nothing_there_is_noticed(node: Node) -> None:
    outcomes, _ = roskva_probe(node, 1)
    assert hurt(outcomes) == set(outcomes)


def test_the_prober_of_a_node_is_shown_and_counts_apart(tmp_path: Path) -> None:
    node = Probed(tmp_path / "data")
    try:
        node.start()
        node.await_well()
        probe = node.status()["probe"]
        assert probe["sentence"] == "All 6 paths are well."
        # A connection that has not said who it is counts as a user's, for a moment.
        await_that(lambda: node.status()["processes"][0]["sessions"] == {}, 10.0)
        await_that(lambda: 'traffic="users"' not in _lines(node, "roskva_sessions{"), 10.0)
        assert 'sli="notify-mqtt"' in _lines(node, "roskva_probe_seconds_count{")
        now = httpx.get(f"{node.url}/v1/admin/now").raise_for_status().json()
        stages = {stage["stage"] for stage in now["stages"]}
        assert stages >= {"appended", "matched", "sent", "acked"}
        shown = subprocess.run(
            [ROSKVA, "status", "--url", node.url], capture_output=True, text=True, check=True
        )
        assert "prober running. All 6 paths are well." in shown.stdout
        node.stop()
        before = client_rows(node)
        node.start()
        node.await_well()
        node.stop()
        assert client_rows(node) == before
    finally:
        node.end()


def _lines(node: Node, beginning: str) -> str:
    text = httpx.get(f"{node.url}/metrics").raise_for_status().text
    return "\n".join(line for line in text.splitlines() if line.startswith(beginning))


def test_keys_and_tls_let_the_prober_in_and_nowhere_else(tmp_path: Path) -> None:
    certs = made(tmp_path / "certs")
    issuer = Issuer(tmp_path / "jwks.json")
    (tmp_path / "probe.key").write_text(KEY)
    node = _Guarded(
        tmp_path / "data",
        SETTINGS.replace("[probe]", f'[probe]\nkey = "file:{tmp_path / "probe.key"}"')
        + "[limits]\nmax_sessions_per_principal = 1\n"
        + f'[tls]\ncertificate = "{certs}/server.crt"\nkey = "{certs}/server.key"\n'
        + f'[apps.shop]\njwks = "{issuer.jwks}"\nregister = ["**"]\npublish = ["**"]\n',
        "--registrars",
        "1",
    )
    node.scheme = "https"
    try:
        node.start()
        await_that(lambda: node.status()["probe"]["rounds"] >= 2, 30.0)
        probe = node.status()["probe"]
        assert probe["sentence"] == "All 6 paths are well.", node.said()
        ca = ("--ca", str(certs / "ca.crt"))
        assert not hurt(roskva_probe(node, 0, *ca, "--key", f"file:{tmp_path / 'probe.key'}")[0])
        outcomes, _ = roskva_probe(node, 1, *ca, "--key", "not the one that was agreed upon")
        assert hurt(outcomes) >= {"publish", "notify-events", "notify-mqtt"}
        _holds_for_its_apps_alone(node, issuer)
    finally:
        node.end()


def _holds_for_its_apps_alone(node: KeyedNode, issuer: Issuer) -> None:
    shown = credential(PROBE_APP, "me", KEY)
    assert node.publish_as(shown, f"{PROBE_APP}/x", 1).status_code == 200
    for key in ("shop/x", f"{PROBE_SLOW_APP}/x"):
        assert node.publish_as(shown, key, 1).status_code == 403
    assert node.publish_as(credential("shop", "me", KEY), "shop/x", 1).status_code == 401
    user = issuer.jwt("alice", "shop")
    assert node.publish_as(user, f"{PROBE_APP}/x", 2).status_code == 403


class _Guarded(KeyedNode):
    def __init__(self, data: Path, settings: str, *flags: str) -> None:
        super().__init__(data, settings, *flags)
        self._without = ("--no-pipeline",)
