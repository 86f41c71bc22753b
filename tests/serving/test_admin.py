"""Who may see what a node says of itself, and where."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.ports import free_port
from tests.serving.nodes import HTTP, PATIENCE_S, ROSKVA, Node, await_that

KEY = "correct horse battery staple"


def status(url: str, key: str | None = None, scheme: str = "Bearer") -> int:
    headers = {} if key is None else {"Authorization": f"{scheme} {key}"}
    return HTTP.get(f"{url}/v1/status", headers=headers).status_code


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    return tmp_path / "roskva.toml"


class Guarded(Node):
    """Its status is at its admin port."""

    admin = ""
    key = ""

    def status(self) -> dict[str, object]:
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        answer = HTTP.get(f"{self.admin or self.url}/v1/status", headers=headers)
        found: dict[str, object] = answer.raise_for_status().json()
        return found


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Guarded]:
    node = Guarded(tmp_path / "data", "--config", str(tmp_path / "roskva.toml"))
    yield node
    node.end()


def test_on_loopback_without_keys_everybody_may(shared: Node) -> None:
    assert status(shared.url) == 200


def test_with_a_key_it_is_needed_and_nothing_else_will_do(
    guarded: Guarded, settings: Path, tmp_path: Path
) -> None:
    secret = tmp_path / "admin.key"
    secret.write_text(f"{KEY}\n")
    settings.write_text(f'[admin]\nkey = "file:{secret}"\n')
    guarded.key = KEY
    guarded.start()
    assert status(guarded.url, KEY) == 200
    for wrong in (None, KEY[:-1], f"{KEY}x", KEY.upper(), "ä"):
        answer = HTTP.get(
            f"{guarded.url}/v1/status",
            headers=[] if wrong is None else [(b"Authorization", f"Bearer {wrong}".encode())],
        )
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "unauthorised"
    assert status(guarded.url, KEY, "Basic") == 403
    for path in ("/healthz", "/readyz"):
        assert HTTP.get(f"{guarded.url}{path}").is_success
    assert KEY not in guarded.said()

    def command(*words: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [ROSKVA, "status", "--url", guarded.url, *words],
            capture_output=True,
            text=True,
            timeout=60,
        )

    assert command("--key", f"file:{secret}").returncode == 0
    refused = command()
    assert (refused.returncode, "admin key" in refused.stderr) == (1, True)

    secret.write_text("another secret, long enough")
    guarded.key = "another secret, long enough"
    guarded.reload()
    await_that(lambda: status(guarded.url, guarded.key) == 200, PATIENCE_S)
    assert status(guarded.url, KEY) == 403


def test_the_admin_port_has_the_status_and_nothing_of_clients(
    guarded: Guarded, settings: Path
) -> None:
    port = free_port()
    settings.write_text(f"[admin]\nport = {port}\n")
    guarded.admin = f"http://127.0.0.1:{port}"
    guarded.start("--config", str(settings), "--registrars", "1", "--behind-proxy", "127.0.0.1")
    assert status(guarded.admin) == 200
    assert HTTP.get(f"{guarded.admin}/readyz").is_success
    for path in ("/v1/objects/test/x", "/v1/events?object=test/x", "/v1/ws"):
        assert HTTP.get(f"{guarded.admin}{path}").status_code == 404
    body = {"app": "test", "name": "x", "version": 1}
    assert HTTP.post(f"{guarded.admin}/v1/publish", json=body).status_code == 404
    # Behind a proxy everybody seems to be on this machine.
    assert status(guarded.url) == 403


def test_a_key_that_is_none_is_refused(tmp_path: Path, settings: Path) -> None:
    (tmp_path / "short.key").write_text("short")
    for key, said in (
        ("file:short.key", "fewer than 16"),
        (KEY, "write env:NAME or file:PATH"),
        ("env:NOBODY_SET_THIS", "not set"),
        ("file:/nowhere", "cannot be read"),
    ):
        settings.write_text(f'[admin]\nkey = "{key}"\n')
        ended = subprocess.run(
            [ROSKVA, "serve", "--config", str(settings), "--data", str(tmp_path / "data")],
            capture_output=True,
            text=True,
            timeout=60,
            cwd=tmp_path,
        )
        assert ended.returncode == 2
        assert said in ended.stderr
        assert KEY not in ended.stderr
