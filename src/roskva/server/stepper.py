"""The effect loop: events into a state machine of the core, its effects out, one step at a time.

An effect may lead to the next event before the step it belongs to is done: such events wait in line
until all effects of that step are carried out. A machine's deadline is one timer; it is moved
forward when the machine asks for less time, and looked at again when it fires.

What threads have handed over goes before every event from outside, also of another machine.

A machine that raises is broken: nobody knows what it would do next. `broken` is told, and takes the
process down; whatever it knew that mattered is on disk.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from roskva.core.effects import Effect, Event, Tick
from roskva.handover import Handover

_NEVER: Final = float("inf")
_TICK: Final = Tick()


class Machine(Protocol):
    def step(self, event: Event, now: float) -> list[Effect]: ...


class Stepper:
    def __init__(
        self,
        machine: Machine,
        carry_out: Callable[[Effect], None],
        deadline: Callable[[], float | None],
        broken: Callable[[Exception], None],
        handover: Handover | None = None,
    ) -> None:
        self._machine = machine
        self._carry_out = carry_out
        self._deadline = deadline
        self._broken = broken
        self._handover = handover or Handover()
        self._loop = asyncio.get_running_loop()
        self._events: deque[Event] = deque()
        self._stepping = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER
        self._stopped = False

    def step(self, event: Event) -> None:
        if self._stepping:
            self._events.append(event)
        else:
            self.work(self._run, event)

    def work(self, work: Callable[..., None], *arguments: object) -> None:
        """Of those who carry effects out, later: events that it leads to wait until it is done."""
        handover = self._handover
        handover.take()
        if self._stopped:
            return
        outermost, handover.busy = not handover.busy, True
        self._stepping = True
        try:
            work(*arguments)
            if self._events:
                self._run(self._events.popleft())
        except Exception as error:
            self.stop()
            self._broken(error)
        finally:
            self._stepping = False
            if outermost:
                handover.busy = False

    def stop(self) -> None:
        self._stopped = True
        self._events.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _run(self, event: Event) -> None:
        machine, carry_out, events = self._machine, self._carry_out, self._events
        while True:
            now = time.monotonic()
            for effect in machine.step(event, now):
                carry_out(effect)
            if not events:
                break
            event = events.popleft()
        deadline = self._deadline()
        if deadline is not None and deadline < self._timer_at:
            self._set_timer(deadline, now)

    def _set_timer(self, deadline: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - now), self._fire)

    def _fire(self) -> None:
        self._timer, self._timer_at = None, _NEVER
        now = time.monotonic()
        deadline = self._deadline()
        if deadline is not None and deadline > now:  # it has moved back meanwhile
            self._set_timer(deadline, now)
        else:
            self.step(_TICK)
