"""Where a node may be started: nothing is open to a network that nobody has thought about."""

import subprocess
from pathlib import Path

import pytest
from tests.serving import certificates
from tests.serving.nodes import ROSKVA

from roskva.config import AdminConfig, Config, NodeConfig, TlsConfig, exposed
from roskva.config.exposure import is_loopback

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
