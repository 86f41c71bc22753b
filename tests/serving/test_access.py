"""A node with keys, as apps use it: clients, devices and backends with their credentials."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import msgspec
import pytest
from tests.channels import mqtt_side
from tests.loops import in_loop, until
from tests.serving.backend import running_backend
from tests.serving.keyed import Issuer, KeyedNode, publish_key
from tests.serving.nodes import HTTP, PATIENCE_S, ROSKVA, await_that
from tests.serving.raw_mqtt import RawMqtt
from tests.serving.raw_websocket import hear, hello, raw_websocket, register, say

import roskva
from roskva.wire.mqtt import codes
from roskva.wire.mqtt.codes import V3, V5

StartKeyed = Callable[..., KeyedNode]
PATIENT = "hook_timeout_ms = 10_000"


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path / "jwks.json")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[StartKeyed]:
    nodes: list[KeyedNode] = []

    def start(settings: str, *flags: str) -> KeyedNode:
        nodes.append(KeyedNode(tmp_path / f"data-{len(nodes)}", settings, *flags))
        nodes[-1].start()
        return nodes[-1]

    yield start
    for node in nodes:
        node.end()


class App(NamedTuple):
    """The table of an app, and the secret of its publish key."""

    text: str
    key: str


def app(issuer: Issuer, *lines: str, name: str = "contacts", revoked: str = "") -> App:
    secret, hashed = publish_key()
    given = [line.partition(" =")[0] for line in lines]
    table = [f'jwks = "{issuer.jwks}"', f'publish_keys = ["{hashed}"]', *lines]
    if "register" not in given:
        table.append('register = ["**"]')
    text = "\n".join([f"[apps.{name}]", *table])
    return App(text + (f"\n[apps.{name}.revoked]\n{revoked}\n" if revoked else "\n"), secret)


async def first(client: roskva.Client, *kinds: type) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        async for event in client:
            if isinstance(event, kinds):
                return event
    raise AssertionError("the client ended")


def moment(offset_s: float = 0) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + offset_s))


@in_loop
async def test_the_libraries_show_who_they_are(
    start: StartKeyed, issuer: Issuer, tmp_path: Path
) -> None:
    contacts = app(issuer, 'register = ["{principal}/*"]')
    node = start(contacts.text)
    asked = []

    async def login() -> str:
        asked.append("alice")
        return issuer.jwt("alice", "contacts")

    async with roskva.Publisher(node.url, "contacts", key=contacts.key) as publisher:
        await publisher.publish("alice/phone", 1)
        options: dict[str, Any] = {"identity": tmp_path / "identity", "credential": login}
        async with roskva.Client(node.url, "contacts", **options) as client:
            await client.register("alice/phone")
            event = await first(client, roskva.Notify)
            assert event.version == 1
            client.ack(event)
            await client.register("bob/phone")
            failure = await first(client, roskva.RegistrationFailure)
            assert (failure.name, failure.transient) == ("bob/phone", False)
        assert asked == ["alice"]

        await publisher.publish("alice/phone", 2)
        async with roskva.Client(node.url, "contacts", **options) as client:
            await client.register("alice/phone")
            assert (await first(client, roskva.Notify)).version == 2
            await client.register("bob/phone")  # it is alice who came back, by her token
            assert (await first(client, roskva.RegistrationFailure)).name == "bob/phone"
            await client.register("alice/mail")
            assert (await first(client, roskva.NotifyUnknown)).name == "alice/mail"
        assert asked == ["alice"], "the token was enough"

    with pytest.raises(roskva.Unauthorised):
        async with roskva.Publisher(node.url, "contacts") as publisher:
            await publisher.publish("alice/phone", 3)


@in_loop
async def test_a_credential_that_is_not_accepted_is_trouble_and_a_later_one_helps(
    start: StartKeyed, issuer: Issuer
) -> None:
    node = start(app(issuer).text)
    good, refused = issuer.jwt("alice", "contacts"), asyncio.Event()
    client = roskva.Client(
        node.url, "contacts", credential=lambda: good if refused.is_set() else "nonsense"
    )
    client.config = msgspec.structs.replace(client.config, answer_timeout=1.0)
    async with client:
        await client.register("x")
        while (await first(client, roskva.Trouble)).code != "unauthorised":
            pass  # no answer in so short a time
        refused.set()
        assert (await first(client, roskva.RegistrationFailure)).code == "unauthorised"
        await first(client, roskva.ReissueRegistrations)
        await client.register("x")
        assert (await first(client, roskva.NotifyUnknown)).name == "x"


@in_loop
async def test_a_login_that_fails_is_trouble(start: StartKeyed, issuer: Issuer) -> None:
    node = start(app(issuer).text)

    def login() -> str:
        raise OSError("the login is down")

    async with roskva.Client(node.url, "contacts", credential=login) as client:
        trouble = await first(client, roskva.Trouble)
        assert "the login is down" in trouble.text


@pytest.mark.parametrize("version", [V3, V5])
@in_loop
async def test_devices_publish_and_subscribe_with_jwts_and_keys(
    start: StartKeyed, issuer: Issuer, version: int
) -> None:
    contacts = app(issuer, 'publish = ["{principal}/*"]')
    node = start(contacts.text)
    jwt = issuer.jwt("d1", "contacts").encode()
    async with RawMqtt(node.mqtt_port) as device:
        connect = mqtt_side.connect(version, "d1", user="contacts", password=jwt)
        publish = mqtt_side.publish(version, "contacts/d1/state", b"5", qos=1, id=1)
        await device.answers(codes.PUBACK, connect, publish)
        other = mqtt_side.publish(version, "contacts/d2/state", b"5", qos=1, id=2)
        await device.answers(codes.PUBACK, other)
        told = await device.answers(
            codes.PUBLISH, mqtt_side.subscribe(version, 3, ("contacts/d1/state", 1))
        )
        assert told[-1].endswith(b"5")
    alice = issuer.jwt("alice", "contacts")
    assert node.ask("GET", "/v1/objects/contacts/d1/state", alice).json()["version"] == "5"
    assert node.ask("GET", "/v1/objects/contacts/d2/state", alice).json()["version"] is None

    async with RawMqtt(node.mqtt_port) as backend:
        connect = mqtt_side.connect(version, "b", user="contacts", password=contacts.key.encode())
        publish = mqtt_side.publish(version, "contacts/d2/state", b"6", qos=1, id=1)
        await backend.answers(codes.PUBACK, connect, publish)
        subscribe = mqtt_side.subscribe(version, 2, ("contacts/d2/state", 1))
        [suback] = await backend.answers(codes.SUBACK, subscribe)
        assert suback[-1] >= 0x80
    assert node.ask("GET", "/v1/objects/contacts/d2/state", alice).json()["version"] == "6"


@in_loop
async def test_a_stream_of_events_or_a_poll_is_for_who_may_register(
    start: StartKeyed, issuer: Issuer
) -> None:
    contacts = app(issuer, 'register = ["{principal}"]')
    node = start(contacts.text)
    assert node.publish_as(contacts.key, "contacts/alice", 4).is_success
    headers = {"authorization": f"Bearer {issuer.jwt('alice', 'contacts')}"}
    async with httpx.AsyncClient(base_url=node.url, headers=headers, timeout=PATIENCE_S) as http:
        async with http.stream("GET", "/v1/events", params={"object": "contacts/alice"}) as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    assert '"version":"4"' in line
                    break
        refused = await http.get(
            "/v1/events", params={"object": ["contacts/alice", "contacts/bob"]}
        )
        assert refused.status_code == 403
        both = [{"object": "contacts/alice"}, {"object": "contacts/bob"}]
        answer = await http.post("/v1/poll", json={"objects": both[:1]})
        assert answer.json()["notifications"][0]["version"] == "4"
        assert (await http.post("/v1/poll", json={"objects": both})).status_code == 403


@in_loop
async def test_the_hook_decides_and_a_slow_one_holds_up_nobody_else(
    start: StartKeyed, issuer: Issuer
) -> None:
    with running_backend() as backend:
        asking = app(issuer, f'hook = "{backend.url}"', PATIENT)
        other = Issuer(issuer.jwks.with_name("other.json"))
        node = start(asking.text + app(other, name="other").text)
        backend.allows = lambda name: name == "yes"
        jwt = issuer.jwt("alice", "contacts")
        async with (
            roskva.Client(node.url, "contacts", credential=jwt) as client,
            roskva.Client(node.url, "other", credential=other.jwt("bob", "other")) as bystander,
        ):
            await client.register("yes")
            event = await first(client, roskva.NotifyUnknown)
            assert event.name == "yes"
            client.ack(event)
            await client.register("no")
            failure = await first(client, roskva.RegistrationFailure)
            assert (failure.name, failure.transient, failure.code) == ("no", False, "unauthorised")

            backend.answering.clear()
            backend.allows = lambda name: True
            await client.register("slow")
            await until(lambda: backend.asked[-1]["register"] == ["slow"])
            await bystander.register("x")
            await first(bystander, roskva.NotifyUnknown)
            # The node still waits for the hook: had the bystander had to, this would be a failure,
            # or the answer to another question.
            backend.answering.set()
            event = await first(client, roskva.NotifyUnknown, roskva.RegistrationFailure)
            assert (type(event), event.name) == (roskva.NotifyUnknown, "slow")
            assert [asked["register"] for asked in backend.asked] == [["yes"], ["no"], ["slow"]]

            answer = node.ask("GET", "/v1/objects/contacts/read", jwt)
            assert answer.is_success
            backend.status = 500
            assert node.ask("GET", "/v1/objects/contacts/never", jwt).status_code == 503


@in_loop
async def test_the_backend_is_asked_before_its_clients_publish(
    start: StartKeyed, issuer: Issuer
) -> None:
    with running_backend() as backend:
        lines = ('publish = ["**"]', f'hook = "{backend.url}"', "authorise_at_publish = true")
        contacts = app(issuer, *lines, "hook_cache_seconds = 0", PATIENT)
        node, jwt = start(contacts.text), issuer.jwt("alice", "contacts")

        def published(credential: str, name: str) -> tuple[int, str]:
            answer = node.publish_as(credential, f"contacts/{name}", 1)
            (result,) = answer.json()["results"]
            return answer.status_code, result.get("version") or result["error"]["code"]

        async def publish(name: str) -> tuple[int, str]:
            return await asyncio.to_thread(published, jwt, name)

        backend.allows = lambda name: name != "no"
        assert await publish("yes") == (200, "1")
        assert await publish("no") == (403, "unauthorised")
        assert published(contacts.key, "no") == (200, "1")
        reset = {"app": "contacts", "name": "no"}
        assert node.ask("POST", "/v1/reset", jwt, reset).status_code == 403
        assert [asked.get("publish") for asked in backend.asked] == [["yes"], ["no"], ["no"]]

        connect = mqtt_side.connect(V5, "d", user="contacts", password=jwt.encode())
        async with RawMqtt(node.mqtt_port) as client:
            await client.answers(codes.CONNACK, connect)
            backend.answering.clear()
            first_two = [
                mqtt_side.publish(V5, f"contacts/{name}", b"2", qos=1, id=id)
                for id, name in enumerate(("no", "yes"), 1)
            ]
            answers = asyncio.create_task(client.answers(codes.PUBACK, *first_two))
            await until(lambda: len(backend.asked) == 4)
            # Nobody else waits for the backend.
            assert await asyncio.to_thread(published, contacts.key, "other") == (200, "1")
            assert not answers.done()
            backend.answering.set()
            said = [(puback[3], puback[4:5]) for puback in await answers]
            assert said == [(1, b"\x87"), (2, b"")]

        backend.status = 500
        assert await publish("yes") == (503, "unavailable")


@in_loop
async def test_a_hook_that_answers_too_late_is_a_no_for_now(
    start: StartKeyed, issuer: Issuer
) -> None:
    with running_backend() as backend:
        node = start(app(issuer, f'hook = "{backend.url}"', "hook_timeout_ms = 500").text)
        jwt = issuer.jwt("alice", "contacts")
        async with roskva.Client(node.url, "contacts", credential=jwt) as client:
            backend.answering.clear()
            await client.register("late")
            event = await first(client, roskva.NotifyUnknown, roskva.RegistrationFailure)
            assert event == roskva.RegistrationFailure("contacts/late", True, "unavailable")

            backend.answering.set()
            while not isinstance(event, roskva.NotifyUnknown):
                assert event.transient  # it may be too late once more, on a machine that stalls
                asked = len(backend.asked)
                await client.register("late")
                await until(lambda: len(backend.asked) > asked)  # noqa: B023
                event = await first(client, roskva.NotifyUnknown, roskva.RegistrationFailure)
            assert event.name == "late"


@in_loop
async def test_who_is_revoked_is_sent_away(start: StartKeyed, issuer: Issuer) -> None:
    old = int(time.time()) - 100
    table = app(issuer)
    node = start(table.text)
    fresh: list[str] = []

    def login() -> str:
        fresh.append("again")
        return issuer.jwt("alice", "contacts", iat=None if len(fresh) > 1 else old)

    device = RawMqtt(node.mqtt_port)
    password = issuer.jwt("alice", "contacts", iat=old).encode()
    connect = mqtt_side.connect(V5, "d", user="contacts", password=password)
    bob_credential = issuer.jwt("bob", "contacts", iat=old)
    async with (
        roskva.Client(node.url, "contacts", credential=login) as alice,
        roskva.Client(node.url, "contacts", credential=bob_credential) as bob,
        device,
    ):
        await alice.register("x")
        await bob.register("x")
        await first(alice, roskva.NotifyUnknown)
        await first(bob, roskva.NotifyUnknown)
        await device.answers(codes.CONNACK, connect)

        node.reload_with(table.text + f"[apps.contacts.revoked]\nalice = {moment(-50)}\n")
        [goodbye] = await device.answers(codes.DISCONNECT)
        assert goodbye[2] == 0x87
        trouble = await first(alice, roskva.Trouble)
        assert trouble.code == "unauthorised", "a JWT without iat is older than any generation"
        assert len(fresh) == 2
        assert bob.connected
        assert node.counter("sessions_revoked") == 2
        assert node.publish_as(table.key, "contacts/x", 9).is_success
        assert (await first(bob, roskva.Notify)).version == 9
    async with roskva.Client(
        node.url, "contacts", credential=issuer.jwt("alice", "contacts")
    ) as alice:
        await alice.register("x")
        assert (await first(alice, roskva.Notify)).version == 9


@pytest.mark.parametrize("flags", [(), ("--registrars", "2")])
def test_settings_are_read_again_in_every_process(
    start: StartKeyed, issuer: Issuer, flags: tuple[str, ...]
) -> None:
    before, after = app(issuer), app(issuer, name="catalog")
    node = start(before.text, *flags)
    assert node.publish_as(after.key, "catalog/x", 1).status_code == 401
    node.reload_with(before.text + after.text)
    for version in range(1, 9):  # whichever process takes the connection
        headers = {"authorization": f"Bearer {after.key}"}
        update = {"app": "catalog", "name": "x", "version": version}
        assert HTTP.post(f"{node.url}/v1/publish", json=update, headers=headers).is_success

    node.write("[apps.catalog]\npublish_keys = ['sha256:short']\n")
    assert node._parent is not None
    node._parent.send_signal(1)
    complaint = f"{node.file.name}:5: a publish key is written sha256:HEX"
    await_that(lambda: complaint in node.said(), PATIENCE_S, node.said)
    assert node.publish_as(after.key, "catalog/x", 10).is_success

    node.reload_with(before.text)
    assert node.publish_as(after.key, "catalog/x", 11).status_code == 401
    assert node.publish_as(before.key, "contacts/x", 1).is_success


@in_loop
async def test_a_publish_key_that_is_taken_out_ends_its_sessions(
    start: StartKeyed, issuer: Issuer
) -> None:
    contacts = app(issuer)
    node = start(contacts.text)
    connect = mqtt_side.connect(V5, "b", user="contacts", password=contacts.key.encode())
    async with RawMqtt(node.mqtt_port) as backend:
        await backend.answers(codes.CONNACK, connect)
        node.reload_with(app(issuer).text)
        [goodbye] = await backend.answers(codes.DISCONNECT)
        assert goodbye[2] == 0x87


@in_loop
async def test_who_loses_a_right_loses_the_registration_if_the_app_asks_again(
    start: StartKeyed, issuer: Issuer
) -> None:
    asks = "authorise_at_notify = true"
    contacts = app(issuer, asks)
    node = start(contacts.text)
    jwt = issuer.jwt("alice", "contacts")
    async with roskva.Client(node.url, "contacts", credential=jwt) as client:
        await client.register("a")
        await client.register("b")
        assert {(await first(client, roskva.NotifyUnknown)).name for _ in "ab"} == {"a", "b"}
        assert node.publish_as(contacts.key, "contacts/a", 1).is_success
        event = await first(client, roskva.Notify)
        assert event.version == 1
        client.ack(event)
        node.reload_with(contacts.text.replace('register = ["**"]', 'register = ["b"]'))
        assert node.publish_as(contacts.key, "contacts/a", 2).is_success
        event = await first(client, roskva.Notify, roskva.RegistrationFailure)
        assert event == roskva.RegistrationFailure("contacts/a", False, "unauthorised")
        assert node.publish_as(contacts.key, "contacts/b", 3).is_success
        event = await first(client, roskva.Notify)
        assert (event.name, event.version) == ("b", 3)


@in_loop
async def test_a_hook_is_asked_again_before_a_notification(
    start: StartKeyed, issuer: Issuer
) -> None:
    with running_backend() as backend:
        asks_again = ("hook_cache_seconds = 0", "authorise_at_notify = true")
        contacts = app(issuer, f'hook = "{backend.url}"', PATIENT, *asks_again)
        node = start(contacts.text)
        jwt = issuer.jwt("alice", "contacts")
        async with roskva.Client(node.url, "contacts", credential=jwt) as client:
            await client.register("a")
            client.ack(await first(client, roskva.NotifyUnknown))
            assert node.publish_as(contacts.key, "contacts/a", 1).is_success
            event = await first(client, roskva.Notify)
            assert event.version == 1
            client.ack(event)
            backend.allows = lambda name: False
            assert node.publish_as(contacts.key, "contacts/a", 2).is_success
            event = await first(client, roskva.Notify, roskva.RegistrationFailure)
            assert isinstance(event, roskva.RegistrationFailure)


@in_loop
async def test_two_keys_of_tokens_are_live(start: StartKeyed, issuer: Issuer) -> None:
    node = start(app(issuer).text)
    async with raw_websocket(node.port, issuer.jwt("alice", "contacts")) as socket:
        await say(socket, hello(app="contacts"))
        granted = (await hear(socket, "grant"))["grant"]

    async def resumed(token: str) -> str | None:
        """The client's new token, if it is let in as who it was."""
        async with raw_websocket(node.port) as socket:
            await say(socket, hello(token=token))
            answer = await hear(socket, "grant", "error")
            if "error" in answer:
                assert answer["error"]["code"] == "token_rejected"
                return None
            assert answer["grant"]["client"] == granted["client"]
            await say(socket, register(answer["session"], 1, "contacts/x"))
            assert (await hear(socket, "statuses"))["statuses"][0][1] is True
            newer: str = answer["grant"]["token"]
            return newer

    def rotate() -> None:
        before = node.said().count("were read again")
        subprocess.run([ROSKVA, "token", "rotate", "--data", str(node.data)], check=True)
        await_that(lambda: node.said().count("were read again") > before, PATIENCE_S)

    rotate()
    newer = await resumed(granted["token"])
    assert newer is not None
    rotate()
    assert await resumed(granted["token"]) is None
    assert await resumed(newer) is not None


def test_commands_take_a_key(start: StartKeyed, issuer: Issuer, tmp_path: Path) -> None:
    contacts = app(issuer)
    node = start(contacts.text)
    (tmp_path / "jwt").write_text(issuer.jwt("alice", "contacts"))

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [ROSKVA, *words, "--url", node.url], capture_output=True, text=True, timeout=60
        )

    assert run("publish", "contacts/x", "1").returncode == 1
    assert run("publish", "contacts/x", "1", "--key", contacts.key).returncode == 0
    watched = run(
        "watch", "contacts/x", "--count", "1", "--key", f"file:{tmp_path / 'jwt'}", "--json"
    )
    assert '"version":"1"' in watched.stdout, watched.stderr
    assert run("watch", "contacts/x", "--count", "1").returncode == 1
    assert run("reset", "contacts/x", "--key", contacts.key).returncode == 0


@in_loop
async def test_whoever_comes_while_keys_are_fetched_waits_for_them(
    start: StartKeyed, issuer: Issuer
) -> None:
    with running_backend() as backend:
        backend.answering.clear()  # the node asks when it starts, and waits for 5 s
        backend.jwks = issuer.jwks.read_bytes()
        contacts = app(issuer)
        node = start(contacts.text.replace(str(issuer.jwks), f"{backend.url}/jwks"))
        jwt = issuer.jwt("alice", "contacts")
        came = []

        async def websocket() -> None:
            async with raw_websocket(node.port, jwt) as socket:
                await say(socket, hello(app="contacts"))
                came.append("websocket")
                assert "grant" in await hear(socket, "grant", "error")

        async def mqtt() -> None:
            async with RawMqtt(node.mqtt_port) as device:
                connect = mqtt_side.connect(V5, "d", user="contacts", password=jwt.encode())
                came.append("mqtt")
                [connack] = await device.answers(codes.CONNACK, connect)
                assert connack[3] == 0

        async def http() -> None:
            async def traced(step: str, _: object) -> None:
                if step == "http11.send_request_body.complete":
                    came.append("http")

            headers = {"authorization": f"Bearer {jwt}"}
            async with httpx.AsyncClient(base_url=node.url, headers=headers) as client:
                answer = await client.get(
                    "/v1/objects/contacts/x", timeout=PATIENCE_S, extensions={"trace": traced}
                )
                assert answer.is_success

        answered = asyncio.gather(websocket(), mqtt(), http())
        await until(lambda: len(came) == 3 or answered.done())
        assert not answered.done(), answered
        backend.answering.set()
        await answered
        assert backend.fetched == 1
