"""Tests that are coroutines: each on a loop of its own, in bounded time, leaving no task behind."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")

PATIENCE_S = 180.0


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_within(PATIENCE_S, test(*args, **kwargs))

    return run


def run_within(patience_s: float, test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(_bounded(patience_s, test))


async def _bounded(patience_s: float, test: Coroutine[Any, Any, None]) -> None:
    async with asyncio.timeout(patience_s):
        await test
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"left behind: {left}"


async def until(condition: Callable[[], bool]) -> None:
    """Within the test's patience."""
    while not condition():  # noqa: ASYNC110  # what is awaited has no event of its own
        await asyncio.sleep(0.001)
