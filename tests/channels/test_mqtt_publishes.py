"""What clients publish: updates for the node, answered in order and when they are durable."""

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from tests.channels import mqtt_side as side
from tests.channels.mqtt_side import DISCONNECT, RecordingFront, Side, X, Y, until
from tests.loops import in_loop

from roskva.channels.base import Outcomes
from roskva.errors import LimitExceeded, RoskvaError, StorageUnavailable, TooFast, Unauthorised
from roskva.model import NO_VERSION, Principal, Update
from roskva.wire.messages import ServerError
from roskva.wire.mqtt import fields as p
from roskva.wire.mqtt.codes import V3, V5

both_versions = pytest.mark.parametrize("version", [V3, V5])


class BrokenFront(RecordingFront):
    def publish(self, principal: Principal, updates: Sequence[Update], answered: Outcomes) -> None:
        raise OSError("out of order")


def opened(version: int, assigned: bool = False, **limits: Any) -> Side:
    one = Side(version, RecordingFront(assigned), **limits)
    one.open()
    return one


def seen(update: Update) -> tuple[str, int, bytes | None]:
    assert update.published_at > 0
    return update.object, update.version, update.payload


@both_versions
@in_loop
async def test_with_versions_of_the_app_the_payload_is_the_version(version: int) -> None:
    one = opened(version)
    one.receive(side.publish(version, X, b"41", 1, 5))
    assert one.taken() == []
    await one.mqtt.close()
    assert [seen(update) for update in one.front.published] == [(X, 41, None)]
    assert one.taken() == [side.puback(5)]


@both_versions
@pytest.mark.parametrize("payload", [b"21.5", b""])
@in_loop
async def test_with_assigned_versions_it_is_the_payload(version: int, payload: bytes) -> None:
    one = opened(version, assigned=True)
    one.receive(side.publish(version, X, payload, 1, 5, flags=1))
    await one.mqtt.close()
    assert [seen(update) for update in one.front.published] == [(X, NO_VERSION, payload)]
    assert one.taken() == [side.puback(5)]


@in_loop
async def test_what_was_read_together_is_passed_on_together_and_at_once() -> None:
    one = opened(V3)
    one.receive(side.publish(V3, X, b"1", 1, 5) + side.publish(V3, Y, b"2", 1, 6))
    assert len(one.front.publishing) == 1
    await one.mqtt.close()
    assert [update.object for update in one.front.published] == [X, Y]


class AskedFront(RecordingFront):
    """Answers when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[list[str], Outcomes]] = []

    def publish(self, principal: Principal, updates: Sequence[Update], answered: Outcomes) -> None:
        self.asked.append(([update.object for update in updates], answered))


@in_loop
async def test_what_came_meanwhile_goes_with_what_a_publisher_says_when_it_is_answered() -> None:
    front = AskedFront()
    one = Side(V3, front)
    one.open()
    one.receive(side.publish(V3, X, b"1", 1, 5))
    one.receive(side.publish(V3, X, b"2", 1, 6))
    (_, answered), *others = front.asked
    assert not others
    answered([1])
    one.receive(side.publish(V3, Y, b"1", 1, 7))
    assert [objects for objects, _ in front.asked] == [[X], [X, Y]]
    front.asked[1][1]([2, 1])
    one.receive(side.publish(V3, X, b"3", 1, 8) + side.publish(V3, X, b"4", 1, 9))
    one.receive(side.publish(V3, Y, b"2", 1, 10))
    front.asked[2][1]([3, 4])
    await until(lambda: len(front.asked) == 4)  # though nothing more is said
    assert [objects for objects, _ in front.asked[2:]] == [[X, X], [Y]]


class RefusingFront(RecordingFront):
    def publish(self, principal: Principal, updates: Sequence[Update], answered: Outcomes) -> None:
        answered([TooFast("slow down") for _ in updates])


@in_loop
async def test_any_number_may_be_refused_at_once() -> None:
    one = Side(V5, RefusingFront(), receive_maximum=2)
    one.open()
    one.receive(side.publish(V5, X, b"1") * 5000)
    assert one.mqtt.counters["ignored_publishes"] == 5000
    assert not one.transport.closed


@in_loop
async def test_qos_0_is_published_and_not_answered_also_if_the_client_leaves_at_once() -> None:
    one = opened(V3)
    one.receive(side.publish(V3, X, b"41") + DISCONNECT)
    one.lose()
    await one.mqtt.close()
    assert [seen(update) for update in one.front.published] == [(X, 41, None)]
    assert one.taken() == []


NO_VERSIONS = [
    b"",
    b"x",
    b"-1",
    b" 1",
    b"1.0",
    b"1_0",
    str(2**63).encode(),
    b"1" * 30,
    "٣".encode(),
]


@both_versions
@pytest.mark.parametrize("payload", NO_VERSIONS)
@in_loop
async def test_a_payload_that_is_no_version_is_refused_or_ignored(
    version: int, payload: bytes
) -> None:
    one = opened(version)
    one.receive(side.publish(version, X, payload, 1, 5), side.publish(version, X, payload))
    await one.mqtt.close()
    (answer,) = one.taken()
    if version == V3:
        assert answer == side.puback(5)
    else:
        assert answer[4] == 0x99
    assert one.front.published == []
    assert one.mqtt.counters["ignored_publishes"] == 2


def test_an_ignored_publish_is_logged_once_per_connection_without_the_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @in_loop
    async def run() -> None:
        one = opened(V3)
        for _ in range(3):
            one.receive(side.publish(V3, X, b"no version"))
        await one.mqtt.close()

    with caplog.at_level(logging.INFO):
        run()
    assert [record.getMessage() for record in caplog.records] == ["publish ignored: bad_input"]


@pytest.mark.parametrize("payload", [b"0", b"007", str(2**63 - 1).encode()])
@in_loop
async def test_every_version_in_digits_is_taken(payload: bytes) -> None:
    one = opened(V3)
    one.receive(side.publish(V3, X, payload, 1, 5))
    await one.mqtt.close()
    assert [update.version for update in one.front.published] == [int(payload)]


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (Unauthorised("not yours"), 0x87),
        (LimitExceeded("too fast"), 0x97),
        (StorageUnavailable("later"), 0x83),
    ],
)
@in_loop
async def test_mqtt_5_is_told_why_a_publish_failed(result: RoskvaError, reason: int) -> None:
    one = opened(V5)
    one.front.results = [result]
    one.receive(side.publish(V5, X, b"1", 1, 5))
    await one.mqtt.close()
    (answer,) = one.taken()
    assert answer[2:5] == b"\0\x05" + bytes([reason])
    assert str(result).encode() in answer


@in_loop
async def test_a_client_that_wants_no_reasons_gets_the_code_alone() -> None:
    one = Side(V5)
    one.open(said={p.REQUEST_PROBLEM_INFORMATION: 0})
    one.receive(side.publish(V5, "nonsense", b"1", 1, 5))
    await one.mqtt.close()
    assert one.taken() == [bytes.fromhex("40 04 0005 90 00")]


@in_loop
async def test_on_3_what_may_succeed_later_is_not_acked_but_comes_back() -> None:
    one = opened(V3)
    one.front.results = [StorageUnavailable("later")]
    one.receive(side.publish(V3, X, b"1", 1, 5))
    await one.mqtt.close()
    assert one.taken() == []
    assert one.transport.closed


@in_loop
async def test_what_fails_for_no_known_reason_is_not_acked_either(
    caplog: pytest.LogCaptureFixture,
) -> None:
    one = Side(V3, BrokenFront())
    one.open()
    one.receive(side.publish(V3, X, b"1", 1, 5))
    await one.mqtt.close()
    assert one.taken() == []
    assert one.transport.closed
    assert "publishing failed" in caplog.text


@in_loop
async def test_on_3_what_succeeded_before_it_is_acked_first() -> None:
    one = opened(V3)
    one.front.results = [1, StorageUnavailable("later"), 3]
    packets = [side.publish(V3, X, b"%d" % i, 1, i) for i in (1, 2, 3)]
    one.receive(b"".join(packets))
    await one.mqtt.close()
    assert one.taken() == [side.puback(1)]
    assert one.transport.closed


@in_loop
async def test_on_3_what_is_not_allowed_is_acked_and_dropped() -> None:
    one = opened(V3)
    one.front.results = [Unauthorised("not yours")]
    one.receive(side.publish(V3, X, b"1", 1, 5))
    await one.mqtt.close()
    assert one.taken() == [side.puback(5)]


@both_versions
@in_loop
async def test_answers_keep_the_order_of_the_publishes(version: int) -> None:
    one = opened(version)
    one.front.gate.clear()
    one.receive(side.publish(version, X, b"1", 1, 1))
    await until(lambda: not one.front.published)
    for id in range(2, 7):
        payload = b"bad" if id == 4 else b"%d" % id
        one.receive(side.publish(version, Y if id % 2 else X, payload, 1, id))
    assert one.taken() == []
    one.front.gate.set()
    await one.mqtt.close()
    assert [int.from_bytes(packet[2:4]) for packet in one.taken()] == [1, 2, 3, 4, 5, 6]
    assert [update.version for update in one.front.published] == [1, 2, 3, 5, 6]


@in_loop
async def test_a_client_with_too_many_unanswered_publishes_is_not_read_from() -> None:
    one = opened(V3, receive_maximum=3)
    one.front.gate.clear()
    one.receive(b"".join(side.publish(V3, X, b"%d" % id, 1, id) for id in range(1, 11)))
    assert not one.transport.reading
    for _ in range(1000):
        one.mqtt.next_turn()
    assert not one.transport.closed, "that it is silent is our doing"
    one.front.gate.set()
    await until(lambda: len(one.front.published) == 10)
    await one.mqtt.close()
    assert one.transport.reading
    assert len(one.taken()) == 10


@in_loop
async def test_mqtt_5_clients_know_how_many_publishes_may_be_unanswered() -> None:
    one = opened(V5, receive_maximum=2)
    one.front.gate.clear()
    one.receive(side.publish(V5, X, b"1", 2, 1))
    one.front.gate.set()
    await until(one.taken)
    one.receive(side.publish(V5, X, b"2", 2, 2))
    await until(one.taken)
    one.receive(side.publish(V5, X, b"3", 2, 3))
    assert one.taken()[0][2] == 0x93
    assert one.transport.closed
    await one.mqtt.close()


# QoS 2.


@both_versions
@in_loop
async def test_qos_2_is_published_once_until_it_is_released(version: int) -> None:
    one = opened(version)
    one.receive(side.publish(version, X, b"1", 2, 7))
    one.receive(side.publish(version, X, b"1", 2, 7, flags=8))
    await until(lambda: one.front.published)
    await one.mqtt.close()
    assert one.taken() == [bytes.fromhex("50 02 0007")]
    one.receive(side.publish(version, X, b"1", 2, 7, flags=8))
    assert one.taken() == [bytes.fromhex("50 02 0007")]
    one.receive(side.pubrel(7))
    assert one.taken() == [bytes.fromhex("70 02 0007")]
    one.receive(side.publish(version, X, b"2", 2, 7))
    await one.mqtt.close()
    assert [update.version for update in one.front.published] == [1, 2]


@both_versions
@in_loop
async def test_a_release_of_what_is_not_known_is_answered(version: int) -> None:
    one = opened(version)
    one.receive(side.pubrel(7))
    expected = "70 02 0007" if version == V3 else "70 04 0007 92 00"
    assert one.taken() == [bytes.fromhex(expected)]


@in_loop
async def test_a_refused_qos_2_publish_is_over() -> None:
    one = opened(V5)
    one.receive(side.publish(V5, X, b"bad", 2, 7))
    await one.mqtt.close()
    assert one.taken()[0][4] == 0x99
    one.receive(side.publish(V5, X, b"1", 2, 7))
    await one.mqtt.close()
    assert one.taken() == [bytes.fromhex("50 02 0007")]


# Wills.


@both_versions
@in_loop
async def test_a_will_is_published_when_the_connection_breaks(version: int) -> None:
    one = Side(version)
    one.open(will=(X, b"7"))
    one.lose()
    await one.mqtt.close()
    assert [seen(update) for update in one.front.published] == [(X, 7, None)]


@both_versions
@in_loop
async def test_a_will_is_published_when_the_client_is_thrown_out(version: int) -> None:
    one = Side(version)
    one.open(will=(X, b"7"), keep_alive=2)
    for _ in range(6):
        one.mqtt.next_turn()
    assert one.transport.closed
    one.lose()
    await one.mqtt.close()
    assert len(one.front.published) == 1


@both_versions
@in_loop
async def test_a_client_that_says_goodbye_has_no_will(version: int) -> None:
    one = Side(version)
    one.open(will=(X, b"7"))
    one.receive(DISCONNECT)
    one.lose()
    await one.mqtt.close()
    assert one.front.published == []


@in_loop
async def test_a_client_may_say_goodbye_and_leave_its_will() -> None:
    one = Side(V5)
    one.open(will=(X, b"7"))
    one.receive(bytes.fromhex("e0 01 04"))
    one.lose()
    await one.mqtt.close()
    assert len(one.front.published) == 1


@pytest.mark.parametrize(
    ("topic", "payload", "reason"), [(X, b"no version", 0x99), ("nonsense", b"1", 0x90)]
)
@in_loop
async def test_a_will_that_cannot_be_published_is_refused_on_5_and_ignored_on_3(
    topic: str, payload: bytes, reason: int
) -> None:
    five = Side(V5)
    five.receive(side.connect(V5, will=(topic, payload)))
    (connack,) = five.taken()
    assert (connack[0], connack[3]) == (0x20, reason)
    three = Side(V3)
    three.open(will=(topic, payload))
    three.lose()
    await three.mqtt.close()
    assert three.front.published == []
    assert three.mqtt.counters["ignored_publishes"] == 1


class Delayed:
    """A client whose will waits for five seconds, and whose connection broke."""

    def __init__(self, expiry: int = 60) -> None:
        self.front = RecordingFront()
        self.mqtt = side.channel(self.front)
        first = self.connect(clean=False, expiry=expiry)
        first.lose()

    def connect(self, clean: bool, expiry: int = 60) -> Side:
        one = Side(V5, self.front, self.mqtt)
        one.receive(
            side.connect(
                V5,
                clean=clean,
                keep_alive=600,
                will=(X, b"7"),
                will_said={p.WILL_DELAY: 5},
                said={p.SESSION_EXPIRY: expiry},
            )
        )
        one.grant()
        return one

    async def published_after(self, turns: int) -> int:
        for _ in range(turns):
            self.mqtt.next_turn()
        await until(lambda: not self.mqtt.publishing)
        return len(self.front.published)


@in_loop
async def test_a_will_may_wait_for_a_while() -> None:
    client = Delayed()
    assert await client.published_after(4) == 0
    assert await client.published_after(1) == 1
    assert await client.published_after(10) == 1


@in_loop
async def test_a_client_that_resumes_in_time_takes_its_will_back() -> None:
    client = Delayed()
    client.connect(clean=False)
    assert await client.published_after(10) == 0


@in_loop
async def test_a_client_that_starts_anew_leaves_the_will_of_before() -> None:
    client = Delayed()
    client.connect(clean=True)
    assert await client.published_after(0) == 1


@in_loop
async def test_a_will_does_not_wait_longer_than_its_session() -> None:
    assert await Delayed(expiry=0).published_after(0) == 1


@in_loop
async def test_a_session_taken_over_in_time_leaves_no_will_that_waits() -> None:
    client = Delayed()
    second = client.connect(clean=False)
    third = client.connect(clean=False)
    second.send(error=ServerError("fenced"))
    second.conn.close()
    second.lose()
    assert await client.published_after(10) == 0
    third.lose()
    assert await client.published_after(10) == 1
