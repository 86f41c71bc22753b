"""Who may not come in for now, or any more: rates, load, and too many sessions of one principal."""

from typing import Any

from tests.core.pair import Pair
from tests.core.test_attached import CLIENT, Device

from roskva.core.backoff import Rate
from roskva.core.effects import Attached, Shedding, Watching
from roskva.errors import LimitExceeded, Overloaded
from roskva.model import Principal

ALICE, BOB = Principal("alice", "app"), Principal("bob", "app")


def refusals(device: Device) -> list[str]:
    return [message.error.code for message in device.told if message.error is not None]


def watching(pair: Pair, principal: Principal) -> Device:
    return Device(pair, Watching, registered=[], principal=principal)


def device(pair: Pair, number: int, **options: Any) -> Device:
    found = Device(pair, Watching, registered=[])  # a connection; the client is attached anew
    found.leave()
    found.told.clear()
    pair.registrar.conns[found.id] = found  # type: ignore[assignment]
    pair.registrar.step(Attached(found.id, bytes([number]) * len(CLIENT), "", **options))
    pair.settle()
    return found


def test_a_principal_may_have_so_many_sessions_and_no_more() -> None:
    pair = Pair(max_sessions=2)
    first, second = watching(pair, ALICE), device(pair, 1, principal=ALICE)
    assert not refusals(first)
    assert second.session
    third = device(pair, 2, principal=ALICE)
    assert refusals(third) == [LimitExceeded.code]
    assert third.id not in pair.registrar.core.conns
    assert not refusals(watching(pair, BOB))
    assert pair.registrar.core.counters["over_session_limit"] == 1


def test_a_session_that_ends_makes_room_for_another() -> None:
    pair = Pair(max_sessions=1)
    for number in range(5):
        found = device(pair, number, principal=ALICE)
        assert not refusals(found)
        refused = watching(pair, ALICE)
        assert refusals(refused) == [LimitExceeded.code]
        found.leave()
    assert not pair.registrar.core.admission.joined


def test_nobody_in_particular_may_have_any_number() -> None:
    pair = Pair(max_sessions=1)
    assert not [code for number in range(3) for code in refusals(device(pair, number))]


def test_devices_count_for_the_rate_of_handshakes() -> None:
    pair = Pair(handshakes=Rate(2, 1000))
    outcomes = [refusals(device(pair, number)) for number in range(3)]
    assert outcomes == [[], [], [Overloaded.code]]
    pair.run(2.0)
    assert not refusals(device(pair, 4))


def test_under_load_nobody_is_let_in_and_those_inside_are_served() -> None:
    pair = Pair()
    inside = pair.client()
    pair.run(1.0)
    pair.registrar.step(Shedding(True))
    turned_away = device(pair, 1)
    assert refusals(turned_away) == [Overloaded.code]
    not_before = [m.not_before_ms for m in turned_away.told if m.not_before_ms is not None]
    assert not_before
    assert min(not_before) >= 2000
    newcomer = pair.client()
    pair.run(1.0)
    assert newcomer.core.phase.name != "READY"
    assert inside.core.phase.name == "READY"
    pair.registrar.step(Shedding(False))
    pair.run(30.0)
    assert newcomer.core.phase.name == "READY"
