"""Turns, and what becomes of them: medians, ratios, and who has lost something."""

import msgspec
import pytest
from benchmarks import limits, switches
from benchmarks.brokers import fanout, hot, idle, killed, offline, own_objects, peers, subscribers
from benchmarks.brokers.peers import CORE, LIVE, QUEUES, ROSKVA, Peer, absent
from benchmarks.plot import draw
from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Load
from benchmarks.turns import OURS, figure, in_turns, ratio


def load(per_s: float, cpu_s: float = 0.5) -> Load:
    return Load(
        1.0,
        100,
        int(per_s),
        1000,
        2000,
        3000,
        program_p50_us=4000,
        program_p99_us=5000,
        server_cpu_s=cpu_s,
    )


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


def test_who_is_not_installed_has_no_figure_and_the_row_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(peers, "found", lambda program: None if program == "nats-server" else "/it")
    turns: dict[str, list[float]] = {OURS: [1.0], QUEUES.name: [2.0]} | absent(LIVE)
    found = figure("rate", "/s", turns, lambda x: x, note="quick")
    assert found.peers == {QUEUES.name: 2.0}
    assert found.note == "quick; not installed: NATS core, NATS KV"
    assert ratio(found, CORE.name) == []


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
        OURS: [fanout.Turn(load(90_000), load(135_000))],
        QUEUES.name: [fanout.Turn(load(45_000))],
        CORE.name: [fanout.Turn(load(100_000))],
    }
    results = fanout.results(turns, {peer: [load(10_000)] for peer in turns})
    to_mosquitto = [r.value for r in results if r.name == "… to Mosquitto QoS 1"]
    assert to_mosquitto[:2] == [2.0, 3.0]
    rate = named(results, "deliveries to 1,000 subscribers")
    assert rate.peers == {QUEUES.name: 45_000, CORE.name: 100_000}
    assert rate.beaten_by(rate.peers[CORE.name])
    assert rate.why
    p50 = results.index(named(results, "p50 from publish to receipt, 10/s to 1,000"))
    assert [result.value for result in results[p50 : p50 + 3]] == [1.0, 1.0, 4.0]
    assert results[p50 + 2].name == "… by its program's clock"


def test_fan_out_by_subscribers() -> None:
    assert subscribers.SUBSCRIBERS == (1, 3, 10, 30, 100, 300, 1000, 3000)
    busy = msgspec.structs.replace(load(9000), generator_cpu_s=0.95)
    results = [
        result
        for number in subscribers.SUBSCRIBERS
        for result in subscribers.results(
            number,
            {
                OURS: [{1: load(1000.0 * number), 16: load(2000.0 * number)}],
                QUEUES.name: [{1: load(5000), 16: busy}],
                CORE.name: [],
            },
        )
    ]
    one = [result for result in results if result.name == "deliveries, one update in flight"]
    assert [result.at for result in one] == [*subscribers.SUBSCRIBERS]
    assert [result.value for result in one[:2]] == [1000, 3000]
    assert one[0].beaten_by(one[0].peers[QUEUES.name])
    assert all(result.why for result in results)
    held_up = f"their clients used a whole core: {QUEUES.name}"
    assert {result.note for result in results} == {f"{held_up}; not installed: NATS core"}
    (plot,) = subscribers.PLOTS
    drawn = draw(plot, results)
    assert drawn is not None
    assert drawn.count("stroke-dasharray") == 3  # of both servers, and in the legend


def test_switches_say_what_each_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switches, "what_is_missing", lambda: "There is no Java.")
    results = switches.results({OURS: [load(2000)], "with prober": [load(1000)]})
    assert [result.value for result in results] == [1.0, 4.0, 2.0, 5.0, 250.0]
    assert results[-1].peers == {"with prober": 500.0}
    assert {result.note for result in results} == {"with pipeline: There is no Java."}
    assert not any(result.beaten_by(0.0) for result in results)


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
