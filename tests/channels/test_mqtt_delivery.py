"""What subscribers are sent: PUBLISH for notifications, PUBACK for acks, and nothing twice."""

import asyncio

import pytest
from tests.channels import mqtt_side as side
from tests.channels.mqtt_side import EPOCH, SESSION, RecordingFront, Side, X, Y, until
from tests.loops import in_loop

from roskva.channels.connections import Connections
from roskva.channels.mqtt.connection import MOST_ACKS
from roskva.core.effects import Acked, Closed, Drained, Event, Lagging
from roskva.model import NO_VERSION
from roskva.wire.messages import PROTOCOL, Notification, Operation, OperationStatus, ServerMessage
from roskva.wire.mqtt import fields as p
from roskva.wire.mqtt.codes import V3, V5

both_versions = pytest.mark.parametrize("version", [V3, V5])

ANEW = [Operation(X, register=False), Operation(X)]


# Subscribing.


@both_versions
@in_loop
async def test_suback_waits_until_every_topic_is_confirmed(version: int) -> None:
    one = Side(version)
    one.open()
    one.receive(side.subscribe(version, 7, (X, 0), (Y, 2)))
    assert one.operations() == [*ANEW, Operation(Y, register=False), Operation(Y)]
    one.confirm(X)
    assert one.taken() == []
    one.confirm(Y)
    nothing = b"" if version == V3 else b"\0"
    assert one.taken() == [side.packet(0x90, b"\0\x07" + nothing + b"\0\x01")]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("app/#", 0xA2),
        ("app/+", 0xA2),
        ("#", 0xA2),
        ("$share/g/app/x", 0x9E),
        ("noslash", 0x8F),
        ("App/x", 0x8F),
        ("$SYS/broker", 0x8F),
        ("app/", 0x8F),
        ("app/" + "x" * 256, 0x8F),
    ],
)
@both_versions
@in_loop
async def test_topics_that_are_no_objects_are_refused_one_by_one(
    version: int, topic: str, code: int
) -> None:
    one = Side(version)
    one.open()
    one.receive(side.subscribe(version, 1, (topic, 1), (X, 1)))
    assert one.operations() == ANEW
    one.confirm(X)
    (suback,) = one.taken()
    assert suback[-2:] == bytes([code if version == V5 else 0x80, 1])


@in_loop
async def test_if_no_topic_is_an_object_the_answer_comes_at_once() -> None:
    one = Side(V5)
    one.open()
    one.receive(side.subscribe(V5, 1, ("#", 1)), side.unsubscribe(V5, 2, "#", "a"))
    assert one.taken() == [bytes.fromhex("90 04 0001 00 a2"), bytes.fromhex("b0 05 0002 00 11 11")]
    assert one.front.messages == []


@pytest.mark.parametrize(
    ("code", "reason"), [("unauthorised", 0x87), ("limit_exceeded", 0x97), ("internal", 0x80)]
)
@in_loop
async def test_what_the_core_refuses_is_refused(code: str, reason: int) -> None:
    one = Side(V5)
    one.open()
    one.receive(side.subscribe(V5, 1, (X, 1)))
    one.confirm(X, code=code)
    assert one.taken()[0][-1] == reason
    one.broadcast(X, 1)
    assert one.taken() == []


@in_loop
async def test_one_status_settles_every_request_up_to_its_number() -> None:
    """Of two operations on an object the core confirms the later one."""
    one = Side()
    one.open()
    one.receive(side.subscribe(V3, 1, (X, 1)), side.subscribe(V3, 2, (X, 0)))
    one.receive(side.unsubscribe(V3, 3, X))
    numbers = [message.number for message in one.front.messages]
    one.send(statuses=[OperationStatus(X, True, numbers[1])])
    assert one.taken() == [b"\x90\x03\0\x01\x01", b"\x90\x03\0\x02\x00"]
    one.send(statuses=[OperationStatus(X, False, numbers[2])])
    assert one.taken() == [b"\xb0\x02\0\x03"]


@in_loop
async def test_the_same_topic_twice_in_one_packet_has_two_answers_and_the_last_qos() -> None:
    one = Side()
    one.open()
    one.receive(side.subscribe(V3, 1, (X, 1), (X, 0)))
    one.confirm(X)
    assert one.taken() == [b"\x90\x04\0\x01\x01\x00"]
    one.broadcast(X, 1)
    assert one.told()[0].qos == 0


@in_loop
async def test_too_many_topics_at_once_are_refused() -> None:
    one = Side(V5, max_filters=2)
    one.open()
    one.receive(side.subscribe(V5, 1, ("a/1", 1), ("a/2", 1), ("a/3", 1)))
    one.confirm("a/1", "a/2")
    assert one.taken()[0][-3:] == b"\x01\x01\x97"


@in_loop
async def test_a_client_with_too_many_unconfirmed_requests_is_not_read_from() -> None:
    one = Side(max_requests=2)
    one.open()
    one.receive(side.subscribe(V3, 1, ("a/1", 1)) + side.subscribe(V3, 2, ("a/2", 1)))
    assert not one.transport.reading
    one.send(statuses=[OperationStatus("a/1", True, 1)])
    assert one.transport.reading


@both_versions
@in_loop
async def test_unsubscribe_is_answered_when_it_is_durable(version: int) -> None:
    one = Side(version)
    one.open()
    one.subscribe((X, 1))
    one.receive(side.unsubscribe(version, 9, X))
    assert one.operations()[-1] == Operation(X, register=False)
    assert one.taken() == []
    one.send(statuses=[OperationStatus(X, False, one.front.messages[-1].number)])
    assert one.taken() == [b"\xb0\x02\0\x09" if version == V3 else b"\xb0\x04\0\x09\0\0"]
    one.broadcast(X, 3)
    assert one.taken() == []


# What is sent.


@both_versions
@in_loop
async def test_a_subscription_is_answered_with_the_current_version_as_retained(
    version: int,
) -> None:
    one = Side(version)
    one.open()
    one.receive(side.subscribe(version, 1, (X, 1)))
    one.notify(X, 41)
    (told,) = one.told()
    assert (told.topic, told.payload) == (X, b"41")
    assert (told.retain, told.qos, told.dup) == (1, 1, 0)
    one.broadcast(X, 42)
    (told,) = one.told()
    assert told == (X, b"42")
    assert (told.retain, told.qos, told.dup) == (0, 1, 0)


@in_loop
async def test_suback_comes_before_what_came_with_it() -> None:
    one = Side()
    one.open()
    one.receive(side.subscribe(V3, 1, (X, 1)))
    number = one.front.messages[-1].number
    notification = Notification(X, 41, EPOCH)
    one.send(notifications=[notification], statuses=[OperationStatus(X, True, number)])
    assert [packet[0] >> 4 for packet in one.taken()] == [9, 3]


@both_versions
@in_loop
async def test_unknown_is_a_question_mark(version: int) -> None:
    one = Side(version)
    one.open()
    one.subscribe((X, 1))
    one.broadcast(X, None)
    (told,) = one.told()
    assert told == (X, b"?")
    one.receive(side.puback(told.id))
    assert one.acked() == [(X, NO_VERSION, EPOCH)]


@both_versions
@pytest.mark.parametrize("payload", [b"21.5", b""])
@in_loop
async def test_a_payload_is_sent_as_it_is_and_the_version_beside_it(
    version: int, payload: bytes
) -> None:
    one = Side(version)
    one.open()
    one.subscribe((X, 1))
    one.broadcast(X, 41, payload)
    (told,) = one.told()
    assert told == (X, payload)
    assert told.said == ({} if version == V3 else {p.USER_PROPERTY: [("version", "41")]})


@in_loop
async def test_a_topic_that_was_not_subscribed_is_not_sent() -> None:
    one = Side()
    one.open()
    one.broadcast(X, 1)
    one.notify(X, 1)
    assert one.taken() == []


# Acks.


@both_versions
@in_loop
async def test_c83_a_puback_acks_what_was_sent_under_its_id(version: int) -> None:
    one = Side(version)
    one.open()
    one.subscribe((X, 1), (Y, 1))
    one.broadcast(X, 1)
    one.broadcast(Y, 7)
    x, y = one.told()
    assert x.id != y.id
    one.receive(side.puback(y.id), side.puback(x.id), side.puback(x.id))
    assert one.acked() == [(Y, 7, EPOCH), (X, 1, EPOCH)]


@in_loop
async def test_several_pubacks_in_one_piece_and_one_in_several() -> None:
    one = Side()
    one.open()
    one.subscribe((X, 1), (Y, 1))
    one.broadcast(X, 1)
    one.broadcast(Y, 1)
    one.broadcast(X, 2)
    ids = [told.id for told in one.told()]
    one.receive(side.puback(ids[0]) + side.puback(ids[1]))
    last = side.puback(ids[2])
    one.receive(last[:1], last[1:3], last[3:])
    assert [version for _, version, _ in one.acked()] == [1, 1, 2]


@pytest.mark.parametrize("order", ["12", "21", "1 2", "2 1"])
@in_loop
async def test_two_in_flight_are_acked_together_or_not_and_in_any_order(order: str) -> None:
    one = Side()
    one.open()
    one.subscribe((X, 1))
    for version in (1, 3):
        one.broadcast(X, version)
        one.broadcast(X, version + 1)
        ids = [told.id for told in one.told()]
        for piece in order.split():
            one.receive(b"".join(side.puback(ids[int(which) - 1]) for which in piece))
        both = one.acked()[-2:] if order.startswith("1") else one.acked()[:-3:-1]
        assert both == [(X, version, EPOCH), (X, version + 1, EPOCH)]


@in_loop
async def test_with_two_in_flight_neither_is_sent_again_and_a_third_goes_out() -> None:
    one = Side()
    one.open()
    one.subscribe((X, 1))
    for version in (1, 1, 2, 2, 1, 3):
        one.broadcast(X, version)
    told = one.told()
    assert told == [(X, b"1"), (X, b"2"), (X, b"3")]
    one.receive(*(side.puback(each.id) for each in told))
    assert [version for _, version, _ in one.acked()] == [1, 2, 3]


@in_loop
async def test_many_acks_at_once_are_one_step_of_the_core() -> None:
    one = Side(max_in_flight=4)
    one.open()
    one.subscribe((X, 1), (Y, 1))
    for version in (1, 2):
        one.broadcast(X, version)
        one.broadcast(Y, version)
    one.broadcast(X, 3)
    assert one.events(Lagging) == [Lagging(one.delivery, 5)]
    one.receive(b"".join(side.puback(told.id) for told in one.told()))
    assert len(one.events(Acked)) == 1
    assert one.acked() == [(X, 1, EPOCH), (Y, 1, EPOCH), (X, 2, EPOCH), (Y, 2, EPOCH)]
    assert isinstance(one.front.events[-1], Drained)


@pytest.mark.parametrize("pieces", [1, 2])
@in_loop
async def test_acks_reach_the_core_before_what_the_client_said_after_them(pieces: int) -> None:
    one = Side()
    one.open()
    one.subscribe((X, 1))
    one.broadcast(X, 1)
    (told,) = one.told()
    one.front.order.clear()
    said = [side.puback(told.id), side.subscribe(V3, 2, (X, 1))]
    for data in said if pieces == 2 else [b"".join(said)]:
        one.conn.data_received(data)
    assert one.acked() == [(X, 1, EPOCH)]
    assert one.front.order == ["Acked", "ClientMessage"]


@in_loop
async def test_acks_reach_the_core_although_the_connection_ends_at_once() -> None:
    one = Side()
    one.open()
    one.subscribe((X, 1))
    one.broadcast(X, 1)
    (told,) = one.told()
    one.conn.data_received(side.puback(told.id))
    one.lose()
    assert [type(event) for event in one.front.events[-2:]] == [Acked, Closed]


@in_loop
async def test_acks_are_taken_at_the_end_of_the_turn() -> None:
    one = Side()
    one.open()
    one.subscribe((X, 1))
    one.broadcast(X, 1)
    (told,) = one.told()
    one.conn.data_received(side.puback(told.id))
    assert one.acked() == []
    await until(one.acked)


@in_loop
async def test_pubacks_among_other_packets_are_found() -> None:
    one = Side()
    one.open()
    one.subscribe((X, 1))
    one.broadcast(X, 1)
    (told,) = one.told()
    one.receive(side.puback(999) + side.PINGREQ + side.PINGREQ + side.puback(told.id))
    assert one.acked() == [(X, 1, EPOCH)]
    assert one.taken() == [b"\xd0\x00"] * 2


@in_loop
async def test_what_follows_pubacks_in_one_piece_is_taken_too() -> None:
    one = Side()
    one.open()
    one.subscribe((X, 1), (Y, 1))
    one.broadcast(X, 1)
    one.broadcast(Y, 1)
    one.broadcast(X, 2)
    x, y, newer = (side.puback(told.id) for told in one.told())
    one.delivery.subscribed_anew([Y])
    one.receive(x + y + newer + side.PINGREQ[:1], side.PINGREQ[1:])
    assert one.acked() == [(X, 1, EPOCH), (X, 2, EPOCH)]
    assert one.taken() == [b"\xd0\x00"]


@in_loop
async def test_mqtt_5_may_ack_with_a_reason() -> None:
    one = Side(V5)
    one.open()
    one.subscribe((X, 1))
    one.broadcast(X, 1)
    (told,) = one.told()
    one.receive(side.packet(0x40, told.id.to_bytes(2) + b"\x83\0"))
    assert one.acked() == [(X, 1, EPOCH)]


@in_loop
async def test_c85_nothing_is_sent_twice_on_a_live_connection() -> None:
    one = Side()
    one.open()
    one.subscribe((X, 1))
    one.broadcast(X, 1)
    assert len(one.told()) == 1
    one.notify(X, 1)
    one.broadcast(X, 1)
    assert one.told() == []
    one.notify(X, 2)
    assert one.told() == [(X, b"2")]


@both_versions
@in_loop
async def test_c85_what_a_resumed_session_had_missed_is_sent_with_dup(version: int) -> None:
    one = Side(version)
    one.open(count=2)
    one.notify(X, 3)
    one.notify(Y, None)
    first, second = one.told()
    assert (first.dup, first.qos, first.retain) == (1, 1, 0)
    assert (second.dup, second.qos) == (1, 1)
    one.notify(X, 4)
    one.broadcast(Y, 5)
    assert [told.dup for told in one.told()] == [0, 0], "these were never sent before"


@in_loop
async def test_c84_qos_0_is_never_acked_and_sent_once_per_connection() -> None:
    one = Side()
    one.open()
    one.receive(side.subscribe(V3, 1, (X, 0)))
    one.notify(X, 1)
    (told,) = one.told()
    assert (told.qos, told.retain, told.dup) == (0, 1, 0)
    one.notify(X, 1)
    one.broadcast(X, 2)
    one.notify(X, 2)
    assert one.told() == [(X, b"2")]
    assert one.acked() == []
    again = Side()
    again.open()
    again.receive(side.subscribe(V3, 1, (X, 0)))
    again.notify(X, 2)
    assert again.told() == [(X, b"2")]


@in_loop
async def test_subscribing_again_sends_again_and_voids_the_acks_of_before() -> None:
    one = Side()
    one.open()
    one.subscribe((X, 1))
    one.broadcast(X, 1)
    (first,) = one.told()
    one.receive(side.subscribe(V3, 2, (X, 1)))
    assert one.operations()[-2:] == ANEW
    one.notify(X, 1)
    (second,) = one.told()
    assert second.retain == 1
    assert second.id != first.id
    one.receive(side.puback(first.id))
    assert one.acked() == [], "it would hide that the version was asked for again"
    one.receive(side.puback(second.id))
    assert one.acked() == [(X, 1, EPOCH)]


RETAIN_IF_NEW, NO_RETAINED = 0x10, 0x20


@in_loop
async def test_retain_handling_1_sends_only_for_a_new_subscription() -> None:
    one = Side(V5)
    one.open()
    one.receive(side.subscribe(V5, 1, (X, 1 | RETAIN_IF_NEW)))
    assert one.operations() == [Operation(X)], "which the core tells only if it is new"
    one.notify(X, 1)
    assert one.told()[0].retain == 1


@pytest.mark.parametrize("qos", [0, 1])
@in_loop
async def test_retain_handling_2_sends_nothing_but_what_is_new(qos: int) -> None:
    one = Side(V5)
    one.open()
    one.receive(side.subscribe(V5, 1, (X, qos | NO_RETAINED)))
    one.notify(X, 1)
    assert one.told() == []
    assert one.acked() == ([(X, 1, EPOCH)] if qos else [])
    one.confirm(X)
    one.broadcast(X, 2)
    assert one.told() == [(X, b"2")]


# One frame for many.


@in_loop
async def test_one_frame_serves_all_whose_id_is_free() -> None:
    front = RecordingFront()
    mqtt = side.channel(front)
    sides = [Side(V3, front, mqtt) for _ in range(3)]
    for one in sides:
        one.open()
        one.subscribe((X, 1), (Y, 1))
    announcement = sides[0].broadcast(X, 1)
    sides[1].hear(announcement)
    (first,), (second,) = sides[0].told(), sides[1].told()
    assert first.id == second.id
    # The third has that very id in flight for something else.
    sides[2].delivery._ids.take(side.puback(first.id), (Y, 9, EPOCH))
    sides[2].hear(announcement)
    (third,) = sides[2].told()
    assert third == (X, b"1")
    assert third.id != first.id
    sides[2].receive(side.puback(third.id), side.puback(first.id))
    assert [key for key, _, _ in sides[2].acked()] == [X, Y]


# Lagging.


@in_loop
async def test_an_ack_that_says_nothing_makes_room_all_the_same() -> None:
    one = Side(V5)
    one.open(said={p.RECEIVE_MAXIMUM: 1})
    one.subscribe((X, 1), (Y, 1))
    one.broadcast(X, 1)
    one.broadcast(Y, 1)
    (told,) = one.told()
    one.delivery.subscribed_anew([X])
    one.conn.data_received(side.puback(told.id))
    await asyncio.sleep(0)
    assert (one.acked(), one.events(Drained)) == ([], [Drained(one.delivery)])


@in_loop
async def test_what_is_acked_is_not_sent_again_before_the_core_knows() -> None:
    """It is no longer in flight, and the core may still be telling it."""
    one = Side()
    one.open()
    one.subscribe((X, 1), (Y, 1))
    one.broadcast(X, 4)
    one.broadcast(X, 5)
    one.conn.data_received(b"".join(side.puback(told.id) for told in one.told()))
    one.broadcast(X, 4)
    one.conn.send(ServerMessage(PROTOCOL, SESSION, notifications=[Notification(X, 5, EPOCH)]))
    assert one.told() == []
    assert one.acked() == []
    one.mqtt.take_acks()
    assert one.acked() == [(X, 4, EPOCH), (X, 5, EPOCH)]
    one.notify(X, 5)  # the core knows, and wants it told again
    assert one.told() == [(X, b"5")]


@in_loop
async def test_many_acks_do_not_wait_for_the_end_of_the_turn() -> None:
    front = RecordingFront()
    mqtt = side.channel(front)
    sides = [Side(V3, front, mqtt) for _ in range(MOST_ACKS + 1)]
    for one in sides:
        one.open()
        one.subscribe((X, 1))
        one.broadcast(X, 1)
    for one in sides:
        (told,) = one.told()
        one.conn.data_received(side.puback(told.id))
    (acked,) = sides[0].events(Acked)
    assert acked.acks == {(X, 1, EPOCH): [one.delivery for one in sides[:-1]]}
    await until(sides[-1].acked)


@in_loop
async def test_room_is_not_said_when_the_core_fills_it_again_at_once() -> None:
    one = Side(max_in_flight=2)
    one.open()
    one.subscribe((X, 1), (Y, 1))
    one.broadcast(X, 1)
    one.broadcast(Y, 1)
    one.broadcast(X, 2)
    one.front.events.clear()
    x, _ = one.told()

    def tell(event: Event) -> None:
        RecordingFront.step(one.front, event)
        if type(event) is Acked:
            one.notify(X, 2)

    one.front.step = tell  # type: ignore[method-assign]
    one.receive(side.puback(x.id))
    assert [type(event) for event in one.front.events] == [Acked]


@both_versions
@in_loop
async def test_receive_maximum_is_honoured_and_said_only_when_something_is_left_out(
    version: int,
) -> None:
    one = Side(version, max_in_flight=2 if version == V3 else 1000)
    one.open(said={} if version == V3 else {p.RECEIVE_MAXIMUM: 2})
    one.subscribe((X, 1), (Y, 1))
    one.broadcast(X, 1)
    one.broadcast(Y, 1)
    assert one.events(Lagging) == []
    one.broadcast(X, 2)
    one.broadcast(Y, 2)
    ids = [told.id for told in one.told()]
    assert len(ids) == 2
    assert one.events(Lagging) == [Lagging(one.delivery, 3)]
    one.notify(X, 2)
    assert one.events(Lagging)[1:] == [Lagging(one.delivery, 0)]
    one.receive(side.puback(ids[0]))
    assert one.events(Drained) == [Drained(one.delivery)]
    one.notify(X, 2)
    assert one.told() == [(X, b"2")]


@in_loop
async def test_a_window_of_one_costs_nothing_while_acks_keep_up() -> None:
    one = Side(V5)
    one.open(said={p.RECEIVE_MAXIMUM: 1})
    one.subscribe((X, 1))
    for version in range(10):
        one.broadcast(X, version)
        (told,) = one.told()
        one.receive(side.puback(told.id))
    assert one.events(Lagging) == []
    assert one.events(Drained) == []


@in_loop
async def test_c68_a_socket_that_does_not_drain_is_left_out_until_it_does() -> None:
    one = Side()
    one.open()
    one.subscribe((X, 1), (Y, 0))
    one.conn.pause_writing()
    assert one.events(Lagging) == [Lagging(one.delivery)]
    one.broadcast(X, 1)
    one.broadcast(Y, 1)
    assert one.taken() == []
    assert one.events(Lagging)[1:] == [Lagging(one.delivery, 1)]
    one.conn.resume_writing()
    assert one.events(Drained) == [Drained(one.delivery)]
    one.broadcast(X, 2)
    assert one.told() == [(X, b"2")]


@in_loop
async def test_drained_is_said_when_neither_socket_nor_window_is_full() -> None:
    one = Side(max_in_flight=1)
    one.open()
    one.subscribe((X, 1), (Y, 1))
    one.broadcast(X, 1)
    (told,) = one.told()
    one.broadcast(Y, 1)
    one.conn.pause_writing()
    one.conn.resume_writing()
    assert one.events(Drained) == []
    one.conn.pause_writing()
    one.receive(side.puback(told.id))
    assert one.events(Drained) == []
    one.conn.resume_writing()
    assert one.events(Drained) == [Drained(one.delivery)]


@in_loop
async def test_a_client_that_asks_and_does_not_read_is_not_read_from() -> None:
    one = Side(max_unread_bytes=100)
    one.open()
    one.transport.unread = 101
    one.receive(side.PINGREQ)
    assert not one.transport.reading
    one.transport.unread = 0
    one.conn.resume_writing()
    assert one.transport.reading


@in_loop
async def test_a_client_that_leaves_its_answers_unread_is_cut_off() -> None:
    one = Side(max_unread_bytes=100, write_timeout_s=3)
    one.open(keep_alive=0)
    one.transport.unread = 101
    one.receive(side.PINGREQ)
    for _ in range(3):
        one.mqtt.next_turn()
    assert not one.transport.aborted
    for _ in range(3):
        one.mqtt.next_turn()
    assert one.transport.aborted
    assert one.mqtt.counters["unread_timeouts"] == 1


@in_loop
async def test_a_client_that_leaves_notifications_unread_is_not() -> None:
    one = Side(max_unread_bytes=100, write_timeout_s=3)
    one.open(keep_alive=0)
    one.transport.unread = 100_000
    one.conn.pause_writing()
    for _ in range(20):
        one.mqtt.next_turn()
    assert not one.transport.closed


@in_loop
async def test_a_client_for_whom_there_is_no_place_is_told_that_the_server_is_busy() -> None:
    connections = Connections(1)
    mqtt = side.channel(connections=connections)
    one = Side(mqtt=mqtt)
    one.open()
    late = Side(mqtt=mqtt)
    late.receive(side.connect())
    assert late.taken() == [b"\x20\x02\x00\x03"]
    assert late.transport.closed
    one.lose()
    again = Side(mqtt=mqtt)
    again.open()


@in_loop
async def test_what_a_client_finds_too_large_becomes_a_question_mark() -> None:
    one = Side(V5)
    one.open(said={p.MAXIMUM_PACKET_SIZE: 60})
    one.subscribe((X, 1))
    one.broadcast(X, 1, b"x" * 100)
    one.notify(X, 2, b"x" * 100)
    assert one.told() == [(X, b"?"), (X, b"?")]


@in_loop
async def test_what_does_not_fit_at_all_is_not_sent() -> None:
    one, long = Side(V5), "app/" + "x" * 100
    one.open(said={p.MAXIMUM_PACKET_SIZE: 60})
    one.subscribe((long, 1))
    one.broadcast(long, 1)
    one.notify(long, 2)
    assert one.taken() == []


@in_loop
async def test_a_client_too_small_for_our_answers_is_let_go() -> None:
    one = Side(V5)
    one.receive(side.connect(V5, said={p.MAXIMUM_PACKET_SIZE: 5}))
    one.grant()
    assert one.taken() == []
    assert one.transport.closed


@in_loop
async def test_broadcasts_before_connack_are_left_to_the_walk_that_follows_it() -> None:
    one = Side()
    one.receive(side.connect(V3, clean=False))
    one.broadcast(X, 1)
    assert one.taken() == []
