"""`roskva probe` against real nodes, and the prober of a node with keys and TLS."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.probe.hurting import GENEROUS, PATIENT, SETTINGS, SETTLED_S, Probed, signal_all
from tests.serving.certificates import made
from tests.serving.keyed import Issuer, KeyedNode
from tests.serving.nodes import HTTP, ROSKVA, Node, await_that

from roskva.config import SLIS, load
from roskva.model import PROBE_APP, PROBE_SLOW_APP
from roskva.probe.paths import Target
from roskva.probe.round import PATIENCE_S, Measurement, objects, probe
from roskva.server.access.keys import credential
from roskva.store.rocksdb import RocksStore
from roskva.store.rows import CLIENT

KEY = "a key for probing from elsewhere"
WELL = "All 6 paths are well."
_ROUND_S = 180.0
"""More than a round takes that has to wait for what PATIENT allows."""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data")
    yield node
    node.end()


class Round(NamedTuple):
    code: int
    measured: set[str]
    hurt: set[str]
    said: str


def roskva_probe(node: Node, *flags: str, slo: Path = GENEROUS) -> Round:
    result = subprocess.run(
        [
            *(ROSKVA, "probe", "--once", "--json", "--url", node.url),
            *("--mqtt-port", str(node.mqtt_port), "--config", str(slo), *flags),
        ],
        capture_output=True,
        text=True,
        timeout=_ROUND_S,
        check=False,
    )
    assert result.stdout, result.stderr
    found = json.loads(result.stdout)
    took = {outcome["sli"]: outcome["seconds"] for outcome in found["outcomes"]}
    hurt = {sli for sli, seconds in took.items() if seconds is None}
    return Round(result.returncode, set(took), hurt, found["sentence"])


def client_rows(node: Node) -> int:
    """Of a node that has stopped."""
    count = 0
    for shard in sorted(node.data.glob("shard-*")):
        store = RocksStore(shard / "store")
        count += sum(1 for _ in store.scan(CLIENT, CLIENT + b"\xff"))
        store.close()
    return count


def published(node: Node, traffic: str) -> float:
    text = HTTP.get(f"{node.url}/metrics").raise_for_status().text
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "roskva_updates_published_total" and sample.labels["traffic"] == traffic
    )


def test_a_whole_node_fails_nothing_and_the_same_clients_come_again(node: Node) -> None:
    node.start("--versions", "assigned")
    found = roskva_probe(node, slo=PATIENT)
    assert found == (0, set(SLIS) - {"notify-pipeline"}, set(), WELL)
    assert published(node, "users") == 0
    assert published(node, "probe") > 0
    node.stop()
    left = client_rows(node)
    node.start()
    assert roskva_probe(node, slo=PATIENT) == found
    assert roskva_probe(node, slo=PATIENT) == found
    node.stop()
    assert client_rows(node) == left


@pytest.mark.verify
def test_processes_that_hang_are_noticed_and_named(node: Node) -> None:
    node.start("--matchers", "2", "--registrars", "1")
    node.signal("state-1", signal.SIGSTOP)

    def named() -> bool:
        found = roskva_probe(node)
        return (
            found.code == 1
            and found.hurt >= {"notify-websocket", "publish"}
            and "notify-events" not in found.hurt
            and "publish fails (publisher → feed): state-1: " in found.said
        )

    await_that(named, SETTLED_S, lambda: str(roskva_probe(node)))


def test_a_target_that_is_missed_is_exit_code_1(node: Node, tmp_path: Path) -> None:
    node.start()
    settings = tmp_path / "slo.toml"
    settings.write_text(PATIENT.read_text().replace("register_ms = 60000", "register_ms = 1"))

    def took() -> bool:
        found = roskva_probe(node, slo=settings)
        assert found.code == 1, found
        assert found.hurt <= {"register"}, found  # given up after 2 s: on a busy machine
        return found.said.startswith("register took ")

    await_that(took, SETTLED_S, lambda: str(roskva_probe(node, slo=settings)))


def test_a_target_that_is_longer_is_waited_for(node: Node, tmp_path: Path) -> None:
    node.start()
    target = Target(node.url, tmp_path / "identities", objects([(0, "")], 1), node.mqtt_port)

    async def go_on() -> None:
        await asyncio.sleep(PATIENCE_S + 0.5)
        signal_all(node.processes(), signal.SIGCONT)

    async def held_up() -> list[Measurement]:
        signal_all(node.processes(), signal.SIGSTOP)
        outcomes, _ = await asyncio.gather(probe(target, load(PATIENT).slo), go_on())
        return outcomes

    outcomes = asyncio.run(held_up())
    assert [outcome for outcome in outcomes if outcome.seconds is None] == []


def test_nothing_there_is_noticed(node: Node) -> None:
    found = roskva_probe(node)
    assert found.code == 1
    assert found.hurt == found.measured


def test_the_prober_of_a_node_is_shown_and_counts_apart(tmp_path: Path) -> None:
    node = Probed(tmp_path / "data")
    try:
        node.start()
        node.await_well()
        await_that(lambda: node.status()["probe"]["sentence"] == WELL, SETTLED_S)
        # A connection that has not said who it is counts as a user's, for a moment.
        await_that(lambda: node.status()["processes"][0]["sessions"] == {}, SETTLED_S)
        await_that(lambda: 'traffic="users"' not in _lines(node, "roskva_sessions{"), SETTLED_S)
        assert 'sli="notify-mqtt"' in _lines(node, "roskva_probe_seconds_count{")
        stages = {stage["stage"] for stage in node.get("/v1/admin/now").json()["stages"]}
        assert stages >= {"appended", "matched", "sent", "acked"}
        await_that(lambda: f"prober running. {WELL}" in _shown(node), SETTLED_S)
        node.stop()
        before = client_rows(node)
        node.start()
        node.await_well()
        node.stop()
        assert client_rows(node) == before
    finally:
        node.end()


def _lines(node: Probed, beginning: str) -> str:
    lines = node.get("/metrics").text.splitlines()
    return "\n".join(line for line in lines if line.startswith(beginning))


def _shown(node: Node) -> str:
    shown = [ROSKVA, "status", "--url", node.url]
    return subprocess.run(shown, capture_output=True, text=True, check=True).stdout


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
        await_that(lambda: node.status()["probe"]["rounds"] >= 2, SETTLED_S, node.said)
        await_that(
            lambda: node.status()["probe"]["sentence"] == WELL,
            SETTLED_S,
            lambda: f"{node.status()['probe']}\n{node.said()}",
        )
        ca = ("--ca", str(certs / "ca.crt"))
        key = f"file:{tmp_path / 'probe.key'}"

        def let_in() -> bool:
            found = roskva_probe(node, *ca, "--key", key, slo=PATIENT)
            return found.code == 0 and not found.hurt

        # Awaited: when the registrar has not heard of a shard for 3 s, it refuses for a moment.
        await_that(let_in, SETTLED_S, node.said)
        found = roskva_probe(node, *ca, "--key", "not the one that was agreed upon")
        assert found.code == 1
        assert found.hurt >= {"publish", "notify-events", "notify-mqtt"}
        _holds_for_its_apps_alone(node, issuer)
    finally:
        node.end()


def _holds_for_its_apps_alone(node: KeyedNode, issuer: Issuer) -> None:
    shown = credential(PROBE_APP, "me", KEY)
    await_that(lambda: node.publish_as(shown, f"{PROBE_APP}/x", 1).status_code == 200, SETTLED_S)
    for key in ("shop/x", f"{PROBE_SLOW_APP}/x"):
        assert node.publish_as(shown, key, 1).status_code == 403
    assert node.publish_as(credential("shop", "me", KEY), "shop/x", 1).status_code == 401
    user = issuer.jwt("alice", "shop")
    assert node.publish_as(user, f"{PROBE_APP}/x", 2).status_code == 403


class _Guarded(KeyedNode):
    def __init__(self, data: Path, settings: str, *flags: str) -> None:
        super().__init__(data, settings, *flags)
        self._without = ("--no-pipeline",)
