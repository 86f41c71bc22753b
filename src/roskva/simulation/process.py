"""Virtual time, and a process in it: it can be slow, paused or dead, and its clock drifts."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from roskva.core.effects import Tick

if TYPE_CHECKING:
    from roskva.simulation.world import World

_MIN_TICK = 0.001


class Clock:
    """A heap of things to do, in the order of their moments."""

    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay: float, do: Callable[[], None]) -> None:
        self._count += 1  # equal moments keep the order in which they were asked for
        heapq.heappush(self._heap, (self.now + max(delay, 0.0), self._count, do))

    def run(self, until: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, do = heapq.heappop(heap)
            do()
        self.now = max(self.now, until)


class SimulatedProcess:
    machine: Any = None
    """What runs in the process, if that is a machine of ours."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.alive = False
        self.life = 0
        """Which start of the process this is: what was meant for an earlier one is dropped."""
        self.paused_until = 0.0
        self.slowness = 0.0
        """Seconds that anything takes to reach it."""
        self.rate = 1.0 + world.dice.uniform(-1, 1) * world.swarm.drift
        self.born = 0.0
        self._tick_at = float("inf")

    def now(self) -> float:
        """The process's monotonic clock; it starts anywhere."""
        return 1000.0 + (self.world.clock.now - self.born) * self.rate

    def wall_us(self) -> int:
        return int((self.world.clock.now + self.world.skew_of(self.name)) * 1e6) + 10**15

    def begin(self) -> None:
        self.alive = True
        self.life += 1
        self.born = self.world.clock.now
        self._tick_at = float("inf")

    def end(self) -> None:
        if self.alive:
            self.world.count(self.counters())
        self.alive = False
        self.life += 1

    def counters(self) -> dict[str, int]:
        """What the machines inside have counted in this life."""
        return {}

    def later(self, delay: float, do: Callable[[], None]) -> None:
        """Do it in this life, when the process is not paused."""
        life = self.life

        def when_due() -> None:
            if self.life != life or not self.alive:
                return
            if self.world.clock.now < self.paused_until:
                self.world.clock.after(self.paused_until - self.world.clock.now, when_due)
                return
            do()

        self.world.clock.after(delay, when_due)

    def start(self) -> None:
        raise NotImplementedError

    def crash(self) -> None:
        raise NotImplementedError

    def start_again(self) -> None:
        if not self.alive:
            self.start()

    def step(self, event: Any) -> None:
        for effect in self.machine.step(event, self.now()):
            self.carry_out(effect)
        if self.alive:
            self.set_timer()

    def carry_out(self, effect: Any) -> None:
        raise NotImplementedError

    def deadline(self) -> float | None:
        deadline: float | None = self.machine.next_deadline()
        return deadline

    def set_timer(self) -> None:
        deadline = self.deadline()
        if deadline is None:
            return
        delay = max((deadline - self.now()) / self.rate, _MIN_TICK) + self.slowness
        at = self.world.clock.now + delay
        if at < self._tick_at:
            self._tick_at = at
            self.later(delay, lambda: self._fire(at))

    def _fire(self, at: float) -> None:
        if at == self._tick_at:
            self._tick_at = float("inf")
            self.step(Tick())
