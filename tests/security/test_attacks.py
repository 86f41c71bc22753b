"""Attacks from outside on nodes with and without keys and TLS, beside somebody who publishes.

Every publish beside an attack succeeds; memory and log are bounded. On a full scale (`verify`) the
99th percentile of publishes is at most three times what it is in the windows in between, as the
median of seven of each: the machine has moments of its own.

Publishes are due at a pace, and what they take is counted from when they were due: a node that
stands still for a third of a second makes all late that are due meanwhile, and not just one.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

import httpx
import pytest
from tests.serving import certificates
from tests.serving.keyed import Issuer, KeyedNode, publish_key
from tests.serving.nodes import FEW_FILES, Node

TIMES: Final = 3.0
FLOOR_S: Final = 0.05
"""On top of that, for what the processes of a test take from each other on two cores."""
PACE_S: Final = 0.025
MAX_GROWTH_BYTES: Final = 256 << 20
SECRET, HASHED = publish_key()
APPS: Final = f'[apps.contacts]\npublish_keys = ["{HASHED}"]\nregister = ["**"]\njwks = '
MAX_LOGGED_BYTES: Final = 4096
ATTACKS: Final = {
    "withhold_a_byte": 40,
    "reset_while_answered": 10,
    "speak_garbage": 10,
    "watch_much": 120,
    "connect_with_much": 10,
    "flood_with_updates": 4,
    "never_read": 40,
    "hold_open": 1200,
}
"""And how many at once."""
OBJECTS: Final = 48
"""In each publish: who is watched changes much at a time."""
every_attack = pytest.mark.parametrize("kind", ATTACKS)


class Scale(NamedTuple):
    windows: int
    publishes: int


SMALL: Final = Scale(1, 20)
FULL: Final = Scale(7, 40)


@pytest.fixture(scope="module", params=["open", "keys", "keys and TLS"])
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    place = tmp_path_factory.mktemp("attacked")
    issuer = Issuer(place / "jwks.json")
    apps = f'{APPS}"{issuer.jwks}"\n'
    _credential_file(place / "data").write_text(issuer.jwt("mallory", "contacts"))
    node = Node(place / "data")
    if request.param == "keys":
        node = KeyedNode(place / "data", apps)
    if request.param == "keys and TLS":
        certs = certificates.made(place / "certs")
        tls = certificates.settings(place / "tls.toml", certs).read_text()
        node = KeyedNode(place / "data", f"{tls}\n{apps}")
        node.scheme = "https"
    node.command = FEW_FILES
    try:
        node.start()
        yield node
    finally:
        node.end()


@pytest.mark.parametrize("kind", sorted({*ATTACKS} - {"hold_open"}))  # see test_connections.py
def test_others_are_served_beside_an_attack(node: Node, kind: str) -> None:
    _, attacked, growth = _measured(node, kind, SMALL)
    assert attacked
    assert growth < MAX_GROWTH_BYTES


@pytest.mark.verify
@every_attack
def test_others_hardly_notice_an_attack(node: Node, kind: str) -> None:
    quiet, attacked, growth = _measured(node, kind, FULL)
    sys.stderr.write(
        f"{kind}: p99 {1000 * median(quiet):.1f} ms alone, {1000 * median(attacked):.1f} ms beside "
        f"it; memory grew by {growth >> 20} MiB\n"
    )
    assert median(attacked) <= TIMES * median(quiet) + FLOOR_S
    assert growth < MAX_GROWTH_BYTES


def _measured(node: Node, kind: str, scale: Scale) -> tuple[list[float], list[float], int]:
    quiet, attacked = [], []
    _window(node, scale.publishes)  # to warm up
    said = len(node.said())
    before = peak = node.resident_bytes()
    with _attacker(node, kind) as attacker:
        for _ in range(scale.windows):
            quiet.append(_window(node, scale.publishes))
            _tell(attacker, "begin", b"ready\n")
            attacked.append(_window(node, scale.publishes))
            peak = max(peak, node.resident_bytes())
            _tell(attacker, "rest", b"resting\n")
    assert len(node.said()) - said < MAX_LOGGED_BYTES
    return quiet, attacked, peak - before


def _window(node: Node, publishes: int) -> float:
    """The 99th percentile of so many, each over a connection of its own, in seconds after it was
    due."""
    with httpx.Client(
        base_url=node.url,
        verify=False,
        timeout=30,
        headers={"authorization": f"Bearer {SECRET}"},
        limits=httpx.Limits(max_keepalive_connections=0),
    ) as client:
        began = time.monotonic()
        taken = sorted(_publish(client, began + i * PACE_S) for i in range(publishes))
    return taken[int(0.99 * (len(taken) - 1))]


def _publish(client: httpx.Client, due: float) -> float:
    version = str(time.time_ns())
    updates = [
        {"app": "contacts", "name": str(name), "version": version} for name in range(OBJECTS)
    ]
    time.sleep(max(0.0, due - time.monotonic()))
    answer = client.post("/v1/publish", json=updates)
    assert answer.status_code == 200, answer.text
    assert not any("error" in result for result in answer.json()["results"]), answer.text
    return time.monotonic() - due


def _credential_file(data: Path) -> Path:
    """All attackers are one principal."""
    return data.with_name("jwt")


@contextmanager
def _attacker(node: Node, kind: str) -> Iterator[subprocess.Popen[bytes]]:
    ports = str(node.port), str(node.mqtt_port)
    attacker = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.security.attackers", kind),
            *(node.scheme, *ports, str(ATTACKS[kind])),
        ],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "CREDENTIAL": _credential_file(node.data).read_text()},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert attacker.stdin is not None
    with attacker:
        try:
            yield attacker
        finally:
            attacker.stdin.close()


def _tell(attacker: subprocess.Popen[bytes], word: str, answer: bytes) -> None:
    assert attacker.stdin is not None
    assert attacker.stdout is not None
    attacker.stdin.write(f"{word}\n".encode())
    attacker.stdin.flush()
    assert attacker.stdout.readline() == answer, "the attacker gave up"
