"""What a scenario is played on: virtual time, wires that can be held, and a trace of what passes.

Every message is traced when it is sent and arrives after a fixed delay, in order. A wire is named
by its ends (`r1>alice`, `shard>store`, `feed>shard`); while it is held, what is sent on it waits.
"""

from collections.abc import Callable
from random import Random
from typing import Final

import msgspec
from tests.scenarios.notation import Notation

from roskva.core.backoff import Rate
from roskva.core.identity import TokenKeys
from roskva.simulation.process import Clock

KINDS: Final = ("clients", "links", "storage")
WIDTH: Final = 110
_COLUMN: Final = 20
_QUIET: Final = 3.0
_PATIENCE: Final = 600.0
_DELAYS: Final = {"clients": 0.010, "links": 0.001, "storage": 0.001}
_SECRET: Final = b"not a secret but a scenario's !!"

Ends = tuple[str, str]


class ScriptError(Exception):
    """The script asks for what cannot be."""


class Settings(msgspec.Struct, frozen=True):
    """Times are in seconds."""

    shards: int = 1
    handshakes: Rate = Rate(1000, 1000)
    heartbeat: float = 1200.0
    high_water: int = 200
    """Unread bytes above which a client lags."""


class Trace:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.kinds: frozenset[str] = frozenset(KINDS)
        self.lines: list[str] = []
        self.muted: set[str] = set()
        """Nodes of which nothing is told one by one."""
        self.said_at = 0.0

    def say(self, kind: str, who: str, text: str) -> None:
        if kind not in self.kinds or not self.muted.isdisjoint(who.split()):
            return
        passed = self.clock.now - self.said_at
        if passed >= 1.0:
            self.lines.append(f"    ({passed:.0f}s later)")
        self.said_at = self.clock.now
        self.lines += _wrapped(f"{who:<{_COLUMN - 2}}  {text}")

    def take(self) -> list[str]:
        lines, self.lines = self.lines, []
        self.said_at = self.clock.now
        return lines


class Wires:
    def __init__(self, clock: Clock, trace: Trace) -> None:
        self.clock = clock
        self.trace = trace
        self.held: dict[Ends, list[tuple[str, str, Callable[[], None]]]] = {}
        self.busy_at = 0.0

    def send(
        self, kind: str, ends: Ends, text: str, arrive: Callable[[], None], told: bool = False
    ) -> None:
        """An empty text is routine and never told; `told`: somebody else has said it."""
        if ends in self.held:
            self.held[ends].append((kind, text, arrive))
            if text:
                self.trace.say(kind, " > ".join(ends), f"{text} (held)")
            return
        if text:
            self.busy_at = self.clock.now
            if not told:
                self.trace.say(kind, " > ".join(ends), text)
        self.clock.after(_DELAYS[kind], arrive)

    def hold(self, ends: Ends) -> None:
        if ends in self.held:
            raise ScriptError(f"{'>'.join(ends)} is held already")
        self.held[ends] = []

    def release(self, ends: Ends) -> None:
        for kind, text, arrive in self._let_go(ends):
            self.send(kind, ends, text and f"{text} (released)", arrive)

    def lose(self, ends: Ends) -> None:
        for kind, text, _ in self._let_go(ends):
            if text:
                self.trace.say(kind, " > ".join(ends), f"{text} (lost)")

    def _let_go(self, ends: Ends) -> list[tuple[str, str, Callable[[], None]]]:
        if ends not in self.held:
            raise ScriptError(f"{'>'.join(ends)} is not held")
        return self.held.pop(ends)


class Cluster:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.clock = Clock()
        self.trace = Trace(self.clock)
        self.wires = Wires(self.clock, self.trace)
        self.notation = Notation()
        self.dice = Random(1)
        self.keys = TokenKeys({1: _SECRET}, 1)

    def wall_us(self) -> int:
        return int(self.clock.now * 1e6) + 10**15

    def run(self, seconds: float) -> None:
        self.clock.run(self.clock.now + seconds)

    def settle(self) -> None:
        """Until nothing has been said for a while, pings aside."""
        begun = self.wires.busy_at = self.clock.now
        while self.clock.now < self.wires.busy_at + _QUIET:
            if self.clock.now > begun + _PATIENCE:
                raise ScriptError(f"not quiet after {_PATIENCE:.0f}s")
            self.run(0.1)


class Node:
    """A process: it lives and dies, and its machines are woken when their deadlines come."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.alive = False
        self.life = 0
        self._wake_at = float("inf")

    def now(self) -> float:
        return self.cluster.clock.now

    def begin(self) -> None:
        if self.alive:
            raise ScriptError(f"{self.name} is running already")
        self.alive = True
        self.life += 1
        self._wake_at = float("inf")

    def end(self) -> None:
        if not self.alive:
            raise ScriptError(f"{self.name} is not running")
        self.alive = False
        self.life += 1

    def in_this_life(self, do: Callable[[], None]) -> Callable[[], None]:
        life = self.life
        return lambda: do() if self.life == life else None

    def after(self, delay: float, do: Callable[[], None]) -> None:
        self.cluster.clock.after(delay, self.in_this_life(do))

    def wake_at(self, deadline: float | None) -> None:
        if deadline is None or deadline >= self._wake_at:
            return
        at = self._wake_at = max(deadline, self.now() + 1e-6)
        self.after(at - self.now(), lambda: self._wake(at))

    def _wake(self, at: float) -> None:
        if at == self._wake_at:
            self._wake_at = float("inf")
            self.tick()

    def start(self) -> None:
        raise NotImplementedError

    def crash(self) -> None:
        raise NotImplementedError

    def tick(self) -> None:
        raise NotImplementedError


def _wrapped(line: str) -> list[str]:
    lines = []
    while len(line) > WIDTH:
        cut = _last_seam(line[:WIDTH])
        if cut <= _COLUMN:
            break
        lines.append(line[:cut].rstrip())
        line = " " * (_COLUMN + 2) + line[cut:].lstrip()
    return [*lines, line]


def _last_seam(line: str) -> int:
    """Where a line may be cut: after a comma that is not inside brackets."""
    seam = depth = 0
    for i, char in enumerate(line):
        depth += (char in "{[(") - (char in "}])")
        if char == "," and not depth:
            seam = i + 1
    return seam
