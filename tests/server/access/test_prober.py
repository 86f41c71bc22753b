"""The keys of the prober."""

import pytest

from roskva.config import ProbeConfig
from roskva.core.identity import TokenKeys
from roskva.links.own_keys import PROBER, own_key
from roskva.model import PROBE_APP, PROBE_SLOW_APP, Principal
from roskva.server.access.keys import ProberKeys, credential

OLD, NEW = bytes(32), bytes(range(32))
BEFORE = TokenKeys({1: OLD}, 1)
AFTER = TokenKeys({2: NEW, 1: OLD}, 2)


def prober_keys(tokens: TokenKeys, **settings: str) -> ProberKeys:
    return ProberKeys(ProbeConfig(**settings), tokens)  # type: ignore[arg-type]


@pytest.mark.parametrize("known", [BEFORE, AFTER])
@pytest.mark.parametrize("read", [BEFORE, AFTER])
def test_the_nodes_own_prober_gets_in_also_while_keys_are_rotated(
    known: TokenKeys, read: TokenKeys
) -> None:
    for app in (PROBE_APP, PROBE_SLOW_APP):
        shown = credential(app, "websocket", own_key(read, PROBER))
        assert prober_keys(known).find(shown) == Principal("websocket", app)


def test_nobody_else_gets_in() -> None:
    keys, key = prober_keys(BEFORE), own_key(BEFORE, PROBER)
    for shown in (
        credential("shop", "websocket", key),
        credential(PROBE_APP, "", key),
        credential(PROBE_APP, "websocket", key[:-1]),
        credential(PROBE_APP, "websocket", ""),
        key,
        "",
    ):
        assert keys.find(shown) is None


def test_from_elsewhere_it_shows_the_key_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROBE_KEY", "a key for probing from elsewhere")
    shown = credential(PROBE_APP, "mqtt", "a key for probing from elsewhere")
    assert prober_keys(BEFORE, key="env:PROBE_KEY").find(shown) is not None
    assert prober_keys(BEFORE).find(shown) is None
