"""A node is killed, and all its clients come back in the same moment."""

import asyncio
import sys
from collections.abc import Callable

import pytest
from tests.loops import run_within
from tests.serving.herd import Herd
from tests.serving.nodes import Node

StartNode = Callable[..., Node]
KEY = "test/herd"


def test_hundreds_come_back_at_once_and_none_is_lost(start_node: StartNode) -> None:
    run_within(120.0, _scenario(start_node(), 300))


@pytest.mark.verify
def test_five_thousand_come_back_at_once_and_none_is_lost(start_node: StartNode) -> None:
    run_within(400.0, _scenario(start_node(), 5000))


async def _scenario(node: Node, count: int) -> None:
    await asyncio.to_thread(node.publish, KEY, 1)
    async with Herd(node.port, KEY, count) as herd:
        came_s = await herd.until(lambda: herd.told(1) == count and herd.back() == count, 120.0)
        first_time, herd.turned_away = herd.turned_away, 0
        await asyncio.to_thread(node.kill)
        await herd.until(lambda: herd.back() == 0, 30.0)
        await asyncio.to_thread(node.start)
        back_s = await herd.until(lambda: herd.back() == count, 120.0)
        status = await asyncio.to_thread(node.status)
        pause_ms = max(process["longest_lag_ms"] for process in status["processes"])
        await asyncio.to_thread(node.publish, KEY, 2)
        told_s = await herd.until(lambda: herd.told(2) == count, 60.0)
        assert herd.back() == count
        assert herd.wrong == 0
    sys.stderr.write(
        f"herd of {count}: came in {came_s:.1f} s ({first_time} turned away); after kill -9 all "
        f"back in {back_s:.1f} s from when the node was ready ({herd.turned_away} turned away), "
        f"the loop's longest pause {pause_ms} ms; all told of the next update in {told_s:.2f} s\n"
    )
