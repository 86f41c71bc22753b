"""Every credential that is not good, for everything one may want, over every channel: refused, in
the same words where they must be, and nothing has changed.

The matrix is generated from the lists below; where a channel has no such operation, it is said why.
Each operation is tried with a good credential as well, or a refusal would mean nothing.
"""

import base64
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from tests.channels import mqtt_side
from tests.loops import PATIENCE_S, run_within
from tests.serving.keyed import ADMIN_KEY, HOUR, Issuer, KeyedNode, publish_key, tampered
from tests.serving.raw_mqtt import RawMqtt
from tests.serving.raw_websocket import hear, hello, raw_websocket, register, say

from roskva.core.identity import Claims, TokenKeys
from roskva.server.access.keys import token_keys
from roskva.store import rows
from roskva.store.rocksdb import RocksStore
from roskva.wire.mqtt import codes
from roskva.wire.mqtt.codes import V3, V5

OBJECT: Final = "contacts/alice"
CLIENT: Final = bytes(range(16))
VERSION: Final = 7

CREDENTIALS: Final = (
    "no token",
    "expired",
    "not yet valid",
    "wrong audience",
    "other tenant",
    "tampered",
    "replayed",
    "revoked",
    "wrong algorithm: none",
    "wrong algorithm: the public key as a secret",
    "a key that nobody has",
)
"""`replayed`: a token that the node itself granted to a good client, captured and shown where a
credential is asked for. What is shown again where it was meant for is that client: whoever can
capture it is kept out by TLS, and sent away by revoking."""

SAME_WORDS: Final = {
    *("expired", "not yet valid", "wrong audience", "tampered", "replayed", "revoked"),
    *("wrong algorithm: none", "wrong algorithm: the public key as a secret"),
    "a key that nobody has",
}

OPERATIONS: Final = ("hello", "register", "publish", "read", "admin")
CHANNELS: Final = ("websocket", "websocket token", "mqtt 3.1.1", "mqtt 5", "http")

NOT_THERE: Final = {
    ("http", "hello"): "HTTP has no sessions: every request shows its credential",
    ("websocket", "publish"): "nothing is published over the WebSocket protocol",
    ("websocket token", "publish"): "nothing is published over the WebSocket protocol",
    ("websocket", "read"): "an object is read by registering for it",
    ("websocket token", "read"): "an object is read by registering for it",
    ("mqtt 3.1.1", "read"): "an object is read by subscribing to it",
    ("mqtt 5", "read"): "an object is read by subscribing to it",
    ("websocket", "admin"): "what a node says of itself is there over HTTP only",
    ("websocket token", "admin"): "what a node says of itself is there over HTTP only",
    ("mqtt 3.1.1", "admin"): "what a node says of itself is there over HTTP only",
    ("mqtt 5", "admin"): "what a node says of itself is there over HTTP only",
}
NO_SUCH_TOKEN: Final = {
    "no token": "a hello with neither app nor token is no message",
    "not yet valid": "the node's own tokens have no beginning",
    "wrong audience": "they name a cell in place of an audience: tried as another cell",
    "wrong algorithm: none": "they do not name an algorithm",
    "wrong algorithm: the public key as a secret": "they do not name an algorithm",
    "replayed": "whoever shows it is that client: see above",
}
"""For tokens of the node itself, which only the WebSocket has."""

NOT_TRIED: Final = {("mqtt 3.1.1", "publish"), ("mqtt 5", "publish"), ("http", "register")}
"""With a good credential: they would change what the others compare, or never end. They are tried
in `test_access.py`."""

Attempt = Callable[["World", str], Coroutine[Any, Any, tuple[Any, ...]]]


class World(NamedTuple):
    node: KeyedNode
    issuer: Issuer
    shown: dict[str, str | None]
    tokens: dict[str, bytes]
    good: str
    registered: list[bytes]
    """The clients that may have a row at the end."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    place = tmp_path_factory.mktemp("matrix")
    issuer, neighbour = Issuer(place / "contacts.json"), Issuer(place / "other.json")
    _, other_key = publish_key()
    past = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 60))
    settings = f"""
[apps.contacts]
jwks = "{issuer.jwks}"
register = ["**"]
publish = ["**"]

[apps.contacts.revoked]
mallory = {past}

[apps.other]
jwks = "{neighbour.jwks}"
register = ["**"]
publish = ["**"]
publish_keys = ["{other_key}"]
"""
    node = KeyedNode(place / "data", settings)
    try:
        node.start()
        good = issuer.jwt("alice", "contacts")
        assert node.publish_as(good, OBJECT, VERSION).is_success
        keys = token_keys(node.data)
        shown = _credentials(issuer, neighbour, keys, good)
        world = World(node, issuer, shown, _tokens(keys), good, [])
        yield world
        node.stop()
        assert sorted(_client_rows(node.data)) == sorted(world.registered)
    finally:
        node.end()


def _credentials(
    issuer: Issuer, neighbour: Issuer, keys: TokenKeys, good: str
) -> dict[str, str | None]:
    now = int(time.time())
    granted = keys.seal(Claims("contacts", CLIENT, "alice", "local", now + HOUR, now), bytes(12))
    return {
        "no token": None,
        "expired": issuer.jwt("alice", "contacts", exp=now - HOUR, iat=now - 2 * HOUR),
        "not yet valid": issuer.jwt("alice", "contacts", nbf=now + HOUR),
        "wrong audience": issuer.jwt("alice", "elsewhere"),
        "other tenant": neighbour.jwt("alice", "other"),
        "tampered": tampered(good, sub="root"),
        "replayed": base64.b64encode(granted).decode(),
        "revoked": issuer.jwt("mallory", "contacts", iat=now - HOUR),
        "wrong algorithm: none": issuer.unsigned("alice", "contacts"),
        "wrong algorithm: the public key as a secret": issuer.confused("alice", "contacts"),
        "a key that nobody has": "0123456789abcdef0123456789abcdef",
    }


def _tokens(keys: TokenKeys) -> dict[str, bytes]:
    """The same, for tokens as the node grants them."""
    now = int(time.time())

    def sealed(
        app: str = "contacts", cell: str = "local", who: str = "alice", **more: int
    ) -> bytes:
        expires_at, issued_at = more.get("expires_at", now + HOUR), more.get("issued_at", now)
        return keys.seal(Claims(app, CLIENT, who, cell, expires_at, issued_at), bytes(12))

    return {
        "expired": sealed(expires_at=now - 1),
        "wrong audience": sealed(cell="elsewhere"),
        "other tenant": sealed(app="other"),
        "tampered": sealed()[:-1] + bytes([sealed()[-1] ^ 1]),
        "revoked": sealed(who="mallory", issued_at=now - HOUR),
        "a key that nobody has": TokenKeys({1: bytes(32)}, 1).seal(
            Claims("contacts", CLIENT, "alice", "local", now + HOUR, now), bytes(12)
        ),
        "good": sealed(),
    }


def _client_rows(data: Path) -> list[bytes]:
    found = []
    for directory in sorted(data.glob("shard-*")):
        store = RocksStore(directory / "store", read_only=True)
        for start, end in rows.ranges(rows.CLIENT, 1):
            found += [rows.client_of(row) for row, _ in store.scan(start, end)]
        store.close()
    return found


# The attempts: each returns what was said to it. A refusal begins with "refused".


async def websocket_hello(world: World, kind: str) -> tuple[Any, ...]:
    shown = world.good if kind == "good" else world.shown[kind]
    answers = []
    for at_handshake in (True, False):
        async with raw_websocket(world.node.port, shown if at_handshake else None) as socket:
            said = {} if at_handshake or shown is None else {"credential": shown}
            await say(socket, hello(app="contacts", **said))
            answers.append(await hear(socket, "grant", "error"))
    assert ("error" in answers[0]) == ("error" in answers[1])
    if "error" not in answers[0]:
        return ("granted",)
    assert answers[0]["error"] == answers[1]["error"]
    return "refused", answers[0]["error"]["code"], answers[0]["error"]["text"]


async def websocket_register(world: World, kind: str) -> tuple[Any, ...]:
    """Whoever has a session of its own tries it there, anybody else without one."""
    shown = world.good if kind == "good" else world.shown[kind]
    app = "other" if kind == "other tenant" else "contacts"
    async with raw_websocket(world.node.port, shown) as socket:
        await say(socket, hello(app=app))
        answer = await hear(socket, "grant", "error")
        session = answer.get("session", "1")
        await say(socket, register(session, 1, OBJECT))
        if "error" in answer:
            await say(socket, hello(app=app))  # answered after the registration was not
            again = await hear(socket, "statuses", "notifications", "error")
            assert again.get("error") == answer["error"], again
            return "refused", answer["error"]["code"], answer["error"]["text"]
        return await _registered(world, socket, answer)


async def _registered(world: World, socket: Any, answer: dict[str, Any]) -> tuple[Any, ...]:
    told = await hear(socket, "statuses")
    [[_, registered, _, *code]] = told["statuses"]
    if registered:
        world.registered.append(base64.b64decode(answer["grant"]["client"]))
        return ("granted",)
    assert "notifications" not in told
    return "refused", code[0]


async def token_hello(world: World, kind: str) -> tuple[Any, ...]:
    token = base64.b64encode(world.tokens[kind]).decode()
    async with raw_websocket(world.node.port) as socket:
        await say(socket, hello(token=token))
        answer = await hear(socket, "grant", "error")
        if "error" not in answer:
            return ("granted",)
        return "refused", answer["error"]["code"], answer["error"]["text"]


async def token_register(world: World, kind: str) -> tuple[Any, ...]:
    token = base64.b64encode(world.tokens[kind]).decode()
    async with raw_websocket(world.node.port) as socket:
        await say(socket, hello(token=token))
        answer = await hear(socket, "grant", "error")
        await say(socket, register(answer.get("session", "1"), 1, OBJECT))
        if "error" in answer:
            await say(socket, hello(token=token))
            again = await hear(socket, "statuses", "notifications", "error")
            assert again.get("error") == answer["error"], again
            return "refused", answer["error"]["code"], answer["error"]["text"]
        return await _registered(world, socket, answer)


def mqtt_connect(world: World, version: int, kind: str, user: str | None) -> bytes:
    shown = world.good if kind == "good" else world.shown[kind]
    password = None if shown is None else shown.encode()
    user = user if version == V5 or password is not None else None
    return mqtt_side.connect(version, f"m-{kind[:20]}", user=user, password=password)


def mqtt_hello(version: int) -> Attempt:
    async def attempt(world: World, kind: str) -> tuple[Any, ...]:
        async with RawMqtt(world.node.mqtt_port) as mqtt:
            connect = mqtt_connect(world, version, kind, "contacts")
            answers = await mqtt.answers(codes.CONNACK, connect)
        accepted = answers[0][3] == 0
        return ("granted",) if accepted else ("refused", *answers)

    return attempt


def mqtt_try(version: int, packet: bytes, answer: int, refused: Callable[[bytes], bool]) -> Attempt:
    """Together with the CONNECT, so that nobody can say it was not tried. The other tenant connects
    as itself."""

    async def attempt(world: World, kind: str) -> tuple[Any, ...]:
        user = None if kind == "other tenant" else "contacts"
        connect = mqtt_connect(world, version, kind, user)
        if user is None:
            connect = mqtt_side.connect(
                version, "m-other", user="other", password=(world.shown[kind] or "").encode()
            )
        async with RawMqtt(world.node.mqtt_port) as mqtt:
            answers = await mqtt.answers(answer, connect, packet)
        if answers[0][3] != 0:
            assert len(answers) == 1
            return ("refused", *answers)
        found = next(packet for packet in answers if packet[0] >> 4 == answer)
        return ("refused", found) if refused(found) else ("granted",)

    return attempt


async def http_register(world: World, kind: str) -> tuple[Any, ...]:
    return _said(world.node.ask("GET", f"/v1/events?object={OBJECT}", world.shown[kind]))


async def http_publish(world: World, kind: str) -> tuple[Any, ...]:
    shown = world.good if kind == "good" else world.shown[kind]
    version = VERSION if kind == "good" else VERSION + 1
    said = _said(world.node.publish_as(shown, OBJECT, version))
    if kind != "good":
        app, _, name = OBJECT.partition("/")
        reset = world.node.ask("POST", "/v1/reset", shown, {"app": app, "name": name})
        assert reset.status_code in (401, 403)
    return said


async def http_read(world: World, kind: str) -> tuple[Any, ...]:
    shown = world.good if kind == "good" else world.shown[kind]
    return _said(world.node.ask("GET", f"/v1/objects/{OBJECT}", shown))


async def http_admin(world: World, kind: str) -> tuple[Any, ...]:
    shown = ADMIN_KEY if kind == "good" else world.shown[kind]
    return _said(world.node.ask("GET", "/v1/status", shown))


def _said(answer: Any) -> tuple[Any, ...]:
    if answer.is_success:
        return ("granted",)
    assert answer.status_code in (401, 403), answer.text
    return "refused", answer.status_code, answer.text


_BAD: Final = 0x80


def _mqtt_attempts(version: int) -> dict[str, Attempt]:
    subscribe = mqtt_side.subscribe(version, 1, (OBJECT, 1))
    publish = mqtt_side.publish(version, OBJECT, b"%d" % (VERSION + 1), qos=1, id=2)
    return {
        "hello": mqtt_hello(version),
        "register": mqtt_try(version, subscribe, codes.SUBACK, lambda p: p[-1] >= _BAD),
        # On 3.1.1 a PUBACK cannot say no: that it was refused is seen in that nothing changed.
        "publish": mqtt_try(
            version, publish, codes.PUBACK, lambda p: version == V3 or (len(p) > 4 and p[4] >= _BAD)
        ),
    }


ATTEMPTS: Final[dict[str, dict[str, Attempt]]] = {
    "websocket": {"hello": websocket_hello, "register": websocket_register},
    "websocket token": {"hello": token_hello, "register": token_register},
    "mqtt 3.1.1": _mqtt_attempts(V3),
    "mqtt 5": _mqtt_attempts(V5),
    "http": {
        "register": http_register,
        "publish": http_publish,
        "read": http_read,
        "admin": http_admin,
    },
}


def _cells() -> Iterator[Any]:
    for channel in CHANNELS:
        for operation in OPERATIONS:
            for kind in CREDENTIALS:
                why_not = NOT_THERE.get((channel, operation))
                if why_not is None and channel == "websocket token":
                    why_not = None if kind in TOKEN_KINDS else NO_SUCH_TOKEN[kind]
                if channel == "websocket token" and (kind, operation) == ("other tenant", "hello"):
                    why_not = "as itself it is welcome"
                if why_not is None:
                    yield pytest.param(channel, operation, kind, id=f"{channel}-{operation}-{kind}")


TOKEN_KINDS: Final = frozenset(CREDENTIALS) - frozenset(NO_SUCH_TOKEN) | {"wrong audience"}


def test_every_cell_is_there_or_has_a_reason() -> None:
    for channel in CHANNELS:
        for operation in OPERATIONS:
            assert (operation in ATTEMPTS[channel]) != ((channel, operation) in NOT_THERE)


@pytest.mark.parametrize(("channel", "operation", "kind"), list(_cells()))
def test_it_is_refused_and_nothing_has_changed(
    world: World, channel: str, operation: str, kind: str
) -> None:
    before = world.node.feed()
    answers: list[tuple[Any, ...]] = []

    async def attempt() -> None:
        answers.append(await ATTEMPTS[channel][operation](world, kind))

    run_within(PATIENCE_S, attempt())
    assert answers[0][0] == "refused", answers
    assert world.node.feed() == before
    read = world.node.ask("GET", f"/v1/objects/{OBJECT}", world.good).json()
    assert read["version"] == str(VERSION)


@pytest.mark.parametrize(
    ("channel", "operation"),
    [(channel, operation) for channel in CHANNELS for operation in ATTEMPTS[channel]],
)
def test_what_is_wrong_with_a_credential_is_not_told(
    world: World, channel: str, operation: str
) -> None:
    said: set[tuple[Any, ...]] = set()

    async def attempts() -> None:
        kinds = SAME_WORDS & TOKEN_KINDS if channel == "websocket token" else SAME_WORDS
        for kind in sorted(kinds):
            said.add(await ATTEMPTS[channel][operation](world, kind))

    run_within(PATIENCE_S, attempts())
    assert len(said) == 1, said


@pytest.mark.parametrize(
    ("channel", "operation"),
    [
        (channel, operation)
        for channel in CHANNELS
        for operation in ATTEMPTS[channel]
        if (channel, operation) not in NOT_TRIED
    ],
)
def test_a_good_credential_does_it(world: World, channel: str, operation: str) -> None:
    async def attempt() -> None:
        assert await ATTEMPTS[channel][operation](world, "good") == ("granted",)

    run_within(PATIENCE_S, attempt())


def test_nothing_of_a_credential_is_in_the_log(world: World) -> None:
    said = world.node.said()
    for shown in (world.good, *world.shown.values()):
        assert shown is None or shown not in said
    assert OBJECT not in said
