"""What benchmarks compute of what they measured."""

import pytest
from benchmarks.coldnotify.latency import growth
from benchmarks.result import Result
from benchmarks.serving import figure, ratio
from benchmarks.serving.generator import Load
from benchmarks.thialfi import must_not_rise, share_within


def load(deliveries: int, cpu_s: float = 1.0) -> Load:
    return Load(2.0, 10, deliveries, 100.0, 200.0, 300.0, server_cpu_s=cpu_s)


def test_a_figure_is_the_median_and_keeps_every_run() -> None:
    loads = {
        "Roskva": [load(10), load(400), load(20)],
        "Mosquitto": [load(20), load(40), load(10)],
    }
    found = figure("deliveries", "/s", loads, lambda load: load.per_s)
    assert found.value == 10.0
    assert found.peers == {"Mosquitto": 10.0}
    assert found.runs["Roskva"] == [5.0, 200.0, 10.0]


def test_a_ratio_is_the_median_of_the_ratios_of_turns() -> None:
    of = Result("x", 0, "/s", runs={"Roskva": [2.0, 9.0, 8.0], "Mosquitto": [1.0, 1.0, 8.0]})
    [found] = ratio(of)
    assert found.value == 2.0
    assert found.note == "1.00 to 9.00"
    assert ratio(of, "nobody") == []


def test_growth_is_the_slope_of_milliseconds_in_microseconds() -> None:
    found = growth("latency", [(0.0, 1.0), (1000.0, 2.5), (2000.0, 4.0)], theirs=1.51)
    assert found.value == pytest.approx(1.5)
    assert not found.beaten_by(1.51)


@pytest.mark.parametrize(("last", "met"), [(5.4, True), (6.0, False)])
def test_a_cost_that_rises_with_load_misses_its_target(last: float, met: bool) -> None:
    results = [Result("cost", value, "µs", at=i) for i, value in enumerate((5.0, 9.0, last))]
    assert must_not_rise(results, "cost", "3 × the load").met is met


def test_the_share_within_a_time() -> None:
    assert share_within([10.0, 20.0, 30.0, 2e6], 1e6) == 0.75


@pytest.mark.parametrize(
    ("better", "value", "met"),
    [("lower", 1.0, True), ("lower", 1.1, False), ("higher", 1.0, True), ("higher", 0.9, False)],
)
def test_a_target_is_met_by_what_is_as_good(better: str, value: float, met: bool) -> None:
    result = Result("x", value, "s", 1.0, better)  # type: ignore[arg-type]
    assert result.met is met
