"""Addresses of nodes, as both libraries take them."""

import pytest

from roskva.errors import BadInput
from roskva.net.address import http_url, websocket_url


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
