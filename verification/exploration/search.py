"""Breadth first over everything that may happen, to the last state; then: does each one heal?

Safety is judged while states are found. For convergence every state has one *fair* successor: the
first prompt move, or, when there is none, the slow moves one after the other, round after round.
All of them are edges of the explored graph, so following them is a walk over numbers. A walk must
end in a round that leads to itself, and there everybody must be fresh and registered.
"""

import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from hashlib import blake2b
from typing import Final

import msgspec

from roskva.simulation.oracle import Violation
from verification.exploration import judge
from verification.exploration.bounds import HUNTING_GROUNDS, Bounds
from verification.exploration.cluster import Cluster
from verification.exploration.moves import Move, Moves
from verification.exploration.state import ExploredState, decode, encode
from verification.mutants import MUTANTS, planted

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
        count = len(self.numbers)

        def step(number: int) -> tuple[int, int]:
            return (number, 0) if number in self.rounds else (self.fair[number], 1)

        quiet, steps = _ends(count, range(count), step)

        def round_(number: int) -> tuple[int, int]:
            length = 0
            for _, target in self._round(number, quiet):
                number, length = quiet[target], length + 1 + steps[target]
            return number, length

        ends, lengths = _ends(count, self.rounds, round_)
        converged = longest = 0
        for number, calm in enumerate(quiet):
            if calm >= 0 and ends[calm] in self.settled:
                converged += 1
                longest = max(longest, steps[number] + lengths[calm])
            elif not self.found:
                way = [*self._trace(number), *self._hopeless(calm, quiet)]
                self.found.append(Found("clients never become fresh", way))
        return converged, longest

    def _round(self, number: int, quiet: "array[int]") -> Iterator[tuple[Move, int]]:
        """The slow moves of one round, in their order, and where they lead; after each of them come
        the prompt ones."""
        done: Move = ()
        while number >= 0:
            later = [item for item in self.rounds[number] if item[0] > done]
            if not later:
                return
            done, target = min(later)
            yield done, target
            number = quiet[target]

    def _hopeless(self, number: int, quiet: "array[int]") -> Iterator[str]:
        yield "-- from here on without faults --"
        for _ in range(3):
            for move, target in self._round(number, quiet):
                yield _words(move)
                number = quiet[target]
        if number < 0:
            yield "… for ever"


def _ends(
    count: int, numbers: Iterable[int], after: Callable[[int], tuple[int, int]]
) -> tuple["array[int]", "array[int]"]:
    """Where one comes to rest who goes on from each of these numbers to the one after, and in how
    many steps; −1: nowhere."""
    ends, steps = array("q", [-1]) * count, array("q", [0]) * count
    for start in numbers:
        path: dict[int, int] = {}
        number, taken = start, 0
        while number >= 0 and ends[number] < 0 and number not in path:
            next_, taken = after(number)
            if next_ == number:
                ends[number] = number
            else:
                path[number] = taken
                number = next_
        end, total = (ends[number], steps[number]) if number >= 0 else (-1, 0)
        for passed, taken in reversed(path.items()):
            total += taken
            ends[passed], steps[passed] = end, total
    return ends, steps


def _words(move: Move) -> str:
    return " ".join(map(str, move))


WITHIN_BOUNDS: Final = (
    "batch answered while only in memory",
    "marker advanced over a gap",
    "interest recorded after the load",
    "late load hides a newer version",
    "failed write forgotten",
    "restored snapshot keeps its epoch with the feed gone",
    "recreated feed taken for the old one",
    "new epoch not announced",
    "epoch begins without a record",
    "whoever has lost something goes on speaking",
)
"""Planted bugs that show in clusters as small as these. The others need what is left out here
(resets, sources, MQTT) or more than fits."""


class Hunted(msgspec.Struct, frozen=True):
    mutant: str
    exploration: Exploration


def explore_mutant(patch: Patch) -> Exploration:
    """Up to the first violation; without one, the last of the grounds it was hunted on."""
    exploration = None
    for bounds in HUNTING_GROUNDS:
        exploration = explore(bounds, patch, first_only=True)
        if exploration.violations:
            return exploration
    assert exploration is not None
    return exploration


def hunt_within_bounds(name: str) -> Hunted:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    return Hunted(name, explore_mutant(lambda: planted(mutant)))
