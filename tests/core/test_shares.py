"""How many rows and registrations one principal may have in a shard, and that others do not pay."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.core.pair import Pair
from tests.core.test_attached import Device
from tests.core.test_collector import ROUND_S
from tests.core.test_sessions_limited import device as attached

from roskva.core.expiry import Keep
from roskva.core.shares import MAX_COUNTERS, MaxShare, ShareCounters
from roskva.errors import LimitExceeded
from roskva.model import NOBODY, Principal
from roskva.wire.messages import Operation

ALICE, BOB = Principal("alice", "app"), Principal("bob", "app")


def limited(clients: int = 1000, registrations: int = 1000) -> Pair:
    pair = Pair()
    pair.max_share = MaxShare(clients, registrations)
    restart(pair)
    return pair


def restart(pair: Pair) -> None:
    pair.shard.crash()
    pair.run(10.0)


def device(pair: Pair, number: int, who: Principal = ALICE, **options: Any) -> Device:
    return attached(pair, number, principal=who, **options)


def registers(found: Device, *names: str) -> dict[str, bool]:
    """Whether each was confirmed; and the connection is over, if one was not."""
    before = len(found.told)
    found.say(*(Operation(f"app/{name}") for name in names))
    found.pair.run(1.0)
    told = found.told[before:]
    statuses = [status for message in told for status in message.statuses]
    assert {status.code for status in statuses} <= {None, LimitExceeded.code}
    errors = [message.error for message in told if message.error is not None]
    assert (found.id in found.pair.registrar.core.conns) == (not errors)
    assert all("max_clients_per_principal" in error.text for error in errors)
    return {status.object.partition("/")[2]: status.registered for status in statuses}


def test_a_principal_may_have_so_many_clients_stored_and_others_have_their_own() -> None:
    pair = limited(clients=2)
    assert [registers(device(pair, number), "x")["x"] for number in range(3)] == [True, True, False]
    assert registers(device(pair, 7, BOB), "x") == {"x": True}
    assert len(pair.shard.heads) == 3
    assert pair.shard.rows.counters["over_share"] == 1


def test_nobody_in_particular_is_counted_by_address_where_addresses_are() -> None:
    pair = limited(clients=1)
    assert all(registers(device(pair, number, NOBODY), "x")["x"] for number in range(3))
    here, there = NOBODY.at("192.0.2.1"), NOBODY.at("192.0.2.2")
    assert registers(device(pair, 3, here), "x") == {"x": True}
    assert registers(device(pair, 4, here), "x") == {"x": False}
    assert registers(device(pair, 5, there), "x") == {"x": True}
    assert ALICE.at("192.0.2.1") == ALICE


def test_who_has_a_row_keeps_it_and_may_change_it() -> None:
    pair = limited(clients=1)
    device(pair, 0).leave()
    found = device(pair, 1)
    assert registers(found, "x") == {"x": True}
    found.leave()
    assert registers(device(pair, 1), "y", "z") == {"y": True, "z": True}


def test_what_all_its_clients_are_registered_for_is_limited_too() -> None:
    pair = limited(registrations=3)
    assert registers(device(pair, 0), "a", "b") == {"a": True, "b": True}
    assert registers(device(pair, 1), "a", "b") == {"a": False, "b": False}
    assert registers(device(pair, 1), "a") == {"a": True}


def test_registrations_that_are_given_up_make_room() -> None:
    pair = limited(registrations=2)
    first = device(pair, 0)
    registers(first, "a", "b")
    first.say(Operation("app/a", False))
    pair.run(1.0)
    assert registers(device(pair, 1), "c") == {"c": True}


def test_a_client_that_starts_anew_makes_room() -> None:
    pair = limited(clients=1)
    found = device(pair, 0)
    registers(found, "x")
    found.leave()
    device(pair, 0, resume=False, keep=False)
    assert registers(device(pair, 1), "x") == {"x": True}


def test_rows_that_expire_make_room() -> None:
    pair = limited(clients=1)
    pair.keep = Keep(100.0)
    found = device(pair, 0)
    registers(found, "x")
    found.leave()
    pair.run(100 + 2 * ROUND_S)
    assert registers(device(pair, 1), "x") == {"x": True}


def test_after_a_start_the_rows_that_are_there_count_once_they_were_read() -> None:
    pair = limited(clients=2)
    for number in range(2):
        registers(device(pair, number), "x")
    restart(pair)
    pair.run(ROUND_S)
    assert registers(device(pair, 2), "x") == {"x": False}
    pair.run(2 * ROUND_S)
    assert registers(device(pair, 2), "x") == {"x": False}


def test_a_write_that_fails_counts_for_nothing() -> None:
    pair = limited(clients=1)
    found = device(pair, 0)
    pair.shard.disk_fails = True
    found.say(Operation("app/x"))
    pair.run(300.0)
    pair.shard.disk_fails = False
    pair.run(120.0)
    assert len(pair.shard.heads) == 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 50)), max_size=400), st.just(8))
def test_counters_never_say_too_much_and_not_much_too_little(
    added: list[tuple[int, int]], room: int
) -> None:
    counters, true = ShareCounters(room), dict[bytes, int]()
    for number, count in added:
        account = bytes([number])
        counters.add(account, count)
        true[account] = true.get(account, 0) + count
    assert len(counters.counts) <= room
    for account, count in true.items():
        assert count - sum(true.values()) / (room + 1) <= counters.of(account) <= count


def test_memory_is_bounded_however_many_principals_there_are() -> None:
    counters = ShareCounters()
    for number in range(5 * MAX_COUNTERS):
        counters.add(number.to_bytes(8), 1)
        counters.add(b"greedy", 1)
    assert len(counters.counts) <= MAX_COUNTERS
    assert counters.of(b"greedy") >= 4 * MAX_COUNTERS
