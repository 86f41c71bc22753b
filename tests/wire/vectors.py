"""Writes spec/vectors: what a client in another language is tested against.

    python -m tests.wire.vectors

Everything is computed by the code itself; the files are kept so that a change of what travels is
seen as a change of files. `spec/README.md` says how to use them.
"""

from pathlib import Path
from typing import Any, Final

import msgspec
from tests.digests import sum_of
from tests.wire import examples

from roskva.core import digest, freshness
from roskva.core.freshness import Acked, Known
from roskva.errors import BadName, RoskvaError
from roskva.model import (
    MAX_VERSION,
    NO_EPOCH,
    NO_VERSION,
    mark_of,
    object_epoch,
    parse_key,
    shard_of,
)
from roskva.wire import codec

DIRECTORY: Final = Path(__file__).parents[2] / "spec" / "vectors"

Vector = dict[str, Any]


def _readable(message: Any) -> Any:
    """As in our JSON: integers are decimal strings, bytes base64, empty fields left out."""
    return _integers_as_text(msgspec.to_builtins(message))


def _integers_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _integers_as_text(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_integers_as_text(member) for member in value]
    return str(value) if type(value) is int else value


# Messages.


def from_client() -> list[Vector]:
    return [_both_forms(name, message) for name, message in examples.FROM_CLIENT.items()]


def from_server() -> list[Vector]:
    return [_both_forms(name, message) for name, message in examples.FROM_SERVER.items()]


def to_shard() -> list[Vector]:
    return [_linked(name, message) for name, message in examples.TO_SHARD.items()]


def from_shard() -> list[Vector]:
    return [_linked(name, message) for name, message in examples.FROM_SHARD.items()]


def _both_forms(name: str, message: Any) -> Vector:
    return {
        "name": name,
        "message": _readable(message),
        "msgpack": codec.encode(message).hex(),
        "json": codec.encode(message, "json").decode(),
    }


def _linked(name: str, message: Any) -> Vector:
    return {
        "name": name,
        "message": _readable(message),
        "msgpack": codec.encode_link(message).hex(),
    }


LENIENT: Final = {
    "integers as numbers": '{"type":"client","v":"1.0","session":7,"number":1}',
    "fields of a later version": '{"type":"client","v":"1.9","session":"7","number":"1","x":[{}]}',
    "a part that has grown": '{"type":"client","v":"1.9","session":"7","number":"1",'
    '"operations":[["a/b",true,"3","x"]]}',
    "a part without its defaults": '{"type":"client","v":"1.0","session":"7","number":"1",'
    '"operations":[["a/b"]]}',
    "empty parts that travel all the same": '{"type":"client","v":"1.0","session":"7",'
    '"number":"1","digest":null,"operations":[],"acks":[],"syncs":[]}',
    "another order, and spaces": ' { "number" : "1" , "session":"7", "v":"1.0","type":"client" } ',
}
REFUSED: Final = {
    "no protocol version": '{"type":"client","session":"7","number":"1"}',
    "another major version": '{"type":"client","v":"2.0","session":"7","number":"1"}',
    "no type": '{"v":"1.0","session":"7","number":"1"}',
    "another type": '{"type":"other","v":"1.0","session":"7","number":"1"}',
    "a hello with neither app nor token": '{"type":"hello","v":"1.0","nonce":"ABEiM0RVZnc="}',
    "a hello with both": '{"type":"hello","v":"1.0","nonce":"ABEiM0RVZnc=",'
    '"app":"a","token":"AQ=="}',
    "a hello with an empty app": '{"type":"hello","v":"1.0","nonce":"ABEiM0RVZnc=","app":""}',
    "a nonce of 7 bytes": '{"type":"hello","v":"1.0","nonce":"ABEiM0RVZg==","app":"a"}',
    "a version below 0": '{"type":"client","v":"1.0","session":"7","number":"1",'
    '"operations":[["a/b",true,"-1"]]}',
    "a version above 2^63 - 1": '{"type":"client","v":"1.0","session":"7","number":"1",'
    '"operations":[["a/b",true,"9223372036854775808"]]}',
    "an ack of epoch 0": '{"type":"client","v":"1.0","session":"7","number":"1",'
    '"acks":[["a/b","1","0"]]}',
    "a sum of 65 bits": '{"type":"client","v":"1.0","session":"7","number":"1",'
    '"digest":["1","18446744073709551616"]}',
    "a name that is no object's": '{"type":"client","v":"1.0","session":"7","number":"1",'
    '"operations":[["a/b+c"]]}',
    "a truncated frame": '{"type":"client","v":"1.0","session":"7","number":"1"',
    "more after the end": '{"type":"client","v":"1.0","session":"7","number":"1"}{}',
}


def reading() -> Vector:
    return {
        "accepted": [
            {
                "name": name,
                "json": text,
                "message": _readable(codec.decode_from_client(text.encode(), "json")),
            }
            for name, text in LENIENT.items()
        ],
        "refused": [
            {"name": name, "json": text, "code": _refusal(text)} for name, text in REFUSED.items()
        ],
    }


def _refusal(text: str) -> str:
    try:
        codec.decode_from_client(text.encode(), "json")
    except RoskvaError as error:
        return error.code
    raise AssertionError(f"not refused: {text}")


# Digests.

SETS: Final[dict[str, list[str]]] = {
    "the empty set": [],
    "one object": ["contacts/alice"],
    "two objects": ["contacts/alice", "contacts/bob"],
    "beyond ASCII": ["contacts/böb/phone", "contacts/日本 語", "contacts/🙂"],
    "the longest key": [examples.LONGEST_KEY],
    "a sum that wraps": [f"maps/tile-{i}" for i in range(20)],
}


def digests() -> Vector:
    return {
        "hashes": [
            {
                "key": key,
                "hash": str(digest.hash_of(key)),
                "hash_hex": f"{digest.hash_of(key):016x}",
                "bucket": digest.hash_of(key) >> 56,
            }
            for key in sorted({key for keys in SETS.values() for key in keys})
        ],
        "sets": [
            {
                "name": name,
                "keys": keys,
                "count": str(len(keys)),
                "sum": str(sum_of(keys)),
                "buckets": {
                    str(bucket): str(total)
                    for bucket, total in enumerate(digest.bucket_sums(map(digest.hash_of, keys)))
                    if total
                },
            }
            for name, keys in SETS.items()
        ],
        "prefixes": [_under(key, length) for key in SETS["two objects"] for length in (0, 1, 2, 8)],
    }


def _under(key: str, length: int) -> Vector:
    """The prefix of this length that the key is under, and its neighbour."""
    prefix = digest.hash_of(key).to_bytes(8)[:length]
    other = bytes([*prefix[:-1], prefix[-1] ^ 1]) if prefix else None
    assert digest.hash_of(key).to_bytes(8).startswith(prefix)
    assert other is None or not digest.hash_of(key).to_bytes(8).startswith(other)
    return {
        "key": key,
        "under": prefix.hex(),
        "not_under": None if other is None else other.hex(),
    }


# Names, shards, epochs.

VALID_KEYS: Final = [
    "a/b",
    "contacts/alice",
    "0-9/x",
    "contacts/region-1/camera-config",
    "contacts//",
    "contacts/ ",
    "contacts/böb",
    "contacts/日本 語",
    "contacts/🙂",
    "contacts/a:b;c?d=e&f%20",
    'contacts/"quoted"\\',
    "contacts/$share/x",
    examples.LONGEST_KEY,
    "a/" + "ä" * 127 + "x",
]
INVALID_KEYS: Final = [
    "",
    "contacts",
    "/alice",
    "contacts/",
    "Contacts/alice",
    "con_tacts/alice",
    "böb/alice",
    "a" * 64 + "/b",
    "a/" + "n" * 256,
    "a/" + "ä" * 128,
    "a/b+",
    "a/#",
    "a/\x00",
    "a/\n",
    "a/\x7f",
    "a/\x85",
]
SHARD_COUNTS: Final = [1, 2, 4, 7, 1024]


def keys() -> Vector:
    return {
        "valid": [
            {"key": key, "app": parse_key(key).app, "name": parse_key(key).name}
            for key in VALID_KEYS
        ],
        "invalid": [{"key": key, "reason": _reason(key)} for key in INVALID_KEYS],
    }


def _reason(key: str) -> str:
    try:
        parse_key(key)
    except BadName as error:
        return str(error)
    raise AssertionError(f"valid: {key}")


def shards() -> Vector:
    clients = [bytes(16), examples.CLIENT_ID, b"\xff" * 16]
    return {
        "objects": [{"key": key, "shard_of": _shards(key)} for key in VALID_KEYS],
        "clients": [{"client": id.hex(), "shard_of": _shards(id)} for id in clients],
    }


def _shards(identity: str | bytes) -> dict[str, int]:
    return {str(count): shard_of(identity, count) for count in SHARD_COUNTS}


def epochs() -> list[Vector]:
    parts = [
        (shard, mark)
        for shard in (1, 0xABCDEF0123, 2**40 - 1)
        for mark in (0, 1, 0xABCDE, 2**20 - 1)
    ]
    return [
        {
            "shard_epoch": str(shard),
            "mark": str(mark),
            "epoch": str(object_epoch(shard, mark)),
            "mark_of": str(mark_of(object_epoch(shard, mark))),
        }
        for shard, mark in parts
    ]


# Freshness.

E1: Final = object_epoch(1, 0)
E2: Final = object_epoch(2, 0)
E2_RESET: Final = object_epoch(2, 5)
_EPOCHS: Final = [E1, E2, E2_RESET]
_VERSIONS: Final = [NO_VERSION, 0, 5, 6]
_ACKED: Final[list[Acked]] = [
    freshness.NEVER,
    (5, NO_EPOCH),
    *((a, e) for a in (NO_VERSION, 5) for e in _EPOCHS),
    (MAX_VERSION, E1),
]
_KNOWN: Final[list[Known]] = [(v, e) for v in _VERSIONS for e in (E2, E2_RESET)]


def _version(version: int) -> str | None:
    return None if version == NO_VERSION else str(version)


def _pair(pair: tuple[int, int]) -> list[str | None]:
    return [_version(pair[0]), str(pair[1])]


def freshness_table() -> Vector:
    return {
        "due": [
            {
                "acked": _pair(acked),
                "known": _pair(known),
                "due": freshness.due(acked, known).name.lower(),
            }
            for acked in _ACKED
            for known in _KNOWN
        ],
        "ack": [
            _transition(acked, version, epoch, known)
            for acked in _ACKED
            for version in _VERSIONS
            for epoch in _EPOCHS
            for known in [(5, E2), (5, E2_RESET), (NO_VERSION, E2_RESET)]
        ],
        "declare": [
            {
                "version": str(version),
                "acked": None if acked is None else _pair(acked),
                "known": None if known is None else _pair(known),
                "then": _pair(freshness.declared(version, acked, known)),
            }
            for version in (3, 7)
            for acked in (None, freshness.NEVER, (5, E1), (5, E2))
            for known in (None, (NO_VERSION, E2), (5, E2))
        ],
    }


def _transition(acked: Acked, version: int, epoch: int, known: Known) -> Vector:
    forged = freshness.is_forged(version, epoch, known)
    then = acked if forged else freshness.after_ack(acked, version, epoch, known)
    return {
        "acked": _pair(acked),
        "known": _pair(known),
        "ack": _pair((version, epoch)),
        "forged": forged,
        "then": _pair(then),
    }


# Files.


def files() -> dict[str, str]:
    """File name → content; one vector to a line, so that a change is one line."""
    return {
        "from-client.json": _lines(from_client()),
        "from-server.json": _lines(from_server()),
        "to-shard.json": _lines(to_shard()),
        "from-shard.json": _lines(from_shard()),
        "reading.json": _sections(reading()),
        "digest.json": _sections(digests()),
        "keys.json": _sections(keys()),
        "shards.json": _sections(shards()),
        "epochs.json": _lines(epochs()),
        "freshness.json": _sections(freshness_table()),
    }


def _lines(vectors: list[Vector]) -> str:
    return "[\n" + ",\n".join(_text(vector) for vector in vectors) + "\n]\n"


def _sections(sections: dict[str, list[Vector]]) -> str:
    parts = [f"{_text(name)}: {_lines(vectors).rstrip()}" for name, vectors in sections.items()]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def main() -> None:
    DIRECTORY.mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        (DIRECTORY / name).write_text(content, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
