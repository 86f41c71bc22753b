"""Conformance 83, and any sequence of sending and acking."""

from hypothesis import given
from hypothesis import strategies as st

from roskva.host.mqtt import PacketIds, Sent, puback

SENT = st.tuples(
    st.sampled_from(["app/a", "app/b", "app/c"]), st.integers(-1, 3), st.integers(1, 2)
)
STEPS = st.lists(st.one_of(st.tuples(st.integers(1, 5), SENT), st.integers(1, 14)), max_size=80)


@given(STEPS)
def test_every_ack_names_what_was_sent_under_its_id_and_nothing_is_in_flight_twice(
    steps: list[tuple[int, Sent] | int],
) -> None:
    ids, in_flight = PacketIds(receive_maximum=12), dict[bytes, Sent]()
    for step in steps:
        if isinstance(step, int):
            assert ids.in_flight.pop(puback(step), None) == in_flight.pop(puback(step), None)
        elif not ids.full():
            proposed, sent = step
            ack = ids.take(puback(proposed), sent)
            assert (ack is None) is (sent in in_flight.values())
            if ack is not None:
                assert ack not in in_flight
                assert len(ack) == 4
                in_flight[ack] = sent
        assert ids.full() is (len(in_flight) >= 12)


def test_c83_a_packet_id_in_flight_is_not_reused_for_another_object() -> None:
    ids = PacketIds(receive_maximum=10)
    four = puback(4)
    assert ids.take(four, ("app/a", 1, 9)) == four
    other = ids.take(four, ("app/b", 1, 9))
    assert other is not None
    assert other != four
    assert ids.in_flight.pop(four) == ("app/a", 1, 9)
    assert ids.take(four, ("app/c", 1, 9)) == four
    assert ids.in_flight.pop(other) == ("app/b", 1, 9)


def test_c83_nothing_is_sent_twice_on_a_live_connection() -> None:
    ids = PacketIds(receive_maximum=10)
    assert ids.take(puback(1), ("app/a", 1, 9)) == puback(1)
    assert ids.take(puback(2), ("app/a", 1, 9)) is None
    assert ids.take(puback(3), ("app/a", 1, 10)) == puback(3), "another epoch is another message"


def test_c83_while_much_is_in_flight_nothing_is_sent_twice_before_its_ack() -> None:
    ids = PacketIds(receive_maximum=1000)
    sent = [("app/a", version, 9) for version in range(200)]
    for version, one in enumerate(sent):
        assert ids.take(puback(1 + version), one)
        assert ids.take(puback(1000), one) is None
    for version, one in enumerate(sent[:150]):
        assert ids.in_flight.pop(puback(1 + version)) == one
    assert [ids.take(puback(1000), one) is None for one in sent] == [False] * 150 + [True] * 50


def test_c83_every_id_of_a_full_window_is_different() -> None:
    ids = PacketIds(receive_maximum=65535)
    taken: set[bytes | None] = set()
    while not ids.full():
        taken.add(ids.take(puback(1 + len(taken) % 50), (f"app/{len(taken)}", 1, 9)))
    assert taken == {puback(id) for id in range(1, 65536)}
