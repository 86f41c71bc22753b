"""Tests that are coroutines: each on a loop of its own, in bounded time, leaving no task behind."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")

PATIENCE_S = 180.0
_A_MOMENT_S = 0.01
"""For what is on its way over loopback, in virtual time."""


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_within(PATIENCE_S, test(*args, **kwargs))

    return run


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Where a test judges what somebody waits for, and not the machine."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualTime) as runner:
            runner.run(_bounded(PATIENCE_S, test(*args, **kwargs)))

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


class VirtualTime(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer whenever nothing arrives."""

    def __init__(self) -> None:
        super().__init__()
        self._ahead = 0.0
        selector = self._selector  # type: ignore[attr-defined]
        select = selector.select

        def jump(timeout: float | None = None) -> list[Any]:
            ready: list[Any] = select(timeout and min(timeout, _A_MOMENT_S))
            if timeout and not ready:
                self._ahead += timeout
            return ready

        selector.select = jump

    def time(self) -> float:
        return super().time() + self._ahead
