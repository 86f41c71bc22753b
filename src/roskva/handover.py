"""What threads hand over to the event loop.

It is done in the loop's next turn at the latest. A turn may be long, because thousands of sockets
have something to say: whoever hears them looks in between at what is `waiting`, which goes first.
But only once in a turn: else a stream of updates could keep everybody else from being heard.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress


class Handover:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.waiting: deque[Callable[[], object]] = deque()
        self._looked = False
        """In this turn."""

    def put(self, call: Callable[[], object]) -> None:
        """On any thread."""
        self.waiting.append(call)
        with suppress(RuntimeError):  # the loop is gone, and with it everyone who waits
            self._loop.call_soon_threadsafe(self.take)

    def look(self) -> None:
        """In between, on the loop, while no step of a machine is under way."""
        if not self._looked:
            self._looked = True
            self._loop.call_soon(self._next_turn)
            self.take()

    def _next_turn(self) -> None:
        self._looked = False

    def take(self) -> None:
        for _ in range(len(self.waiting)):  # not what comes meanwhile
            call = self.waiting.popleft()
            try:
                call()
            except Exception as error:  # it must not hit whoever looked in between
                self._loop.call_exception_handler({"message": "handed over", "exception": error})
