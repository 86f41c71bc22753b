"""Functions of the application that the client calls.

An async function runs on the client's event loop. A plain one may wait for a disk, a database or a
lock, so it has a thread of its own, which ends with it. Nobody waits for such a thread when the
program ends.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from inspect import isawaitable, iscoroutinefunction
from typing import Any, TypeVar

R = TypeVar("R")


async def call(function: Callable[..., R | Awaitable[R]], *args: Any) -> R:
    if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
        found: R | Awaitable[R] = function(*args)
    else:
        found = await _on_thread(function, args)
    return await found if isawaitable(found) else found


async def _on_thread(function: Callable[..., R], args: tuple[Any, ...]) -> R:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Callable[[], R]] = loop.create_future()

    def settle(outcome: Callable[[], R]) -> None:
        if not done.done():  # whoever waited for it has given up
            done.set_result(outcome)

    def run() -> None:
        try:
            found = function(*args)
            outcome = lambda: found  # noqa: E731
        except BaseException as error:
            outcome = _raising(error)
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(settle, outcome)

    threading.Thread(target=run, name="roskva-call", daemon=True).start()
    return (await done)()


def _raising(error: BaseException) -> Callable[[], Any]:
    def outcome() -> Any:
        raise error

    return outcome
