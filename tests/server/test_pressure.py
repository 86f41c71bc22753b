"""When load is shed, and when no more: by measurements that the tests make up."""

import asyncio
import time

import pytest

from roskva.config import LimitsConfig
from roskva.server.pressure import (
    BAD_IN_A_ROW,
    GOOD_IN_A_ROW,
    LOOK_S,
    Memory,
    Pressure,
    measure_lag,
    measured_memory,
)

GIB = 1 << 30
PLENTY = Memory(100 << 20, 8 * GIB, 16 * GIB)
BAD_S, FAIR_S, GOOD_S = 0.6, 0.4, 0.01


def pressure(**limits: int) -> tuple[Pressure, list[bool]]:
    changes: list[bool] = []
    return Pressure(LimitsConfig(**limits), changes.append), changes


def test_one_long_pause_is_an_accident() -> None:
    found, changes = pressure()
    for _ in range(10):
        found.measured(5.0)
        found.measured(GOOD_S)
    assert not changes
    assert found.longest_lag_s == 5.0


def test_a_lag_that_stays_sheds_load_and_ends_later_than_it_began() -> None:
    found, changes = pressure()
    for _ in range(BAD_IN_A_ROW):
        assert not found.shedding
        found.measured(BAD_S)
    assert changes == [True]
    for _ in range(GOOD_IN_A_ROW - 1):
        found.measured(GOOD_S)
    found.measured(FAIR_S)  # not good enough: it begins anew
    for _ in range(GOOD_IN_A_ROW):
        assert found.shedding
        found.measured(GOOD_S)
    assert changes == [True, False]


@pytest.mark.parametrize(
    "short",
    [Memory(3 * GIB, 8 * GIB, 16 * GIB), Memory(100 << 20, GIB // 4, 16 * GIB)],
    ids=["this process", "the machine"],
)
def test_short_memory_sheds_load_until_there_is_more(short: Memory) -> None:
    found, changes = pressure(max_memory_bytes=2 * GIB)
    found.measured(GOOD_S, PLENTY)
    assert not changes
    found.measured(GOOD_S, short)
    for _ in range(BAD_IN_A_ROW):
        found.measured(GOOD_S)  # the memory is looked at less often
    assert changes == [True]
    found.measured(GOOD_S, PLENTY)
    for _ in range(GOOD_IN_A_ROW):
        found.measured(GOOD_S)
    assert changes == [True, False]


def test_the_memory_of_this_machine_is_known() -> None:
    memory = measured_memory()
    assert 1 << 20 < memory.used < memory.total
    assert 0 < memory.free < memory.total


def test_a_loop_that_is_held_up_is_noticed() -> None:
    async def scenario() -> list[bool]:
        found, changes = pressure(max_lag_ms=50)
        measuring = asyncio.create_task(measure_lag(found.late_by))
        for _ in range(10 * BAD_IN_A_ROW):
            time.sleep(LOOK_S + 0.1)  # noqa: ASYNC251  # on purpose: nothing else can run
            await asyncio.sleep(0)
            if changes:
                break
        measuring.cancel()
        return changes

    assert asyncio.run(scenario()) == [True]
