"""Where servers and their clients find a place: servers have one core, their clients the others."""

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from benchmarks.brokers.peers import Peer
from benchmarks.serving.generator import Generator
from benchmarks.serving.servers import Server


class Bench(msgspec.Struct, frozen=True):
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
