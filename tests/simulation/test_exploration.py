"""Small clusters, explored to the last state; the larger ones by `roskva sim --exhaustive`."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from verification.exploration.bounds import CONFIGURATIONS, FAULTS, Bounds
from verification.exploration.canonical import NOW, Mute, frozen, settle_client
from verification.exploration.machines import Line
from verification.exploration.search import (
    WITHIN_BOUNDS,
    Exploration,
    _Search,
    explore,
    explore_mutant,
)
from verification.mutants import MUTANTS, Change, Mutant, planted

from roskva.core.client import ClientConfig, ClientMachine
from roskva.core.effects import Register

SMALL = Bounds(
    name="small",
    eager=("disk", "links"),
    publishes=1,
    faults=1,
    losses=1,
    duplicates=1,
    hangups=1,
)
CRASHES = Bounds(
    name="crashes",
    eager=("disk", "clients"),
    publishes=1,
    faults=1,
    registrar_crashes=1,
    shard_crashes=1,
    state_losses=1,
)


BRIDGE = Bounds(
    name="a bridge",
    eager=("links", "clients"),
    publishes=2,
    deliveries=1,
    faults=1,
    missed_handovers=1,
)


def holds(exploration: Exploration) -> bool:
    """To the last state, and from each of them everybody becomes fresh."""
    return not exploration.violations and exploration.converged == exploration.states > 0


@pytest.mark.parametrize("bounds", [SMALL, CRASHES], ids=lambda bounds: bounds.name)
def test_a_small_cluster_holds_in_every_state(bounds: Bounds) -> None:
    assert holds(explore(bounds))


def test_a_gap_is_left_to_the_bridge_until_the_shard_loses_its_patience() -> None:
    search = _Search(BRIDGE, first_only=False)
    assert holds(search.run())
    assert ("shard_timer", "patience") in search.move_numbers


def test_exploring_twice_finds_the_same_states() -> None:
    first, again = explore(SMALL), explore(SMALL)
    assert (first.states, first.transitions) == (again.states, again.transitions)


def test_more_faults_lead_to_more_states() -> None:
    without = Bounds(name="no faults", eager=SMALL.eager, publishes=1)
    assert explore(without).states < explore(SMALL).states


def test_the_configurations_have_two_of_everything_and_every_fault() -> None:
    for size in ("clients", "objects", "registrars"):
        assert {getattr(bounds, size) for bounds in CONFIGURATIONS} == {1, 2}
    for kind in FAULTS:
        assert any(getattr(bounds, kind) for bounds in CONFIGURATIONS), kind


# Canonical form.


def _client(connects_in: float = 1.0) -> ClientMachine:
    core = ClientMachine(ClientConfig("app"), None, 0, NOW)
    core.counters = Mute()
    core.step(Register("app/x", None), NOW)
    core.connect_at = NOW + connects_in
    return core


def test_machines_that_differ_only_in_time_are_equal() -> None:
    early, late = _client(), _client(connects_in=5.0)
    assert frozen(early) != frozen(late)
    settle_client(early)
    settle_client(late)
    assert frozen(early) == frozen(late)


def test_settling_twice_changes_nothing_more() -> None:
    core = _client()
    settle_client(core)
    once = frozen(core)
    settle_client(core)
    assert frozen(core) == once


def test_a_machine_survives_being_put_away() -> None:
    core = _client()
    settle_client(core)
    assert frozen(pickle.loads(pickle.dumps(core))) == frozen(core)


def test_machines_that_want_different_things_differ() -> None:
    one, other = _client(), _client()
    other.step(Register("app/y", None), NOW)
    settle_client(one)
    settle_client(other)
    assert frozen(one) != frozen(other)


def test_a_delivery_is_its_number_also_when_it_was_put_away() -> None:
    line = Line(17)
    line.pause()
    again = pickle.loads(pickle.dumps(line))
    assert again == line == 17
    assert {line: "found"}[again] == "found"
    assert again.lagging


# It can fail.


@contextmanager
def _nobody_is_settled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setattr(_Search, "_is_settled", lambda self, state: False)
        yield


def test_a_cluster_that_never_becomes_fresh_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    cold = Bounds(name="cold", warm=False, eager=SMALL.eager)
    assert holds(explore(cold))
    found = explore(cold, lambda: _nobody_is_settled(monkeypatch))
    assert [violation.text for violation in found.violations] == ["clients never become fresh"]


def test_a_wrong_answer_to_a_publisher_is_found() -> None:
    wrong = Change(
        "roskva.host.shard:ShardHost._appended",
        "UpdatesPublished(number, versions)",
        "UpdatesPublished(number, [])",
    )
    found = explore(SMALL, lambda: planted(Mutant("a wrong answer", (wrong,))), first_only=True)
    assert "they were not" in found.violations[0].text


def test_every_planted_bug_still_finds_its_line() -> None:
    for mutant in MUTANTS:
        with planted(mutant):
            pass


def _caught(name: str) -> Exploration:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    return explore_mutant(lambda: planted(mutant))


@pytest.mark.parametrize("name", WITHIN_BOUNDS[:2])
def test_a_planted_bug_shows_with_the_way_to_it(name: str) -> None:
    (found,) = _caught(name).violations
    assert found.trace[0] == "start"
