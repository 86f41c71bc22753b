"""Where a node may be started: nothing is open to a network that nobody has thought about."""

import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.serving import certificates
from tests.serving.nodes import HTTP, ROSKVA, Node, await_that

from roskva.config import AdminConfig, Config, NodeConfig, TlsConfig, exposed
from roskva.config.access import is_loopback

TLS = TlsConfig(certificate=Path("c"), key=Path("k"))


def roskva(*words: str) -> tuple[int, str]:
    ended = subprocess.run([ROSKVA, *words], capture_output=True, text=True, timeout=60)
    return ended.returncode, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *(("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True)),
        *(("0.0.0.0", False), ("::", False), ("10.0.0.5", False), ("node.example.com", False)),
    ],
)
def test_loopback_is_recognised(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


@pytest.mark.parametrize(
    ("config", "complaints"),
    [
        (Config(), []),
        (Config(node=NodeConfig(host="0.0.0.0")), ["[tls]", "[apps.NAME]"]),
        (Config(node=NodeConfig(host="0.0.0.0"), tls=TLS), ["[apps.NAME]"]),
        (
            Config(node=NodeConfig(host="0.0.0.0", behind_proxy=("10.0.0.1",))),
            ["[apps.NAME]"],
        ),
        (Config(admin=AdminConfig(port=1)), []),
        (Config(admin=AdminConfig(port=1, host="::")), ["[tls]", "[admin]"]),
        (Config(admin=AdminConfig(port=1, host="::", key="k"), tls=TLS), []),
    ],
)
def test_what_is_missing_is_named(config: Config, complaints: list[str]) -> None:
    found = exposed(config)
    assert len(found) == len(complaints)
    for sentence, what in zip(found, complaints, strict=True):
        assert what in sentence


def test_a_node_refuses_to_start_where_it_would_be_open(tmp_path: Path) -> None:
    code, said = roskva("serve", "--host", "0.0.0.0", "--data", str(tmp_path / "data"))
    assert code == 2
    for what in ("[tls]", "--behind-proxy", "roskva certs", "[apps.NAME]", "--insecure"):
        assert what in said
    assert not (tmp_path / "data").exists()


def test_check_says_what_serve_would(tmp_path: Path) -> None:
    certs = certificates.made(tmp_path / "certs")
    file = certificates.settings(tmp_path / "roskva.toml", certs, '[node]\nhost = "0.0.0.0"')
    code, said = roskva("config", "check", str(file))
    assert code == 2
    assert "no app has keys" in said
    assert "readable" not in said
    assert roskva("config", "check", str(file), "--insecure")[0] == 0
    (certs / "server.key").unlink()
    code, said = roskva("config", "check", str(file), "--insecure")
    assert (code, "server.key cannot be read" in said) == (2, True)


@pytest.mark.parametrize("flags", [(), ("--registrars", "1")], ids=["one process", "several"])
def test_a_reload_cannot_open_what_was_closed(tmp_path: Path, flags: tuple[str, ...]) -> None:
    """Not even for a process that is started again afterwards."""
    certs = certificates.made(tmp_path / "certs")
    closed = (
        f'[apps.test]\npublish_keys = ["sha256:{"0" * 64}"]\n'
        f'[admin]\nkey = "file:{tmp_path}/admin.key"'
    )
    (tmp_path / "admin.key").write_text("k" * 16)
    file = certificates.settings(tmp_path / "roskva.toml", certs, closed)
    node = Closed(tmp_path / "data", "--config", str(file), *flags)
    node.scheme = "https"
    update = {"app": "test", "name": "x", "version": 1}

    def publish() -> int:
        return HTTP.post(f"{node.url}/v1/publish", json=update).status_code

    try:
        node.start()
        assert publish() == 401
        texts = ("", closed, certificates.settings(file, certs).read_text())
        for refused, text in enumerate(texts, 1):
            file.write_text(text)
            node.reload()
            await_that(lambda: node.said().count("not read again") == refused, 30.0)  # noqa: B023
            assert publish() == 401
        if flags:
            node.crash("registrar-0")
            assert publish() == 401
    finally:
        node.end()


class Closed(Node):
    def status(self) -> dict[str, Any]:
        bearer = {"Authorization": f"Bearer {'k' * 16}"}
        answer = HTTP.get(f"{self.url}/v1/status", headers=bearer)
        found: dict[str, Any] = answer.raise_for_status().json()
        return found
