"""Measuring in turns: everybody once, then everybody again the other way round, so that whatever
else the machine does meets all alike. Servers have one core, and their clients the others."""

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from benchmarks.brokers.peers import OURS, Peer
from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Generator
from benchmarks.serving.servers import Server

T = TypeVar("T")


class Bench(msgspec.Struct, frozen=True):
    """Where servers and their clients find a place."""

    directory: Path
    generator: Generator
    server_cores: set[int]

    def new_directory(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.directory))

    @contextmanager
    def started(self, peer: Peer) -> Iterator[Server]:
        with peer.start(self.new_directory(), self.server_cores) as server:
            yield server

    @contextmanager
    def all_started(self, peers: Sequence[Peer]) -> Iterator[dict[str, Server]]:
        with ExitStack() as stack:
            yield {peer.name: stack.enter_context(self.started(peer)) for peer in peers}


@contextmanager
def bench() -> Iterator[Bench]:
    first, *others = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="roskva-bench-") as name:
        directory = Path(name)
        yield Bench(directory, Generator(directory, set(others) or {first}), {first})


def in_turns(
    peers: Sequence[Peer],
    settings: Settings,
    measure: Callable[[Peer], T],
    once: Sequence[Peer] = (),
) -> dict[str, list[T]]:
    """`once`: who has only the first turn, because it takes long or is the same every time."""
    found: dict[str, list[T]] = {peer.name: [] for peer in peers}
    for turn in range(settings.repetitions):
        for peer in peers[:: -1 if turn % 2 else 1]:
            if turn and peer in once:
                continue
            settings.progress(f"{peer.name}, turn {turn + 1} of {settings.repetitions}")
            found[peer.name].append(measure(peer))
    return found


def figure(
    name: str,
    unit: str,
    turns: dict[str, list[T]],
    of: Callable[[T], float | None],
    *,
    better: Literal["lower", "higher", "neither"] = "lower",
    note: str = "",
    why: str = "",
    at: float | None = None,
    at_unit: str = "",
) -> Result:
    """The medians. Who has no such figure in some turn, because something was lost, has none."""
    values = {peer: [of(turn) for turn in some] for peer, some in turns.items()}
    runs = {peer: [v for v in some if v is not None] for peer, some in values.items()}
    medians = {
        peer: statistics.median(some)
        for peer, some in runs.items()
        if some and len(some) == len(values[peer])
    }
    never = [peer for peer in turns if peer not in medians]
    if never:
        note = "; ".join(part for part in (note, f"never: {', '.join(never)}") if part)
    if OURS not in medians:
        raise RuntimeError(f"{name}: Roskva has lost something, which it must not")
    return Result(
        name,
        medians.pop(OURS),
        unit,
        better=better,
        note=note,
        peers=medians,
        runs=runs,
        why=why,
        at=at,
        at_unit=at_unit,
    )


def ratio(
    of: Result,
    peer: str,
    *,
    target: float | None = None,
    better: Literal["lower", "higher"] = "higher",
    ours: str = OURS,
) -> list[Result]:
    """Of ours to theirs, turn by turn; nothing if they are not here."""
    if peer not in of.runs or len(of.runs[peer]) != len(of.runs[ours]):
        return []
    ratios = [a / b for a, b in zip(of.runs[ours], of.runs[peer], strict=True)]
    note = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return [Result(f"… to {peer}", statistics.median(ratios), "×", target, better, note)]
