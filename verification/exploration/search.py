"""Breadth first over everything that may happen, to the last state; then: does each one heal?

Safety is judged while states are found. For convergence every state has one *fair* successor: the
first prompt move, or, when there is none, the slow moves one after the other, round after round.
All of them are edges of the explored graph, so following them is a walk over numbers. A walk must
end in a round that leads to itself, and there everybody must be fresh and registered.
"""

import time
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import Final

import msgspec

from roskva.simulation.oracle import Violation
from verification.exploration import judge
from verification.exploration.bounds import CONFIGURATIONS, HUNTING_GROUNDS, Bounds
from verification.exploration.cluster import Cluster
from verification.exploration.moves import Move, Moves
from verification.exploration.state import ExploredState, decode, encode
from verification.mutants import MUTANTS, on_all_cores, planted

MAX_ROUNDS = 20
"""Of slow moves, after which a walk that still goes on counts as endless."""


class Found(msgspec.Struct, frozen=True):
    """A violation, and the shortest way to it."""

    text: str
    trace: list[str]


class Exploration(msgspec.Struct, frozen=True):
    bounds: Bounds
    states: int
    transitions: int
    converged: int
    """States from which everybody became fresh and stayed so."""
    longest: int
    """Fair steps that took, at most."""
    violations: list[Found]
    seconds: float


Patch = Callable[[], AbstractContextManager[None]]


def explore(
    bounds: Bounds, mutate: Patch | None = None, *, first_only: bool = False
) -> Exploration:
    with mutate() if mutate else nullcontext():
        return _Search(bounds, first_only).run()


class _Search:
    def __init__(self, bounds: Bounds, first_only: bool) -> None:
        self.bounds = bounds
        self.first_only = first_only
        self.cluster = Cluster(bounds)
        self.moves = Moves(self.cluster)
        self.numbers: dict[bytes, int] = {}
        self.frontier: deque[tuple[int, bytes]] = deque()
        self.parents = array("q")
        self.by = array("l")
        self.move_numbers: dict[Move, int] = {}
        self.fair = array("q")
        """The fair successor; −1 where all is quiet."""
        self.rounds: dict[int, list[tuple[Move, int]]] = {}
        """Slow moves and where they lead, of the quiet states."""
        self.settled: set[int] = set()
        self.transitions = 0
        self.found: list[Found] = []

    def run(self) -> Exploration:
        started = time.monotonic()
        try:
            self._number(-1, ("start",), self._first())
        except Violation as violation:
            self.found.append(Found(str(violation), ["start"]))
        while self.frontier and not (self.found and self.first_only):
            self._expand(*self.frontier.popleft())
        converged, longest = (0, 0) if self.found else self._walks()
        return Exploration(
            bounds=self.bounds,
            states=len(self.numbers),
            transitions=self.transitions,
            converged=converged,
            longest=longest,
            violations=self.found,
            seconds=time.monotonic() - started,
        )

    def _first(self) -> ExploredState:
        state = self.cluster.initial()
        if self.bounds.warm:
            for _ in range(MAX_ROUNDS):
                self._calm(state)
                if self._is_settled(state):
                    break
                for move in self.moves.slow(state):
                    self.moves.perform(state, move)
                    self._calm(state)
        return state

    def _is_settled(self, state: ExploredState) -> bool:
        cluster = self.cluster
        return judge.is_settled(state, self.bounds, cluster.clients.facts, cluster.registrars.facts)

    def _calm(self, state: ExploredState) -> None:
        while prompt := self.moves.prompt(state):
            self.moves.perform(state, prompt[0])

    # Finding states.

    def _expand(self, number: int, blob: bytes) -> None:
        state = decode(blob)
        prompt = self.moves.prompt(state)
        if prompt:
            targets = [self._follow(number, blob, move) for move in prompt]
            self.fair[number] = targets[0]
        else:
            slow = self.moves.slow(state)
            self.rounds[number] = [(move, self._follow(number, blob, move)) for move in slow]
            if self._is_settled(state):
                self.settled.add(number)
        for kind, move in self.moves.costly(state, quiet=not prompt):
            self._follow(number, blob, move, kind)

    def _follow(self, number: int, blob: bytes, move: Move, kind: str | None = None) -> int:
        self.transitions += 1
        state = decode(blob)
        try:
            if kind is not None:
                state.spend(kind)
            self.moves.perform(state, move)
            return self._number(number, move, state)
        except Violation as violation:
            self.found.append(Found(str(violation), [*self._trace(number), _words(move)]))
            return number

    def _number(self, parent: int, move: Move, state: ExploredState) -> int:
        blob = encode(state)
        mark = blake2b(blob, digest_size=16).digest()
        number = self.numbers.get(mark)
        if number is None:
            self._judge(state)
            number = self.numbers[mark] = len(self.numbers)
            self.parents.append(parent)
            self.by.append(self.move_numbers.setdefault(move, len(self.move_numbers)))
            self.fair.append(-1)
            self.frontier.append((number, blob))
        return number

    def _judge(self, state: ExploredState) -> None:
        cluster = self.cluster
        shard = cluster.shards.facts[state.shard]
        for conn in state.conns:
            if conn.whole():
                client = cluster.clients.facts[state.clients[conn.dialer].core]
                registrar = cluster.registrars.facts[state.registrars[conn.registrar]]
                judge.counted_fresh(state, conn, client, registrar, shard)

    def _trace(self, number: int) -> list[str]:
        names = list(self.move_numbers)
        steps: list[str] = []
        while number >= 0:
            steps.append(_words(names[self.by[number]]))
            number = self.parents[number]
        return steps[::-1]

    # Following the fair schedule.

    def _walks(self) -> tuple[int, int]:
        """How many states end well, and the most steps one of them takes."""
        calm, steps = self._until_quiet()
        rounds = {number: self._round(number, calm, steps) for number in self.rounds}
        lengths: dict[int, int] = {}
        for number in self.rounds:
            self._measure(number, rounds, lengths)
        converged, longest, worst = 0, 0, -1
        for number in range(len(self.numbers)):
            length = lengths.get(calm[number], -1) if calm[number] >= 0 else -1
            if length >= 0:
                converged += 1
                longest = max(longest, steps[number] + length)
            elif worst < 0:
                worst = number
        if worst >= 0:
            self.found.append(
                Found("clients never become fresh", list(self._hopeless(worst, calm)))
            )
        return converged, longest

    def _until_quiet(self) -> tuple["array[int]", "array[int]"]:
        """For every state the quiet one that prompt moves lead to, and in how many steps."""
        count = len(self.numbers)
        calm, steps = array("q", [-1]) * count, array("q", [0]) * count
        for start in range(count):
            path: list[int] = []
            number = start
            seen: set[int] = set()
            while calm[number] < 0 and number not in self.rounds and number not in seen:
                seen.add(number)
                path.append(number)
                number = self.fair[number]
            if number in self.rounds:
                calm[number] = number
            for number_ in reversed(path):
                calm[number_] = calm[number]
                steps[number_] = steps[number] + 1
                number = number_
        return calm, steps

    def _round(self, number: int, calm: "array[int]", steps: "array[int]") -> tuple[int, int]:
        """Where one round of slow moves leads, each followed by the prompt ones; and its length."""
        at, length, done = number, 0, _BEFORE_ALL
        while True:
            later = [item for item in self.rounds[at] if _rank(item[0]) > done]
            if not later:
                return at, length
            move, target = min(later, key=lambda item: _rank(item[0]))
            done = _rank(move)
            if calm[target] < 0:
                return -1, length
            length += 1 + steps[target]
            at = calm[target]

    def _measure(
        self, start: int, rounds: dict[int, tuple[int, int]], lengths: dict[int, int]
    ) -> None:
        """Steps until a quiet state from which every further round leads to settled states."""
        path = [start]
        while path[-1] not in lengths:
            after, _ = rounds[path[-1]]
            if after < 0 or len(path) > MAX_ROUNDS:
                lengths[path[-1]] = -1
            elif after == path[-1]:
                lengths[after] = 0 if after in self.settled else -1
            elif after in path:
                cycle = path[path.index(after) :]
                good = all(number in self.settled for number in cycle)
                lengths.update(dict.fromkeys(cycle, 0 if good else -1))
            else:
                path.append(after)
        for number in reversed(path[:-1]):
            after, length = rounds[number]
            if number not in lengths:
                lengths[number] = lengths[after] + length if lengths[after] >= 0 else -1

    def _hopeless(self, number: int, calm: "array[int]") -> Iterator[str]:
        yield from self._trace(number)
        yield "-- from here on without faults --"
        for _ in range(3):
            while self.fair[number] >= 0 and number not in self.rounds:
                if calm[number] < 0:
                    yield "… for ever"
                    return
                number = self.fair[number]
            done = _BEFORE_ALL
            while later := [m for m in self.rounds[number] if _rank(m[0]) > done]:
                move, target = min(later, key=lambda item: _rank(item[0]))
                done = _rank(move)
                yield _words(move)
                number = calm[target]


_SLOW_WORDS = (
    *("ping", "registrar_silence", "registrar_timer", "shard_silence", "feed_tick", "client_timer"),
)
_BEFORE_ALL: tuple[object, ...] = (-1,)


def _rank(move: Move) -> tuple[object, ...]:
    """The place of a slow move in a round."""
    return (_SLOW_WORDS.index(move[0]), *move[1:])


def _words(move: Move) -> str:
    return " ".join(str(part) for part in move)


WITHIN_BOUNDS: Final = (
    "batch answered while only in memory",
    "marker advanced over a gap",
    "interest recorded after the load",
    "late load hides a newer version",
    "failed write forgotten",
    "restored snapshot keeps its epoch with the feed gone",
    "recreated feed taken for the old one",
    "new epoch not announced",
)
"""Planted bugs that show in clusters as small as these. The others need what is left out here
(resets, sources, MQTT) or more than fits."""


class Hunted(msgspec.Struct, frozen=True):
    mutant: str
    exploration: Exploration


def explore_all(
    workers: int, progress: Callable[[Exploration], None] | None = None
) -> list[Exploration]:
    return on_all_cores(explore, CONFIGURATIONS, workers, progress)


def explore_mutant(patch: Patch) -> Exploration:
    """Up to the first violation; without one, the last of the grounds it was hunted on."""
    exploration = None
    for bounds in HUNTING_GROUNDS:
        exploration = explore(bounds, patch, first_only=True)
        if exploration.violations:
            return exploration
    assert exploration is not None
    return exploration


def hunt_within_bounds(
    workers: int, progress: Callable[[Hunted], None] | None = None
) -> list[Hunted]:
    return on_all_cores(_hunt, WITHIN_BOUNDS, workers, progress)


def _hunt(name: str) -> Hunted:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    return Hunted(name, explore_mutant(lambda: planted(mutant)))
