"""Addresses of nodes, as both libraries take them."""

import pytest

from roskva.errors import BadInput
from roskva.net.address import NodeAddresses, http_url, websocket_url


@pytest.mark.parametrize(
    ("given", "websocket", "publish"),
    [
        ("http://localhost:7600", "ws://localhost:7600/v1/ws", "http://localhost:7600/v1/publish"),
        ("ws://localhost:7600/", "ws://localhost:7600/v1/ws", "http://localhost:7600/v1/publish"),
        ("ws://h:1/v1/ws", "ws://h:1/v1/ws", "http://h:1/v1/publish"),
        ("https://h", "wss://h/v1/ws", "https://h/v1/publish"),
        ("wss://h/roskva/v1/ws/", "wss://h/roskva/v1/ws", "https://h/roskva/v1/publish"),
        ("http://[::1]:7600", "ws://[::1]:7600/v1/ws", "http://[::1]:7600/v1/publish"),
        ("http://a:b@h", "ws://a:b@h/v1/ws", "http://a:b@h/v1/publish"),
    ],
)
def test_one_address_serves_both_libraries(given: str, websocket: str, publish: str) -> None:
    assert websocket_url(given) == websocket
    assert http_url(given, "/v1/publish") == publish


@pytest.mark.parametrize(
    "given",
    ["", "localhost:7600", "ftp://h", "http://", "http://h:x", "http://h?a=1", "http://h#x"],
)
def test_what_is_no_address_is_refused_by_name(given: str) -> None:
    with pytest.raises(BadInput, match="http://localhost:7600"):
        websocket_url(given)


# Several.


def test_whoever_is_left_comes_last_again() -> None:
    urls = [f"http://node-{n}:7600" for n in range(4)]
    addresses = NodeAddresses(urls)
    rounds = []
    for _ in range(2):
        seen = []
        for _ in urls:
            seen.append(addresses.current)
            addresses.leave()
        rounds.append(seen)
    assert sorted(rounds[0]) == urls
    assert rounds[1] == rounds[0]


def test_those_who_leave_the_same_one_spread() -> None:
    urls = [f"http://node-{n}:7600" for n in range(3)]
    after_the_first: set[tuple[str, str]] = set()
    for _ in range(1000):
        addresses = NodeAddresses(urls)
        failed = addresses.current
        addresses.leave()
        after_the_first.add((failed, addresses.current))
    assert len(after_the_first) == 6


def test_one_may_be_given_by_itself_or_twice() -> None:
    for urls in ("http://h:1", ["http://h:1"], ["http://h:1", "http://h:1"]):
        addresses = NodeAddresses(urls)
        addresses.leave()
        assert addresses.current == "http://h:1"


@pytest.mark.parametrize(
    "urls", [[], ["http://h:1", "https://h:2"], ["ws://h:1", "wss://h:1"], ["http://h:1", "h:2"]]
)
def test_addresses_that_do_not_go_together_are_refused(urls: list[str]) -> None:
    with pytest.raises(BadInput):
        NodeAddresses(urls)
