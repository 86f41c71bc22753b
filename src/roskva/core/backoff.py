"""Waiting: retries that spread out, timers that do not march in step, rates that hold.

Random bits come in as a seed; `Dice` stretches them (SplitMix64). It decides when, never whom to
trust: nothing secret is drawn from it.
"""

from collections import deque

import msgspec

from roskva.errors import BadConfig

_MASK = 2**64 - 1


class Dice:
    __slots__ = ("state",)

    def __init__(self, seed: int) -> None:
        self.state = seed & _MASK

    def bits(self) -> int:
        """64 of them."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
        return z ^ z >> 31

    def fraction(self) -> float:
        """In [0, 1)."""
        return (self.bits() >> 11) / (1 << 53)

    def smear(self, delay: float) -> float:
        """The delay, 20 % more or less."""
        return delay * (0.8 + 0.4 * self.fraction())


class Backoff:
    """The first try goes at once; the next waits anywhere in [0, max), max doubling to a cap."""

    __slots__ = ("cap", "ceiling", "first", "tries")

    def __init__(self, first: float, cap: float) -> None:
        self.first = first
        self.cap = cap
        self.reset()

    def reset(self) -> None:
        self.ceiling = self.first
        self.tries = 0

    def next_delay(self, dice: Dice) -> float:
        self.tries += 1
        if self.tries == 1:
            return 0.0
        delay = dice.fraction() * self.ceiling
        self.ceiling = min(self.ceiling * 2, self.cap)
        return delay


class Rate(msgspec.Struct, frozen=True):
    """At most `count` in any `window_ms`."""

    count: int
    window_ms: int

    def __post_init__(self) -> None:
        if self.count < 1 or self.window_ms < 1:
            raise BadConfig(f"a rate of {self.count} in {self.window_ms} ms: both are 1 or more")


class RateLimit:
    """Remembers the last `count` events; none may be younger than the window when the next goes."""

    __slots__ = ("_times", "_window")

    def __init__(self, rate: Rate) -> None:
        self._window = rate.window_ms / 1000
        self._times: deque[float] = deque([-self._window] * rate.count, maxlen=rate.count)

    def free_at(self) -> float:
        return self._times[0] + self._window

    def take(self, now: float) -> bool:
        if now < self.free_at():
            return False
        self._times.append(now)
        return True
