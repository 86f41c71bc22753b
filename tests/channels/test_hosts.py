"""By which names a node may be called."""

import pytest

from roskva.channels.hosts import Hosts
from roskva.config import (
    AppConfig,
    Config,
    NodeConfig,
    TlsConfig,
    load,
    takes_any_name,
)
from roskva.errors import BadConfig

HOSTS = Hosts(["Node.example.com", "*.example.net", "0.0.0.0"])


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "localhost:7600", "LOCALHOST.", "127.0.0.1", "127.8.8.8:1", "[::1]:7600"),
        *("10.0.0.5:7600", "[2001:db8::1]", "node.example.com", "node.EXAMPLE.com.:443"),
        *("a.example.net", ""),
    ],
)
def test_own_names_and_every_address_are_answered_on_any_port(host: str) -> None:
    assert HOSTS.allows([host])


@pytest.mark.parametrize(
    "host",
    [
        *("evil.example", "evil.example:7600", "localhost.evil.example", "127.0.0.1.evil.example"),
        *("example.com", "node.example.com.evil.example", "a.b.example.net", "example.net"),
        *("[evil.example]", "x", "127.0.0.1,evil.example"),
    ],
)
def test_no_other_name_is_answered(host: str) -> None:
    assert not HOSTS.allows([host])
    assert not HOSTS.allows(["localhost", host])


def test_who_says_no_name_is_no_browser() -> None:
    assert HOSTS.allows([])


def test_any_name_may_be_allowed() -> None:
    assert Hosts(["*"]).allows(["evil.example"])
    assert Hosts([], any_name=True).allows(["evil.example"])


def test_a_name_matters_unless_keys_protect_a_node_whose_names_nobody_has_said() -> None:
    keys = {"a": AppConfig(publish_keys=["sha256:" + "0" * 64])}
    far = NodeConfig(host="0.0.0.0")
    assert takes_any_name(Config(node=far, apps=keys))
    for matters in (
        Config(apps=keys),
        Config(node=far),
        Config(node=NodeConfig(host="0.0.0.0", allowed_hosts=("a",)), apps=keys),
        Config(node=far, apps=keys, tls=TlsConfig(certificate="c", key="k")),  # type: ignore[arg-type]
    ):
        assert not takes_any_name(matters)


@pytest.mark.parametrize("wrong", ["https://a.example", "a.example:80", "a/b", "*.*.example", ""])
def test_what_is_no_name_is_refused(wrong: str) -> None:
    with pytest.raises(BadConfig, match="which is no name"):
        load(None, {"node.allowed_hosts": wrong or ","}, {})
