from hypothesis import given
from hypothesis import strategies as st

from roskva.core.packets import PacketIds, Sent

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
            newest = [s for s in in_flight.values() if s[0] == sent[0]][-1:]
            if id is None:
                assert newest == [sent]
            else:
                assert id not in in_flight
                assert 1 <= id <= 65535
                assert newest != [sent]
                in_flight[id] = sent
        assert ids.full() is (len(in_flight) >= 8)
