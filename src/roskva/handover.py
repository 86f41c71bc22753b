"""What threads hand over to the event loop: it goes before anything else that is to be done.

It is done in the loop's next turn at the latest. A turn may be long, because thousands of sockets
have something to say. So whoever steps a machine takes first what is `waiting`: all of it, as one
batch, and not while a step of another machine is under way, whose effects come first.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress


class Handover:
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.waiting: deque[Callable[[], object]] = deque()
        self.busy = False
        """A machine is being stepped, or this is being taken."""

    def put(self, call: Callable[[], object]) -> None:
        """On any thread."""
        self.waiting.append(call)
        with suppress(RuntimeError):  # the loop is gone, and with it everyone who waits
            self._loop.call_soon_threadsafe(self.take)

    def take(self) -> None:
        """On the loop."""
        if self.busy or not self.waiting:
            return
        self.busy = True
        try:
            for _ in range(len(self.waiting)):  # not what comes meanwhile
                self._do(self.waiting.popleft())
        finally:
            self.busy = False

    def _do(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # it must not hit whoever took it, nor what follows
            self._loop.call_exception_handler({"message": "handed over", "exception": error})
