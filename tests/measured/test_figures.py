"""What benchmarks compute of what they measured."""

import pytest
from benchmarks.coldnotify.latency import growth
from benchmarks.collection import total_of
from benchmarks.result import Result
from benchmarks.thialfi import must_not_rise, share_within


def test_growth_is_the_slope_of_milliseconds_in_microseconds() -> None:
    found = growth("latency", [(0.0, 1.0), (1000.0, 2.5), (2000.0, 4.0)], theirs=1.51)
    assert found.value == pytest.approx(1.5)
    assert not found.beaten_by(1.51)


def test_a_counter_is_the_total_over_its_labels_and_nothing_that_is_said_of_it() -> None:
    text = (
        "# HELP roskva_x_total Clients that were away for too long.\n"
        "# TYPE roskva_x_total counter\n"
        'roskva_x_total{shard="0"} 3\nroskva_x_total{shard="1"} 4\nroskva_y_total 5\n'
    )
    assert total_of("roskva_x_total", text) == 7


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
