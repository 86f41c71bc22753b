"""Answers that come by a call.

On the way of every update nobody waits for a future: each would put off what follows to the next
turn of the event loop, and a busy loop has long ones.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from roskva.errors import RoskvaError

T = TypeVar("T")
Answered = Callable[[T | RoskvaError], None]
"""What is called with it, once and on the event loop."""


async def answer_of(ask: Callable[[Answered[T]], None]) -> T:
    """For whoever would rather wait."""
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def answered(found: T | RoskvaError) -> None:
        if answer.done():  # whoever waited for it has given up
            return
        if isinstance(found, RoskvaError):
            answer.set_exception(found)
        else:
            answer.set_result(found)

    ask(answered)
    return await answer
