"""Conformance 83, and any sequence of sending and acking."""

from hypothesis import given
from hypothesis import strategies as st

from roskva.host.mqtt import PacketIds, Sent

SENT = st.tuples(
    st.sampled_from(["app/a", "app/b", "app/c"]), st.integers(-1, 3), st.integers(1, 2)
)
STEPS = st.lists(st.one_of(st.tuples(st.integers(1, 5), SENT), st.integers(1, 10)), max_size=60)


@given(STEPS)
def test_every_ack_names_what_was_sent_under_its_id_and_nothing_is_in_flight_twice(
    steps: list[tuple[int, Sent] | int],
) -> None:
    ids, in_flight = PacketIds(receive_maximum=8), dict[int, Sent]()
    for step in steps:
        if isinstance(step, int):
            assert ids.acked(step) == in_flight.pop(step, None)
        elif not ids.full():
            proposed, sent = step
            id = ids.take(proposed, sent)
            assert (id is None) is (sent in in_flight.values())
            if id is not None:
                assert id not in in_flight
                assert 1 <= id <= 65535
                in_flight[id] = sent
        assert ids.full() is (len(in_flight) >= 8)


def test_c83_a_packet_id_in_flight_is_not_reused_for_another_object() -> None:
    ids = PacketIds(receive_maximum=10)
    assert ids.take(4, ("app/a", 1, 9)) == 4
    other = ids.take(4, ("app/b", 1, 9))
    assert other is not None
    assert other != 4
    assert ids.acked(4) == ("app/a", 1, 9)
    assert ids.take(4, ("app/c", 1, 9)) == 4
    assert ids.acked(other) == ("app/b", 1, 9)


def test_c83_a_puback_acks_what_was_sent_under_its_id_once() -> None:
    ids = PacketIds(receive_maximum=10)
    ids.take(1, ("app/a", 1, 9))
    ids.take(2, ("app/a", 2, 9))
    assert ids.acked(1) == ("app/a", 1, 9)
    assert ids.acked(1) is None
    assert ids.acked(2) == ("app/a", 2, 9)


def test_c83_nothing_is_sent_twice_on_a_live_connection() -> None:
    ids = PacketIds(receive_maximum=10)
    assert ids.take(1, ("app/a", 1, 9)) == 1
    assert ids.take(2, ("app/a", 1, 9)) is None
    assert ids.take(3, ("app/a", 1, 10)) == 3, "another epoch is another message"


def test_c83_every_id_of_a_full_window_is_different() -> None:
    ids = PacketIds(receive_maximum=65535)
    taken: set[int | None] = set()
    while not ids.full():
        taken.add(ids.take(1 + len(taken) % 50, (f"app/{len(taken)}", 1, 9)))
    assert taken == set(range(1, 65536))
