"""Handlers: a function of the application for one object.

A handler that returns has taken over what it was told, which is then acked. One that raises has
not: that is logged, and it is told again after a while, which doubles each time up to the client's
longest backoff. Of each object one call runs at a time, and what waits behind it is the newest
notification only. An object with a handler stays registered: a registration that failed for the
moment is made again by itself, with the same backoff.

Objects do not wait for each other, but for a place: only so many handlers run at once, or a new
epoch would become as many questions to the application's source. A handler that has not returned
after some seconds gives its place up, so none waits for ever because others hang.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from roskva.client.callables import call
from roskva.client.events import News, covers
from roskva.core.backoff import Dice
from roskva.core.client import ClientConfig
from roskva.core.effects import RegistrationFailure
from roskva.model import Key

Handler = Callable[[News], object]

PLACES: Final = 32
"""Handlers that run at once."""
PLACE_S: Final = 10.0
"""For so long a handler keeps its place."""

_log = logging.getLogger(__name__)


class _Lane:
    """Of one object, until it has another handler or none."""

    __slots__ = ("failures", "handler", "refusals", "register_again", "running", "task", "waiting")

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.waiting: News | None = None
        self.running: News | None = None
        self.task: asyncio.Task[None] | None = None
        self.failures = 0
        self.register_again: asyncio.TimerHandle | None = None
        self.refusals = 0


class Handlers:
    def __init__(
        self,
        tasks: asyncio.TaskGroup,
        ack: Callable[[News], None],
        register: Callable[[Key], None],
        config: ClientConfig,
        dice: Dice,
    ) -> None:
        self._tasks = tasks
        self._ack = ack
        self._register = register
        self._config = config
        self._dice = dice
        self._lanes: dict[Key, _Lane] = {}
        self._places = asyncio.Semaphore(PLACES)
        self._working: set[asyncio.Task[None]] = set()
        """Also of lanes that are no more."""

    def __contains__(self, key: Key) -> bool:
        return key in self._lanes

    def add(self, key: Key, handler: Handler) -> News | None:
        """In place of the one it had; returns what that has not taken over."""
        left = self.remove(key)
        self._lanes[key] = _Lane(handler)
        return left

    def remove(self, key: Key) -> News | None:
        """What its handler is doing is not acked any more."""
        lane = self._lanes.pop(key, None)
        if lane is None:
            return None
        self._stay_unregistered(lane)
        left = lane.waiting or lane.running
        lane.waiting = lane.running = None
        return left

    def put(self, news: News) -> None:
        lane = self._lanes[news.object]
        if news == lane.running:  # told again, because it is not acked yet
            return
        lane.waiting = news
        if lane.task is None:
            lane.task = self._tasks.create_task(self._work(lane))
            self._working.add(lane.task)
            lane.task.add_done_callback(self._working.discard)

    def forget(self, key: Key) -> None:
        """What was told of an object does not concern the application any more."""
        lane = self._lanes.get(key)
        if lane is not None:
            lane.waiting = lane.running = None

    def registered(self, key: Key) -> None:
        if (lane := self._lanes.get(key)) is not None:
            lane.refusals = 0

    def refused(self, failure: RegistrationFailure) -> None:
        lane = self._lanes.get(failure.object)
        if lane is None:
            return
        self.forget(failure.object)
        if not failure.transient:
            _log.warning("an object with a handler cannot be registered: %s", failure.code)
            return
        self._stay_unregistered(lane)
        delay = self._delay(lane.refusals)
        lane.refusals += 1
        loop = asyncio.get_running_loop()
        lane.register_again = loop.call_later(delay, self._register, failure.object)

    def _stay_unregistered(self, lane: _Lane) -> None:
        if lane.register_again is not None:
            lane.register_again.cancel()

    def close(self) -> None:
        for lane in self._lanes.values():
            self._stay_unregistered(lane)
        for task in self._working:
            task.cancel()

    async def _work(self, lane: _Lane) -> None:
        while lane.waiting is not None:
            try:
                async with self._place():
                    await self._handle(lane)
            except (Exception, asyncio.CancelledError) as error:
                if _is_cancelled():
                    raise
                await self._wait_after(error, lane)
        lane.task = None

    async def _handle(self, lane: _Lane) -> None:
        news, lane.waiting = lane.waiting, None
        if news is None:  # forgotten while there was no place
            return
        lane.running = news
        await call(lane.handler, news)
        lane.failures = 0
        if lane.running is not None:  # and not forgotten meanwhile
            lane.running = None
            self._ack(news)
            if covers(news, lane.waiting):
                lane.waiting = None

    async def _wait_after(self, error: BaseException, lane: _Lane) -> None:
        delay = self._delay(lane.failures)
        lane.failures += 1
        _log.error("a handler raised; it is told again in %.1f s", delay, exc_info=error)
        lane.waiting = lane.waiting or lane.running
        lane.running = None
        await asyncio.sleep(delay)

    def _delay(self, tries: int) -> float:
        config = self._config
        return self._dice.smear(min(config.backoff_first * 2 ** min(tries, 30), config.backoff_cap))

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        await self._places.acquire()
        kept = True

        def give_up() -> None:
            nonlocal kept
            if kept:
                kept = False
                self._places.release()

        timer = asyncio.get_running_loop().call_later(PLACE_S, give_up)
        try:
            yield
        finally:
            timer.cancel()
            give_up()


def _is_cancelled() -> bool:
    """This task, and not something that the handler waited for."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
