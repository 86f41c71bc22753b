"""Turns, and what becomes of them: medians, ratios, and who has lost something."""

import pytest
from benchmarks import limits
from benchmarks.brokers import fanout, hot, idle, killed, offline, own_objects
from benchmarks.brokers.peers import CORE, QUEUES, ROSKVA, Peer
from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Load
from benchmarks.turns import OURS, figure, in_turns, ratio


def load(per_s: float, cpu_s: float = 0.5) -> Load:
    return Load(1.0, 100, int(per_s), 1000, 2000, 3000, server_cpu_s=cpu_s)


def named(results: list[Result], name: str) -> Result:
    return next(result for result in results if result.name == name)


def test_everybody_has_a_turn_and_the_next_round_goes_the_other_way() -> None:
    seen: list[str] = []
    said: list[str] = []
    peers = (ROSKVA, QUEUES, CORE)

    def measure(peer: Peer) -> int:
        seen.append(peer.name)
        return len(seen)

    turns = in_turns(peers, Settings(2, progress=said.append), measure, once=(CORE,))
    names = [peer.name for peer in peers]
    assert seen == [*names, QUEUES.name, OURS]
    assert turns == {OURS: [1, 5], QUEUES.name: [2, 4], CORE.name: [3]}
    assert said[0] == "Roskva, turn 1 of 2"


def test_a_repetition_may_have_several_turns() -> None:
    said: list[str] = []
    turns = in_turns(
        (ROSKVA, QUEUES), Settings(2, progress=said.append), len_of_name, often=2, doing="latency"
    )
    assert turns == {peer.name: [len(peer.name)] * 4 for peer in (ROSKVA, QUEUES)}
    assert said[-1] == "latency, turn 4 of 4"


def len_of_name(peer: Peer) -> int:
    return len(peer.name)


def test_a_figure_has_medians_and_every_turn() -> None:
    found = figure("rate", "/s", {OURS: [3.0, 1.0, 2.0], "them": [5.0, 4.0, 9.0]}, lambda x: x)
    assert (found.value, found.peers) == (2.0, {"them": 5.0})
    assert found.runs == {OURS: [3.0, 1.0, 2.0], "them": [5.0, 4.0, 9.0]}


def test_who_lost_something_in_one_turn_has_no_figure() -> None:
    turns: dict[str, list[float | None]] = {OURS: [1.0, 1.0], "them": [2.0, None]}
    found = figure("fresh", "s", turns, lambda x: x, note="quick")
    assert found.peers == {}
    assert found.note == "quick; never: them"


def test_roskva_may_lose_nothing() -> None:
    turns: dict[str, list[float | None]] = {OURS: [None], "them": [2.0]}
    with pytest.raises(RuntimeError, match="fresh: Roskva has lost"):
        figure("fresh", "s", turns, lambda x: x)


def test_a_ratio_is_that_of_turns_and_not_of_medians() -> None:
    of = figure("rate", "/s", {OURS: [2.0, 9.0, 4.0], "them": [1.0, 2.0, 4.0]}, lambda x: x)
    (found,) = ratio(of, "them", target=1.5)
    assert (found.value, found.note, found.met) == (2.0, "1.00 to 4.50", True)
    assert ratio(of, "nobody") == []


def test_fan_out() -> None:
    turns = {
        OURS: [fanout.Turn(load(90_000), load(80_000), load(135_000))],
        QUEUES.name: [fanout.Turn(load(45_000))],
        CORE.name: [fanout.Turn(load(100_000), load(100_000))],
    }
    results = fanout.results(turns, {peer: [load(10_000)] for peer in turns})
    to_mosquitto = [r.value for r in results if r.name == "… to Mosquitto QoS 1"]
    assert to_mosquitto[:2] == [2.0, 3.0]
    assert named(results, "… to NATS core").value == 0.8
    rate = named(results, "deliveries to 1,000 subscribers")
    assert rate.peers == {QUEUES.name: 45_000, CORE.name: 100_000}
    assert rate.beaten_by(rate.peers[CORE.name])
    assert rate.why


def test_own_objects_and_idle_clients() -> None:
    results = own_objects.results({OURS: [load(10_000, cpu_s=0.9)]})
    assert named(results, "… server CPU each").value == pytest.approx(90)
    (memory,) = idle.results(2000, {OURS: [7.0], CORE.name: [20.0]})
    assert (memory.value, memory.peers) == (7.0, {CORE.name: 20.0})


def test_a_burst_that_not_everybody_got_has_no_time() -> None:
    turns = {
        OURS: [hot.Burst(0.05, 2000, 0.03, 0)],
        CORE.name: [hot.Burst(0.01, 20_000, 0.01, 7)],
    }
    time, messages, _ = hot.results(20, turns)
    assert (time.value, time.peers) == (50.0, {})
    assert (messages.value, messages.peers) == (2.0, {CORE.name: 20.0})


def test_offline_says_who_stays_stale() -> None:
    back = offline.Return(2.0, 0.5, 5000, 150_000, 7_000_000, 0, 1.0, 0.3)
    lost = offline.Return(2.0, 0.1, 0, 0, 0, 5000, 0.1, 0.1)
    results = offline.results(20_000, {OURS: [back], CORE.name: [lost]})
    assert named(results, "until all are fresh").note.endswith("never: NATS core")
    assert named(results, "client × object that stay stale").peers == {CORE.name: 100.0}
    assert named(results, "server CPU for each update, nobody there").value == 50.0
    assert named(results, "messages").peers == {}  # to lose them all is not better
    assert {result.at for result in results} == {20_000}


def test_killed() -> None:
    turns = {
        OURS: [killed.Recovery(1.0, 1.5, 0)],
        CORE.name: [killed.Recovery(0.1, 0.2, 500)],
    }
    fresh, listens, lost = killed.results(turns)
    assert (fresh.value, fresh.peers) == (1.5, {})
    assert listens.peers == {CORE.name: 0.1}
    assert (lost.value, lost.peers) == (0.0, {CORE.name: 10.0})


def test_limits() -> None:
    held = limits.Held(60_000, 20.0, 30.0, 600 * 2**20, 0.3, 2.0, 25.0, 28.0, 0, 6)
    results = limits.results(held)
    assert results[0].met
    assert named(results, "… memory each, over all processes").value == pytest.approx(10.24)
    assert named(results, "… CPU each, idle").value == pytest.approx(5)
    with pytest.raises(RuntimeError, match="stay stale"):
        limits.results(limits.Held(60_000, 20.0, 30.0, 1, 0.3, 2.0, 25.0, 28.0, 3, 6))
