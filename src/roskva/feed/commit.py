"""Group commit: many publishers on an event loop, one thread, one sync for all who wait.

The thread takes whoever is waiting, appends, commits and answers. While it syncs, the next group
gathers by itself. When it is idle, a publish is committed at once. Under load (the last group had
more than one publisher) it gives the others up to `max_wait_s` to join, but goes as soon as there
are as many as last time: a publisher that waits for its answer before it publishes again would
otherwise be split from the rest for ever.

All feeds of a process share the thread: what is published to several of them at once is one round.
They are written one after the other and synced side by side, so a round takes as long as a sync.
A thread for each would do the same work, and wait for the interpreter's lock four times as often.

The thread needs little of a processor, and what waits for it is worth more than what it interrupts:
the event loop would rather tell of an update than read one more ack. So it goes ahead of all others
where the system lets it (docs/operations.md). Else, with one core for both, it may wait for
milliseconds twice per round.

Between rounds the thread tidies, a slice at a time, and no longer goes ahead.
"""

import asyncio
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from roskva.answer import Answered, answer_of
from roskva.errors import Overloaded, RoskvaError, Unavailable
from roskva.feed.base import Committed, Marker
from roskva.feed.log import MAX_GROUP_ROWS, Log
from roskva.metrics import Times
from roskva.model import Update

_log = logging.getLogger(__name__)
_HELPERS: Final = 31
"""With more feeds than that, some wait for others."""


def wall_clock_us() -> int:
    return time.time_ns() // 1000


class _Waiting(NamedTuple):
    feed: "GroupCommit"
    request: int
    updates: Sequence[Update]


class _Group:
    """Those who wait for the same sync of a feed. After a step that fails there is no other."""

    __slots__ = ("feed", "outcome", "waiting")

    def __init__(self, feed: "GroupCommit") -> None:
        self.feed = feed
        self.waiting: list[_Waiting] = []
        self.outcome: Committed | RoskvaError | None = None

    def attempt(self, step: Callable[..., None], *arguments: object) -> None:
        if self.outcome is None:
            try:
                step(*arguments)
            except Exception as error:
                self.outcome = _known(error)

    def write(self, now_us: int) -> None:
        log = self.feed.log
        for one in self.waiting:
            log.append(one.updates)
        log.write(now_us)

    def sync(self) -> None:
        self.feed.log.sync()

    def finish(self) -> None:
        self.outcome = self.feed.log.finish()


_Round = dict["GroupCommit", _Group]
Answer = Callable[[Committed | RoskvaError, list[int]], None]
_Call = Callable[[], None]


class GroupCommit:
    """The asynchronous side of a Log, which it owns from now on.

    `answer` is called on the event loop, once per group and in the order of the offsets: with what
    became of it, and with its requests in the order of their updates. Not from within `append`.
    """

    def __init__(self, log: Log, committer: "Committer", answer: Answer) -> None:
        self.log = log
        self.last_group = 0
        self.tidy_at = 0.0
        """These are the thread's."""
        self.times = Times()
        """Of appending a group, until it is durable."""
        self._committer = committer
        self._answer = answer
        self._waiting_rows = 0
        self._closed: asyncio.Future[None] | None = None
        committer.enter(self)

    def append(self, request: int, updates: Sequence[Update]) -> None:
        if self._closed is not None:
            self._refuse(request, Unavailable("the feed is closed"))
        elif self._waiting_rows + len(updates) > MAX_GROUP_ROWS:
            self._refuse(request, Overloaded("too many updates wait for the disk"))
        else:
            self._waiting_rows += len(updates)
            self._committer.put(_Waiting(self, request, updates))

    def _refuse(self, request: int, why: RoskvaError) -> None:
        asyncio.get_running_loop().call_soon(self._answer, why, [request])

    def set_marker(self, name: str, marker: Marker, answered: Answered[None]) -> None:
        if self._closed is not None:
            answered(Unavailable("the feed is closed"))
        else:
            self._committer.call(lambda: self.log.set_marker(name, marker), answered)

    async def close(self) -> None:
        """Commits what was published before, then closes the log."""
        if self._closed is None:
            self._closed = asyncio.ensure_future(answer_of(partial(self._committer.leave, self)))
        await asyncio.shield(self._closed)
        self._committer.join()

    def answer(self, group: _Group) -> None:
        assert group.outcome is not None
        self._waiting_rows -= sum(len(one.updates) for one in group.waiting)
        self._answer(group.outcome, [one.request for one in group.waiting])


class Handover:
    """What threads hand over to the event loop: it goes before anything else that is to be done.

    It is done in the loop's next turn at the latest. A turn may be long, because thousands of
    sockets have something to say. So whoever steps a host takes first what is `waiting`: once in a
    turn, all of it as one batch, and not while a step of another host is under way, whose effects
    come first.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.waiting: deque[Callable[[], object]] = deque()
        self.busy = False
        """A machine is being stepped, or this is being taken."""
        self._taken_first = False
        """In this turn."""

    def put(self, call: Callable[[], object]) -> None:
        """On any thread."""
        self.waiting.append(call)
        with suppress(RuntimeError):  # the loop is gone, and with it everyone who waits
            self._loop.call_soon_threadsafe(self.take)

    def take_first(self) -> None:
        """Ahead of something else, but only once in a turn: a publisher that is answered publishes
        again, and its updates would be committed in ever smaller groups."""
        if self.waiting and not (self._taken_first or self.busy):
            self._taken_first = True
            self._loop.call_soon(self._begin_turn)
            self.take()

    def _begin_turn(self) -> None:
        self._taken_first = False

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


class Committer:
    """The thread, and those that help it sync. It is there while it has feeds."""

    def __init__(
        self,
        *,
        max_wait_s: float = 0.002,
        tidy_every_s: float = 1.0,
        handover: Handover | None = None,
    ) -> None:
        self._max_wait_s = max_wait_s
        self._tidy_every_s = tidy_every_s
        self.handover = handover or Handover()
        self._work: SimpleQueue[_Waiting | _Call | None] = SimpleQueue()
        self._syncs: SimpleQueue[_Group | None] = SimpleQueue()
        self._synced: SimpleQueue[None] = SimpleQueue()
        self._helpers: list[threading.Thread] = []
        self._entered = 0
        self._feeds: list[GroupCommit] = []
        """The thread's, and so is the next."""
        self._tidy_at = 0.0

    # For feeds, on the event loop.

    def enter(self, feed: GroupCommit) -> None:
        if not self._entered:
            self._thread = threading.Thread(target=self._run, name="roskva-feed", daemon=True)
            self._thread.start()
        self._entered += 1
        self._work.put(lambda: self._add(feed))

    def put(self, waiting: _Waiting) -> None:
        self._work.put(waiting)

    def call(self, function: _Call, answered: Answered[None]) -> None:
        """On the thread, after what was put before."""
        self._work.put(lambda: self._answer(function, answered))

    def leave(self, feed: GroupCommit, left: Answered[None]) -> None:
        self.call(lambda: self._remove(feed), left)
        self._entered -= 1
        if not self._entered:
            self._work.put(None)

    def join(self) -> None:
        """If that was the last."""
        if not self._entered:
            self._thread.join()

    # On the thread.

    def _run(self) -> None:
        _go_ahead(True)
        while True:
            waiting, then = self._next_round()
            for feed in self._feeds:
                feed.last_group = len(waiting[feed].waiting) if feed in waiting else 0
            if waiting:
                self._commit(waiting)
            if then is None:
                break
            then()
            if time.monotonic() >= self._tidy_at:
                self._tidy()
        for _ in self._helpers:
            self._syncs.put(None)
        for helper in self._helpers:
            helper.join()
        self._helpers.clear()

    def _next_round(self) -> tuple[_Round, _Call | None]:
        """Whoever is waiting, and what comes after them; None: the end."""
        waiting: _Round = {}
        deadline = None
        wait_s = max(0.0, self._tidy_at - time.monotonic())
        while True:
            try:
                work = self._work.get(wait_s > 0, wait_s)
            except Empty:
                now = time.monotonic()
                deadline = deadline or now + self._max_wait_s
                wait_s = max(0.0, deadline - now) if _incomplete(waiting) else 0.0
                if not wait_s:
                    return waiting, _nothing
                continue
            if not isinstance(work, _Waiting):
                return waiting, work
            group = waiting.get(work.feed)
            if group is None:
                group = waiting[work.feed] = _Group(work.feed)
            group.waiting.append(work)
            wait_s = 0.0

    def _commit(self, waiting: _Round) -> None:
        began, now_us = time.perf_counter(), wall_clock_us()
        first, *others = waiting.values()
        for group in waiting.values():
            group.attempt(group.write, now_us)
        self._have_helpers(len(others))
        for group in others:
            self._syncs.put(group)
        first.attempt(first.sync)
        for _ in others:
            self._synced.get()
        for feed, group in waiting.items():
            group.attempt(group.finish)
            feed.times.observe(time.perf_counter() - began)
            self.handover.put(partial(feed.answer, group))

    def _have_helpers(self, count: int) -> None:
        while len(self._helpers) < min(count, _HELPERS):
            helper = threading.Thread(target=self._help, name="roskva-sync", daemon=True)
            helper.start()
            self._helpers.append(helper)

    def _help(self) -> None:
        while group := self._syncs.get():
            group.attempt(group.sync)
            self._synced.put(None)

    def _answer(self, function: _Call, answered: Answered[None]) -> None:
        failed: RoskvaError | None = None
        try:
            function()
        except Exception as error:
            failed = _known(error)
        self.handover.put(partial(answered, failed))

    def _add(self, feed: GroupCommit) -> None:
        feed.tidy_at = time.monotonic() + self._tidy_every_s
        self._feeds.append(feed)

    def _remove(self, feed: GroupCommit) -> None:
        self._feeds.remove(feed)
        feed.log.close()

    def _tidy(self) -> None:
        """A slice, of the feed that has waited longest."""
        now = time.monotonic()
        feed = min(self._feeds, key=_tidy_at, default=None)
        if feed is not None and now >= feed.tidy_at:
            more = False
            _go_ahead(False)
            try:
                more = feed.log.tidy(wall_clock_us())
            except Exception as error:  # whatever it is, publishing goes on
                _log.warning("tidying the feed: %s", error)
            _go_ahead(True)
            feed.tidy_at = now + (0 if more else self._tidy_every_s)
        self._tidy_at = min(map(_tidy_at, self._feeds), default=now + self._tidy_every_s)


def _incomplete(waiting: _Round) -> bool:
    """Whether somebody is missing who was there the last time."""
    return any(feed.last_group > max(1, len(group.waiting)) for feed, group in waiting.items())


def _tidy_at(feed: GroupCommit) -> float:
    return feed.tidy_at


def _go_ahead(of_others: bool) -> None:
    """This thread, and those it starts."""
    if sys.platform != "linux":
        return
    policy, priority = (os.SCHED_RR, 1) if of_others else (os.SCHED_OTHER, 0)
    with suppress(OSError):  # it is a privilege
        os.sched_setscheduler(0, policy, os.sched_param(priority))


def _nothing() -> None:
    pass


def _known(error: Exception) -> RoskvaError:
    """Whatever it is, publishers must not wait for ever."""
    if isinstance(error, RoskvaError):
        return error
    _log.error("committing to the feed failed", exc_info=error)
    return Unavailable("the feed is out of order")
