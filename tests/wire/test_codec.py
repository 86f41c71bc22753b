"""What is accepted and what is refused: protocol versions, unknown fields, names, limits."""

from typing import Any

import msgspec
import pytest
from tests.wire.server_json import decode_from_server

from roskva.errors import BadMessage, TooLarge, WrongProtocol
from roskva.wire import links
from roskva.wire.codec import (
    Format,
    decode_from_client,
    decode_from_shard,
    decode_to_shard,
    encode,
    encode_link,
)
from roskva.wire.links import MAX_LINK_FRAME_BYTES, MAX_LINK_PARTS
from roskva.wire.messages import MAX_FRAME_BYTES, MAX_PARTS, Notification, ServerMessage

FORMATS: list[Format] = ["msgpack", "json"]
both_formats = pytest.mark.parametrize("format", FORMATS)

HELLO = {"type": "hello", "v": "1.0", "nonce": bytes(8), "app": "a"}
CLIENT = {"type": "client", "v": "1.0", "session": 1, "number": 1}
SERVER = {"type": "server", "v": "1.0"}
WEEK_MS = 7 * 24 * 3600 * 1000


def frame_of(message: dict[str, Any], format: Format) -> bytes:
    if format == "msgpack":
        return msgspec.msgpack.encode(message)
    return msgspec.json.encode(message)


def read(message: dict[str, Any], format: Format) -> Any:
    if message.get("type") == "server":
        return decode_from_server(frame_of(message, format), format)
    return decode_from_client(frame_of(message, format), format)


# Protocol versions.


@both_formats
@pytest.mark.parametrize("message", [HELLO, CLIENT, SERVER], ids=lambda m: m["type"])
def test_c05_a_message_without_a_protocol_version_is_refused(
    message: dict[str, Any], format: Format
) -> None:
    without = {name: value for name, value in message.items() if name != "v"}
    with pytest.raises(BadMessage, match="`v`"):
        read(without, format)


@both_formats
@pytest.mark.parametrize("version", ["", "0.9", "1", "2.0", "10.0", "01.0", "x"])
@pytest.mark.parametrize("message", [HELLO, CLIENT, SERVER], ids=lambda m: m["type"])
def test_c06_another_major_version_is_refused(
    message: dict[str, Any], version: str, format: Format
) -> None:
    with pytest.raises(WrongProtocol):
        read({**message, "v": version}, format)


@both_formats
@pytest.mark.parametrize("version", ["1.1", "1.2", "1.100"])
@pytest.mark.parametrize("message", [HELLO, CLIENT, SERVER], ids=lambda m: m["type"])
def test_c07_another_minor_version_is_accepted(
    message: dict[str, Any], version: str, format: Format
) -> None:
    assert read({**message, "v": version}, format).v == version


@both_formats
@pytest.mark.parametrize("kind", ["Hello", "", "later", None, 7])
def test_a_message_of_no_known_type_is_refused(kind: Any, format: Format) -> None:
    with pytest.raises(BadMessage):
        read({**CLIENT, "type": kind}, format)


# Unknown fields.

LATER: dict[str, Any] = {"later": {"deep": [1, None, True, "text", 2.5, {"x": []}]}}


@both_formats
@pytest.mark.parametrize("message", [HELLO, CLIENT, SERVER], ids=lambda m: m["type"])
def test_fields_of_a_later_version_are_ignored(message: dict[str, Any], format: Format) -> None:
    assert read({**message, **LATER}, format) == read(message, format)


@both_formats
def test_parts_may_grow_at_their_end(format: Format) -> None:
    grown = {**CLIENT, "operations": [["a/b", True, 7, "later", {}]], "digest": [0, 0, "later"]}
    known = {**CLIENT, "operations": [["a/b", True, 7]], "digest": [0, 0]}
    assert read(grown, format) == read(known, format)


@both_formats
def test_parts_may_leave_out_what_has_a_default(format: Format) -> None:
    short = {**CLIENT, "operations": [["a/b"]]}
    assert read(short, format) == read({**CLIENT, "operations": [["a/b", True, None]]}, format)


def test_fields_of_a_later_version_are_ignored_on_links() -> None:
    pong = msgspec.msgpack.encode({"type": "Pong", "agree": True, **LATER})
    assert decode_from_shard(pong) == links.Pong(True)
    ping = msgspec.msgpack.encode({"type": "Ping", "count": 1, "sum": 2, **LATER})
    assert decode_to_shard(ping) == links.Ping(1, 2)


# The hello.


@both_formats
@pytest.mark.parametrize(
    "fields", [{"app": None}, {"token": b"token"}], ids=["neither", "both app and token"]
)
def test_c59_a_hello_names_an_app_or_shows_a_token(fields: dict[str, Any], format: Format) -> None:
    with pytest.raises(BadMessage, match="one of the two"):
        read({**HELLO, **fields}, format)


@both_formats
@pytest.mark.parametrize("app", ["", "A", "a/b", "a b", "ä", "a\n", "a" * 64])
def test_a_hello_names_an_app_that_can_be_one(app: str, format: Format) -> None:
    """An empty one above all: it would stand for every app."""
    with pytest.raises(BadMessage):
        read({**HELLO, "app": app}, format)


@both_formats
def test_an_application_id_has_at_most_64_bytes(format: Format) -> None:
    assert read({**HELLO, "application": "ä" * 32}, format).application == "ä" * 32
    with pytest.raises(BadMessage):
        read({**HELLO, "application": "ä" * 33}, format)


# Names.

NO_KEYS = [
    "abc",
    "/b",
    "a/",
    "A/b",
    "a/b+c",
    "a/#",
    "a/\n",
    "a/\x7f",
    "a/\x85",
    f"{'a' * 64}/b",
    "a/" + "ä" * 128,
]


@both_formats
@pytest.mark.parametrize("key", NO_KEYS)
def test_names_are_checked_where_they_enter(key: str, format: Format) -> None:
    for parts in ({"operations": [[key]]}, {"syncs": [[b"", [key]]]}):
        with pytest.raises(BadMessage):
            read({**CLIENT, **parts}, format)


def test_a_lone_surrogate_is_no_text() -> None:
    frame = b'{"type":"client","v":"1.0","session":"1","number":"1","operations":[["a/\\ud800"]]}'
    with pytest.raises(BadMessage):
        decode_from_client(frame, "json")


# Limits. Each list: a message at the limit, and one beyond it.

LONG_KEY = f"{'a' * 63}/{'n' * 255}"


def operations(count: int) -> dict[str, Any]:
    return {**CLIENT, "operations": [["a/b"]] * count}


def notified(*parts: Any) -> dict[str, Any]:
    return {**SERVER, "notifications": [parts]}


def granted(**fields: Any) -> dict[str, Any]:
    return {**SERVER, "grant": {"client": bytes(16), "token": b"t", **fields}}


LIMITS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "version of the protocol": ({**HELLO, "v": "1." + "0" * 14}, {**HELLO, "v": "1." + "0" * 15}),
    "short nonce": (HELLO, {**HELLO, "nonce": bytes(7)}),
    "long nonce": ({**HELLO, "nonce": bytes(16)}, {**HELLO, "nonce": bytes(17)}),
    "app": ({**HELLO, "app": "a" * 63}, {**HELLO, "app": "a" * 64}),
    "empty token": (
        {**HELLO, "app": None, "token": b"t"},
        {**HELLO, "app": None, "token": b""},
    ),
    "long token": (
        {**HELLO, "app": None, "token": bytes(1024)},
        {**HELLO, "app": None, "token": bytes(1025)},
    ),
    "application": ({**HELLO, "application": "a" * 64}, {**HELLO, "application": "a" * 65}),
    "session": ({**CLIENT, "session": 2**63 - 1}, {**CLIENT, "session": 2**63}),
    "negative session": ({**CLIENT, "session": 0}, {**CLIENT, "session": -1}),
    "number": ({**CLIENT, "number": 2**63 - 1}, {**CLIENT, "number": 2**63}),
    "count of a digest": (
        {**CLIENT, "digest": [2**63 - 1, 0]},
        {**CLIENT, "digest": [2**63, 0]},
    ),
    "negative sum": ({**CLIENT, "digest": [0, 0]}, {**CLIENT, "digest": [0, -1]}),
    "operations": (operations(MAX_PARTS), operations(MAX_PARTS + 1)),
    "acks": (
        {**CLIENT, "acks": [["a/b", 1, 1]] * MAX_PARTS},
        {**CLIENT, "acks": [["a/b", 1, 1]] * (MAX_PARTS + 1)},
    ),
    "syncs": (
        {**CLIENT, "syncs": [[b"", []]] * MAX_PARTS},
        {**CLIENT, "syncs": [[b"", []]] * (MAX_PARTS + 1)},
    ),
    "objects of a sync": (
        {**CLIENT, "syncs": [[b"", ["a/b"] * MAX_PARTS]]},
        {**CLIENT, "syncs": [[b"", ["a/b"] * (MAX_PARTS + 1)]]},
    ),
    "prefix of a sync": (
        {**CLIENT, "syncs": [[bytes(8), []]]},
        {**CLIENT, "syncs": [[bytes(9), []]]},
    ),
    "long key": (
        {**CLIENT, "operations": [[LONG_KEY]]},
        {**CLIENT, "operations": [[LONG_KEY + "n"]]},
    ),
    "short key": ({**CLIENT, "operations": [["a/b"]]}, {**CLIENT, "operations": [["a/"]]}),
    "long key in an ack": (
        {**CLIENT, "acks": [[LONG_KEY, 1, 1]]},
        {**CLIENT, "acks": [[LONG_KEY + "n", 1, 1]]},
    ),
    "declared version": (
        {**CLIENT, "operations": [["a/b", True, 2**63 - 1]]},
        {**CLIENT, "operations": [["a/b", True, 2**63]]},
    ),
    "negative version": (
        {**CLIENT, "acks": [["a/b", 0, 1]]},
        {**CLIENT, "acks": [["a/b", -1, 1]]},
    ),
    "no epoch": ({**CLIENT, "acks": [["a/b", 0, 1]]}, {**CLIENT, "acks": [["a/b", 0, 0]]}),
    "epoch": (
        {**CLIENT, "acks": [["a/b", 0, 2**63 - 1]]},
        {**CLIENT, "acks": [["a/b", 0, 2**63]]},
    ),
    "not before": ({**SERVER, "not_before_ms": WEEK_MS}, {**SERVER, "not_before_ms": WEEK_MS + 1}),
    "slow heartbeat": (
        {**SERVER, "config": {"heartbeat_ms": WEEK_MS}},
        {**SERVER, "config": {"heartbeat_ms": WEEK_MS + 1}},
    ),
    "no heartbeat": (
        {**SERVER, "config": {"heartbeat_ms": 1}},
        {**SERVER, "config": {"heartbeat_ms": 0}},
    ),
    "short client id": (granted(), granted(client=bytes(15))),
    "long client id": (granted(), granted(client=bytes(17))),
    "granted token": (granted(token=bytes(1024)), granted(token=bytes(1025))),
    "granted nonce": (granted(nonce=bytes(16)), granted(nonce=bytes(17))),
    "payload": (
        notified("a/b", 1, 1, bytes(16 * 1024)),
        notified("a/b", 1, 1, bytes(16 * 1024 + 1)),
    ),
    "notifications": (
        {**SERVER, "notifications": [["a/b", 1, 1]] * MAX_PARTS},
        {**SERVER, "notifications": [["a/b", 1, 1]] * (MAX_PARTS + 1)},
    ),
    "statuses": (
        {**SERVER, "statuses": [["a/b", True, 1]] * (MAX_PARTS // 2)},
        {**SERVER, "statuses": [["a/b", True, 1]] * (MAX_PARTS + 1)},
    ),
    "code of a status": (
        {**SERVER, "statuses": [["a/b", False, 1, "c" * 64]]},
        {**SERVER, "statuses": [["a/b", False, 1, "c" * 65]]},
    ),
    "sums": (
        {**SERVER, "sync_request": {"sums": [0] * 256}},
        {**SERVER, "sync_request": {"sums": [0] * 257}},
    ),
    "code of an error": (
        {**SERVER, "error": {"code": "c" * 64}},
        {**SERVER, "error": {"code": "c" * 65}},
    ),
    "text of an error": (
        {**SERVER, "error": {"code": "c", "text": "t" * 1024}},
        {**SERVER, "error": {"code": "c", "text": "t" * 1025}},
    ),
}


@both_formats
@pytest.mark.parametrize("limit", LIMITS)
def test_every_size_has_a_limit(limit: str, format: Format) -> None:
    within, beyond = LIMITS[limit]
    read(within, format)
    with pytest.raises(BadMessage):
        read(beyond, format)


def test_a_sum_of_more_than_64_bits_is_refused() -> None:
    for sum_ in (2**64, 10**4000):
        with pytest.raises(BadMessage, match="64 bits"):
            read({**CLIENT, "digest": ["1", str(sum_)]}, "json")


@both_formats
def test_a_frame_has_a_limit_in_both_directions(format: Format) -> None:
    def padded(message: dict[str, Any], size: int) -> bytes:
        # Past 65,535 bytes a string's header would grow: a list takes the rest.
        filled = {**message, "later": ["x" * 60_000, ""]}
        filled["later"] = ["x" * 60_000, "x" * (size - len(frame_of(filled, format)) - 2)]
        frame = frame_of(filled, format)
        return frame + b" " * (size - len(frame)) if format == "json" else frame

    for message, decode in ((CLIENT, decode_from_client), (SERVER, decode_from_server)):
        whole = padded(message, MAX_FRAME_BYTES)
        assert len(whole) == MAX_FRAME_BYTES
        assert decode(whole, format) == read(message, format)
        with pytest.raises(TooLarge):
            decode(padded(message, MAX_FRAME_BYTES + 1), format)


@both_formats
def test_a_frame_beyond_the_limit_is_not_sent_either(format: Format) -> None:
    parts = [Notification("a/b", 1, 1, bytes(16_000))] * 5
    with pytest.raises(TooLarge):
        encode(ServerMessage("1.0", notifications=parts), format)


# Links.


def test_a_link_frame_has_a_limit_in_both_directions() -> None:
    for decode in (decode_to_shard, decode_from_shard):
        with pytest.raises(TooLarge):
            decode(bytes(MAX_LINK_FRAME_BYTES + 1))
        with pytest.raises(BadMessage):
            decode(bytes(MAX_LINK_FRAME_BYTES))
    row = links.WriteRow(1, bytes(16), 1, drop=["a/" + "n" * 255] * 17_000)
    with pytest.raises(TooLarge):
        encode_link(row)


def test_every_list_on_a_link_that_is_cut_into_slices_has_a_limit() -> None:
    within, beyond = ["a/b"] * MAX_LINK_PARTS, ["a/b"] * (MAX_LINK_PARTS + 1)
    assert decode_to_shard(encode_link(links.Interest(within, within)))
    for interest in (links.Interest(beyond), links.Interest(drop=beyond)):
        with pytest.raises(BadMessage):
            decode_to_shard(encode_link(interest))
    known = [links.CurrentVersion("a/b", 1, 1)] * (MAX_LINK_PARTS + 1)
    with pytest.raises(BadMessage):
        decode_from_shard(encode_link(links.Versions(known)))
    cells = [links.Registered("a/b", 1, 1)] * (MAX_LINK_PARTS + 1)
    with pytest.raises(BadMessage):
        decode_from_shard(encode_link(links.SessionOpened(1, 1, True, cells)))


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_client_id_on_a_link_has_16_bytes(size: int) -> None:
    with pytest.raises(BadMessage):
        decode_to_shard(encode_link(links.OpenSession(1, bytes(size))))
