"""docs/protocol.md speaks of everything that travels."""

import re
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from roskva.channels import conversation, websocket
from roskva.channels.http import HttpFailure, NewUpdate, PublishOutcomes, update_of
from roskva.config import LimitsConfig, SessionsConfig
from roskva.core.client import ClientConfig
from roskva.core.registrar import RegistrarConfig
from roskva.model import NO_VERSION, Update
from roskva.wire import links, messages
from roskva.wire.websocket import CloseCode

TEXT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
QUOTED = set(re.findall(r"`([^`\n]+)`", TEXT))


def structs(module: ModuleType) -> list[type[msgspec.Struct]]:
    return [
        kind
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    ]


def name_of(kind: type[msgspec.Struct]) -> str:
    """Between servers a message goes by its tag, whatever its class is called."""
    tag = kind.__struct_config__.tag
    return str(tag) if tag and kind.__module__ == links.__name__ else kind.__name__


@pytest.mark.parametrize(
    "kind", [*structs(messages), *structs(links)], ids=lambda kind: kind.__name__
)
def test_every_message_and_every_field_is_described(kind: type[msgspec.Struct]) -> None:
    assert name_of(kind) in QUOTED
    assert set(kind.__struct_fields__) <= QUOTED


def test_nothing_is_described_that_does_not_exist() -> None:
    kinds = {name_of(kind) for kind in (*structs(messages), *structs(links))}
    assert {word for word in QUOTED if re.fullmatch(r"([A-Z][a-z]+)+", word)} <= kinds


def test_the_limits_are_those_of_the_code() -> None:
    for limit in (
        messages.MAX_FRAME_BYTES,
        messages.MAX_PARTS,
        links.MAX_LINK_FRAME_BYTES,
        links.MAX_LINK_PARTS,
        RegistrarConfig("r", 1).max_registrations,
    ):
        assert f"{limit:,}" in TEXT


def test_the_times_are_those_of_the_code() -> None:
    """Should one of these change, the document wants another look."""
    server, client = RegistrarConfig("r", 1), ClientConfig("a")
    assert (server.handshake_timeout, server.scan_interval, server.sync_timeout) == (10, 60, 5)
    assert (server.heartbeat, server.missed_heartbeats) == (1200, 4)
    assert (server.ping_interval, server.link_timeout) == (1, 3)
    assert server.token_lifetime == 90 * 86400
    assert (client.answer_timeout, client.backoff_first, client.backoff_cap) == (10, 1, 120)
    assert (client.batch_delay, client.fenced_wait) == (0.05, 30)
    assert (client.rate.count, client.rate.window_ms) == (25, 1000)


def test_the_websocket_is_described_as_it_is() -> None:
    part = TEXT.partition("## The WebSocket")[2].partition("\n## ")[0]
    assert f"`{websocket.PATH}`" in part
    ping_s = SessionsConfig().websocket_ping_seconds
    assert f"ping every {ping_s:.0f} s (`websocket_ping_seconds`)" in part
    assert f"{conversation.MAX_BAD_MESSAGES} messages that are none of ours" in part
    limits = LimitsConfig()
    assert f"within {limits.handshake_seconds:.0f} s (`handshake_seconds`)" in part
    codes = {int(code) for code in re.findall(r"^\| (\d+) \|", part, re.MULTILINE)}
    assert codes == set(CloseCode)


def test_what_is_published_over_http_is_described_as_it_is() -> None:
    part = TEXT.partition("## Publishing over HTTP")[2].partition("\n## ")[0]
    quoted = set(re.findall(r"`([^`\n]+)`", part))
    assert {*NewUpdate.__struct_fields__, *HttpFailure.__struct_fields__} <= quoted
    request, answer = re.findall(r"^```json\n(.*?)^```$", part, re.DOTALL | re.MULTILINE)
    updates = msgspec.json.decode(request, type=list[NewUpdate], strict=True)
    read = [update for update in map(update_of, updates) if isinstance(update, Update)]
    assert [update.version for update in read] == [42, NO_VERSION]
    outcomes = msgspec.json.decode(answer, type=PublishOutcomes)
    assert msgspec.json.decode(answer) == msgspec.to_builtins(outcomes)


def test_the_versions_are_those_of_the_code() -> None:
    assert messages.PROTOCOL in QUOTED
    assert f"roskva.v{messages.PROTOCOL.split('.')[0]}.msgpack" in TEXT
