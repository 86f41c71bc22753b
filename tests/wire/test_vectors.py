"""The vectors in spec/ are what the code says, and say what they seem to."""

import json
import re
from base64 import b64decode
from hashlib import sha256
from typing import Any
from zlib import crc32

import msgspec
import pytest
from tests.wire import examples, vectors
from tests.wire.server_json import decode_from_server

from roskva.wire import links, messages
from roskva.wire.codec import (
    decode_from_client,
    decode_from_shard,
    decode_to_shard,
)

FILES = vectors.files()


def stored(name: str) -> Any:
    return json.loads((vectors.DIRECTORY / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_what_the_code_produces(name: str) -> None:
    """If this is meant to change, `make vectors` renews them."""
    assert (vectors.DIRECTORY / name).read_text(encoding="utf-8") == FILES[name]


def test_there_are_no_other_files() -> None:
    assert {path.name for path in vectors.DIRECTORY.iterdir()} == set(FILES)


def test_every_file_is_explained() -> None:
    explained = (vectors.DIRECTORY.parent / "README.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`([a-z-]+\.json)`", explained)) == set(FILES)


@pytest.mark.parametrize(
    ("name", "expected", "decode"),
    [
        ("from-client.json", examples.FROM_CLIENT, decode_from_client),
        ("from-server.json", examples.FROM_SERVER, decode_from_server),
    ],
)
def test_both_forms_decode_to_the_message(name: str, expected: Any, decode: Any) -> None:
    for vector in stored(name):
        message = expected[vector["name"]]
        assert decode(bytes.fromhex(vector["msgpack"]), "msgpack") == message
        assert decode(vector["json"].encode(), "json") == message
        assert json.loads(vector["json"]) == vector["message"]


@pytest.mark.parametrize(
    ("name", "expected", "decode"),
    [
        ("to-shard.json", examples.TO_SHARD, decode_to_shard),
        ("from-shard.json", examples.FROM_SHARD, decode_from_shard),
    ],
)
def test_link_vectors_decode_to_the_message(name: str, expected: Any, decode: Any) -> None:
    for vector in stored(name):
        assert decode(bytes.fromhex(vector["msgpack"])) == expected[vector["name"]]


def test_the_two_forms_differ_only_as_the_rules_say() -> None:
    """For a reader without our definitions: numbers become text, bytes become base64."""
    for name in ("from-client.json", "from-server.json"):
        for vector in stored(name):
            plain = msgspec.msgpack.decode(bytes.fromhex(vector["msgpack"]))
            assert same(plain, json.loads(vector["json"])), vector["name"]


def same(packed: Any, text: Any) -> bool:
    if isinstance(packed, dict):
        return packed.keys() == text.keys() and all(same(packed[k], text[k]) for k in packed)
    if isinstance(packed, list):
        return len(packed) == len(text) and all(map(same, packed, text))
    if isinstance(packed, bytes):
        return packed == b64decode(text, validate=True)
    if isinstance(packed, int) and not isinstance(packed, bool):
        return bool(text == str(packed))
    return bool(packed == text)


def test_every_field_of_every_message_has_an_example() -> None:
    seen: set[tuple[type, str]] = set()
    for message in (
        *examples.FROM_CLIENT.values(),
        *examples.FROM_SERVER.values(),
        *examples.TO_SHARD.values(),
        *examples.FROM_SHARD.values(),
    ):
        note(message, seen)
    for module in (messages, links):
        for kind in vars(module).values():
            if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
                missing = [f for f in kind.__struct_fields__ if (kind, f) not in seen]
                assert not missing, (kind, missing)


def note(value: Any, seen: set[tuple[type, str]]) -> None:
    """Which fields of which kinds are given, and not only left at their defaults."""
    if isinstance(value, list):
        for member in value:
            note(member, seen)
    elif isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(value):
            given = getattr(value, field.name)
            if field.required or given not in (field.default, []):
                seen.add((type(value), field.name))
            note(given, seen)


def test_hashes_are_the_first_eight_bytes_of_sha_256() -> None:
    """Computed a second time, the way another language would."""
    for vector in stored("digest.json")["hashes"]:
        head = sha256(vector["key"].encode()).hexdigest()[:16]
        assert vector["hash_hex"] == head
        assert int(vector["hash"]) == int(head, 16)
        assert vector["bucket"] == int(head[:2], 16)


def test_sums_wrap_at_64_bits() -> None:
    hashes = {v["key"]: int(v["hash"]) for v in stored("digest.json")["hashes"]}
    sets = stored("digest.json")["sets"]
    for vector in sets:
        total = sum(hashes[key] for key in vector["keys"])
        assert int(vector["sum"]) == total % 2**64
        assert sum(map(int, vector["buckets"].values())) % 2**64 == total % 2**64
    wrapping = next(v for v in sets if v["name"] == "a sum that wraps")
    assert sum(hashes[key] for key in wrapping["keys"]) >= 2**64


def test_shards_are_chosen_by_crc_32() -> None:
    for vector in stored("shards.json")["objects"]:
        for count, shard in vector["shard_of"].items():
            assert crc32(vector["key"].encode()) % int(count) == shard
    for vector in stored("shards.json")["clients"]:
        for count, shard in vector["shard_of"].items():
            assert crc32(bytes.fromhex(vector["client"])) % int(count) == shard


def test_every_outcome_of_the_table_has_a_vector() -> None:
    table = stored("freshness.json")
    assert {vector["due"] for vector in table["due"]} == {"nothing", "version", "unknown"}
    assert {vector["forged"] for vector in table["ack"]} == {True, False}


def test_the_table_can_be_applied_without_our_code() -> None:
    """The table of docs/protocol.md, written down a second time."""

    def number(version: str | None) -> int:
        return -1 if version is None else int(version)

    for vector in stored("freshness.json")["due"]:
        (a, e), (v, epoch) = vector["acked"], vector["known"]
        if number(v) > number(a):
            expected = "version"
        elif e != epoch:
            expected = "unknown"
        else:
            expected = "nothing"
        assert vector["due"] == expected


def test_acks_can_be_applied_without_our_code() -> None:
    """The second table of docs/protocol.md, written down a second time."""

    def pair(values: list[str | None]) -> tuple[int, int]:
        version, epoch = values
        return -1 if version is None else int(version), int(epoch or 0)

    def mark(epoch: int) -> int:
        return epoch % 2**20

    for vector in stored("freshness.json")["ack"]:
        (a, e), (v, known), (w, f) = map(pair, (vector["acked"], vector["known"], vector["ack"]))
        if f == known and w > v:
            expected = (a, e)
        elif f == known and mark(f) not in (0, mark(e)):
            expected = (w, f)
        elif f == known:
            expected = (max(a, w), f)
        elif e == known and mark(f) != mark(e):
            expected = (a, e)
        else:
            expected = (max(a, w), e)
        assert pair(vector["then"]) == expected, vector
