"""Whatever can be said can be read, in both formats."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.server_json import decode_from_server
from tests.wire.strategies import from_client, from_server, messages

from roskva.wire.codec import (
    Format,
    decode_from_client,
    decode_from_shard,
    decode_to_shard,
    encode,
    encode_link,
)
from roskva.wire.links import FromShard, ToShard
from roskva.wire.messages import (
    ClientMessage,
    FromClient,
    Notification,
    Operation,
    ServerDigest,
    ServerMessage,
)

FORMATS: list[Format] = ["msgpack", "json"]
both_formats = pytest.mark.parametrize("format", FORMATS)


@both_formats
@given(message=from_client())
def test_what_a_client_says_is_read_as_it_was_said(message: FromClient, format: Format) -> None:
    assert decode_from_client(encode(message, format), format) == message


@both_formats
@given(message=from_server())
def test_what_a_server_says_is_read_as_it_was_said(message: ServerMessage, format: Format) -> None:
    assert decode_from_server(encode(message, format), format) == message


@pytest.mark.parametrize("kind", ToShard.__args__, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_what_a_registrar_says_is_read_as_it_was_said(
    kind: type[msgspec.Struct], data: st.DataObject
) -> None:
    message: Any = data.draw(messages(kind))
    assert decode_to_shard(encode_link(message)) == message


@pytest.mark.parametrize("kind", FromShard.__args__, ids=lambda kind: kind.__name__)
@given(data=st.data())
def test_what_a_shard_says_is_read_as_it_was_said(
    kind: type[msgspec.Struct], data: st.DataObject
) -> None:
    message: Any = data.draw(messages(kind))
    assert decode_from_shard(encode_link(message)) == message


@given(message=from_client() | from_server())
def test_json_holds_no_numbers_but_only_decimal_strings(
    message: FromClient | ServerMessage,
) -> None:
    assert not list(_numbers(msgspec.json.decode(encode(message, "json"))))


def _numbers(value: Any) -> Any:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for member in value:
            yield from _numbers(member)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


@pytest.mark.parametrize("version", [0, 2**53 - 1, 2**53, 2**53 + 1, 2**63 - 1])
def test_versions_beyond_2_to_the_53_survive_json(version: int) -> None:
    message = ClientMessage("1.0", 2**60 + 1, 7, operations=[Operation("a/b", True, version)])
    frame = encode(message, "json")
    assert f'"{version}"'.encode() in frame
    assert decode_from_client(frame, "json") == message


@pytest.mark.parametrize("version", [0, 2**53 + 1, 2**63 - 1])
def test_numbers_are_read_from_json_as_well(version: int) -> None:
    frame = b'{"type":"server","v":"1.0","session":%d,"notifications":[["a/b",%d,9]]}'
    expected = ServerMessage("1.0", version, notifications=[Notification("a/b", version, 9)])
    assert decode_from_server(frame % (version, version), "json") == expected


def test_the_largest_sum_of_a_digest_survives_both_formats() -> None:
    message = ServerMessage("1.0", digest=ServerDigest(1, 2**64 - 1, 0))
    for format in FORMATS:
        assert decode_from_server(encode(message, format), format) == message


@pytest.mark.parametrize("spelling", [b"null", b"NULL", b"Null", b"nuLL"])
def test_a_payload_whose_base64_spells_null_is_a_payload(spelling: bytes) -> None:
    """The three bytes 9E E9 65 are one; read leniently, they would vanish."""
    payload = msgspec.json.decode(b'"%s"' % spelling, type=bytes)
    parts = [
        Notification("a/b", 1, 9, payload),
        Notification("a/c", 1, 9),
        Notification("a/d", 1, 9, b"other"),
    ]
    message = ServerMessage("1.0", notifications=parts)
    assert b'"%s"' % spelling in encode(message, "json")
    assert decode_from_server(encode(message, "json"), "json") == message


def test_fields_that_are_empty_do_not_travel() -> None:
    assert encode(ServerMessage("1.0"), "json") == b'{"type":"server","v":"1.0"}'


def test_the_two_directions_of_a_link_share_no_name() -> None:
    down = {kind.__name__ for kind in ToShard.__args__}
    assert down.isdisjoint(kind.__name__ for kind in FromShard.__args__)
