"""The publisher, against a server that answers as the test wants."""

import asyncio
import base64

import pytest
from benchmarks.ports import free_port
from tests.loops import in_loop, until
from tests.publisher.scripted import Answer, ScriptedHttp, Update, accept, error

from roskva.errors import (
    BadInput,
    BadMessage,
    BadName,
    LimitExceeded,
    Refused,
    RoskvaError,
    TooLarge,
    Unauthorised,
    Unavailable,
)
from roskva.publisher import publisher as limits
from roskva.publisher.publisher import Publisher


def contacts(url: str) -> Publisher:
    return Publisher(url, "contacts")


def unavailable(updates: list[Update]) -> Answer:
    return 503, {"results": [error("unavailable", retriable=True) for _ in updates]}


@in_loop
async def test_publishes_and_returns_the_version_that_is_durable() -> None:
    async with ScriptedHttp() as server, contacts(server.url) as publisher:
        assert await publisher.publish("alice", 42, source="phone", payload=b"\x00\xff") == 42
    assert server.paths == ["/v1/publish"]
    [[update]] = server.requests
    assert update == {
        "app": "contacts",
        "name": "alice",
        "version": "42",
        "source": "phone",
        "payload": base64.b64encode(b"\x00\xff").decode(),
    }


@in_loop
async def test_leaves_the_version_to_the_server() -> None:
    async with ScriptedHttp() as server, contacts(server.url) as publisher:
        assert await publisher.publish("alice") == 77
    assert server.requests == [[{"app": "contacts", "name": "alice"}]]


@in_loop
async def test_largest_version_survives_the_way_through_json() -> None:
    async with ScriptedHttp() as server, contacts(server.url) as publisher:
        assert await publisher.publish("alice", 2**63 - 1) == 2**63 - 1


@in_loop
async def test_those_who_publish_at_once_share_requests_and_a_connection() -> None:
    async with ScriptedHttp() as server, contacts(server.url) as publisher:
        versions = await asyncio.gather(
            *(publisher.publish(f"object-{number}", number) for number in range(2500))
        )
        assert versions == list(range(2500))
    assert [len(request) for request in server.requests] == [1000, 1000, 500]
    assert server.most_under_way == 1
    assert server.connections == 1


@in_loop
async def test_requests_stay_small_enough_for_the_server() -> None:
    payload = b"x" * 16 * 1024
    async with ScriptedHttp() as server, contacts(server.url) as publisher:
        await asyncio.gather(
            *(publisher.publish(f"{number}", 1, payload=payload) for number in range(100))
        )
    sizes = [sum(len(update["payload"]) for update in request) for request in server.requests]
    assert max(sizes) <= limits.MAX_BATCH_BYTES
    assert len(sizes) == 3


@in_loop
async def test_order_of_an_object_holds_through_failures() -> None:
    """Requests fail as a whole and in parts; what arrives in the end never goes back."""

    def every_other(updates: list[Update]) -> Answer:
        return 200, {
            "results": [
                {"version": update["version"]} if index % 2 else error("unavailable", True)
                for index, update in enumerate(updates)
            ]
        }

    script = [None, unavailable, every_other, every_other, unavailable, every_other]
    async with ScriptedHttp(*script) as server, contacts(server.url) as publisher:
        await asyncio.gather(
            *(
                publisher.publish(name, version, source="author")
                for version in range(1, 9)
                for name in ("alice", "bob", "carol")
            )
        )
    for name in ("alice", "bob", "carol"):
        sent = [int(version) for who, version in server.versions() if who == name and version]
        assert sent == sorted(sent)
        assert set(sent) == set(range(1, 9))
    assert all(
        len({update["name"] for update in request}) == len(request) for request in server.requests
    )


@in_loop
async def test_failing_request_is_repeated_until_it_is_acknowledged() -> None:
    def html(_: list[Update]) -> Answer:
        return 200, b"<html>please log in</html>"

    def short(_: list[Update]) -> Answer:
        return 200, {"results": []}

    def bad_gateway(_: list[Update]) -> Answer:
        return 502, b""

    script = [None, unavailable, html, short, bad_gateway]
    async with ScriptedHttp(*script) as server, contacts(server.url) as publisher:
        assert await publisher.publish("alice", 42) == 42
    assert len(server.requests) == 6


@in_loop
async def test_waits_for_a_server_that_is_not_there_yet() -> None:
    port = free_port()
    async with contacts(f"ws://127.0.0.1:{port}/v1/ws") as publisher:
        publishing = asyncio.create_task(publisher.publish("alice", 42))
        await until(lambda: publisher._failure is not None)
        async with ScriptedHttp(port=port):
            assert await publishing == 42


@in_loop
async def test_leaves_the_server_alone_for_as_long_as_it_asks() -> None:
    def later(_: list[Update]) -> Answer:
        return 503, error("overloaded", retriable=True), {"retry-after": "1"}

    asked_at = asyncio.get_running_loop().time()
    async with ScriptedHttp(later) as server, contacts(server.url) as publisher:
        await publisher.publish("alice", 42)
    assert asyncio.get_running_loop().time() - asked_at >= 1


@in_loop
async def test_refusal_is_raised_to_whom_it_concerns_alone() -> None:
    def first_refused(updates: list[Update]) -> Answer:
        return 200, {"results": [error("limit_exceeded"), {"version": updates[1]["version"]}]}

    async with ScriptedHttp(first_refused) as server, contacts(server.url) as publisher:
        refused, accepted = await asyncio.gather(
            publisher.publish("alice", 1), publisher.publish("bob", 2), return_exceptions=True
        )
        assert isinstance(refused, LimitExceeded)
        assert str(refused) == "it is limit_exceeded"
        assert accepted == 2
        assert len(publisher._buffer) == 0


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (403, {"results": [error("unauthorised")]}, Unauthorised),
        (400, error("bad_message"), BadMessage),
        (400, {"results": [error("of the future")]}, RoskvaError),
        (404, b"not found", Refused),
        (301, b"", Refused),
    ],
)
@in_loop
async def test_permanent_refusals_are_errors_by_their_code(
    status: int, body: object, kind: type[RoskvaError]
) -> None:
    answer = (status, body)
    async with ScriptedHttp(lambda _: answer) as server, contacts(server.url) as publisher:
        with pytest.raises(kind):
            await publisher.publish("alice", 42)


@in_loop
async def test_gives_up_when_its_caller_does_and_says_why() -> None:
    async with ScriptedHttp(*[unavailable] * 100) as server, contacts(server.url) as publisher:
        patient = asyncio.create_task(publisher.publish("alice", 42))
        await until(lambda: publisher._failure is not None)
        with pytest.raises(Unavailable, match=r"within 0\.2 s: it is unavailable"):
            await publisher.publish("alice", 43, give_up_after=0.2)
        server.answers = []
        assert await patient == 42
        assert await publisher.publish("bob", 1) == 1
    assert server.versions()[-1] == ("bob", "1")


@in_loop
async def test_cancelled_publish_is_not_sent_any_more() -> None:
    async with ScriptedHttp() as server, contacts(server.url) as publisher:
        server.go.clear()
        first = asyncio.create_task(publisher.publish("alice", 1))
        await until(lambda: server.under_way == 1)
        second = asyncio.create_task(publisher.publish("alice", 2))
        third = asyncio.create_task(publisher.publish("alice", 3))
        await asyncio.sleep(0)
        second.cancel()
        server.go.set()
        assert (await first, await third) == (1, 3)
    assert server.versions() == [("alice", "1"), ("alice", "3")]


@in_loop
async def test_full_buffer_lets_nobody_in_until_there_is_room() -> None:
    async with ScriptedHttp() as server, contacts(server.url) as publisher:
        server.go.clear()
        waiting = [
            asyncio.create_task(publisher.publish("alice", number))
            for number in range(limits.MAX_WAITING + 100)
        ]
        await until(lambda: server.under_way == 1)
        assert len(publisher._buffer) == limits.MAX_WAITING
        server.go.set()
        assert await asyncio.gather(*waiting) == list(range(limits.MAX_WAITING + 100))
    assert server.versions() == [("alice", str(n)) for n in range(limits.MAX_WAITING + 100)]


@in_loop
async def test_reset_keeps_its_place_among_updates() -> None:
    async with ScriptedHttp(accept, unavailable) as server, contacts(server.url) as publisher:
        await asyncio.gather(
            publisher.publish("alice", 9), publisher.reset("alice"), publisher.publish("alice", 1)
        )
    assert server.paths == ["/v1/publish", "/v1/reset", "/v1/reset", "/v1/publish"]
    assert server.versions()[1] == ("alice", None)


@in_loop
async def test_bad_input_is_refused_before_it_is_sent() -> None:
    with pytest.raises(BadName):
        Publisher("http://localhost:7600", "No App")
    with pytest.raises(BadInput):
        Publisher("localhost:7600", "contacts")
    async with ScriptedHttp() as server, contacts(server.url) as publisher:
        with pytest.raises(BadName):
            await publisher.publish("a#b", 1)
        with pytest.raises(BadInput):
            await publisher.publish("alice", -1)
        with pytest.raises(BadInput):
            await publisher.publish("alice", 1, source="x" * 65)
        with pytest.raises(TooLarge):
            await publisher.publish("alice", 1, payload=b"x" * 16_385)
    assert server.requests == []


# The end.


@in_loop
async def test_leaving_waits_for_what_other_tasks_publish() -> None:
    async with ScriptedHttp(unavailable, unavailable) as server:
        async with contacts(server.url) as publisher:
            publishing = asyncio.create_task(publisher.publish("alice", 42))
            await until(lambda: len(publisher._buffer) == 1)
        assert await publishing == 42
        with pytest.raises(RuntimeError, match="closed"):
            await publisher.publish("alice", 43)
        with pytest.raises(RuntimeError, match="once"):
            await publisher.__aenter__()


@in_loop
async def test_leaving_in_haste_waits_for_nothing_and_says_so() -> None:
    publishing: asyncio.Task[int]

    async def application(server: ScriptedHttp) -> None:
        nonlocal publishing
        async with contacts(server.url) as publisher:
            publishing = asyncio.create_task(publisher.publish("alice", 42))
            await until(lambda: server.under_way == 1)
            raise LookupError

    async with ScriptedHttp() as server:
        server.go.clear()
        with pytest.raises(LookupError):
            await application(server)
        with pytest.raises(Unavailable, match="closed"):
            await publishing


@in_loop
async def test_publisher_that_was_not_entered_says_so() -> None:
    with pytest.raises(RuntimeError, match="async with"):
        await contacts("http://localhost:7600").publish("alice", 1)


# Several addresses.


def several(*urls: str) -> Publisher:
    return Publisher(urls, "contacts")


@in_loop
async def test_whoever_does_not_answer_is_left() -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    async with ScriptedHttp(unavailable, unavailable, None, None) as one, ScriptedHttp() as two:
        async with several(nobody, one.url, two.url) as publisher:
            for version in range(20):
                assert await publisher.publish("alice", version) == version
        assert len(two.requests) == 20, "and whoever answers is not"
        assert publisher.repeated <= 2


@in_loop
async def test_whoever_only_makes_us_wait_is_not_left() -> None:
    def too_fast(updates: list[Update]) -> Answer:
        failed = {"results": [error("too_fast", retriable=True) for _ in updates]}
        return 429, failed, {"retry-after": "1"}

    async with ScriptedHttp(too_fast) as one, ScriptedHttp(too_fast) as two:
        async with several(one.url, two.url) as publisher:
            assert await publisher.publish("alice", 1) == 1
        assert sorted(len(server.requests) for server in (one, two)) == [0, 2]


def test_addresses_with_and_without_tls_do_not_go_together() -> None:
    with pytest.raises(BadInput):
        several("http://localhost:1", "https://localhost:2")
