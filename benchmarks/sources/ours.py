"""A node, and beside it our reader of a database, as users run them: `roskva source run`."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.serving.servers import UNLIMITED, Server, roskva
from benchmarks.turns import OURS
from roskva.disk import RealDisk
from roskva.feed.reader import LogReader

NAME: Final = "shop"
_POLL_S: Final = 0.002
_PATIENCE_S: Final = 300.0
_PUBLISHING: Final = "with_node = false\n"
_SETTINGS: Final = (
    """
[source.{name}]
url = "{url}"
tables = ["products"]
payload = "row"
"""
    + _PUBLISHING
)


class Progress(msgspec.Struct, frozen=True):
    """How far somebody had read, and when."""

    at: float
    """As `time.monotonic()` has it."""
    changes: int


class Node(msgspec.Struct, frozen=True):
    server: Server
    data: Path
    settings: Path
    """Its file of settings."""

    @contextmanager
    def reading(self, name: str = NAME, *, publishing: bool = True) -> "Iterator[Reader]":
        """Without `publishing` it only keeps what it has read."""
        settings = self.settings
        if not publishing:
            settings = settings.with_name("direct-off.toml")
            settings.write_text(
                self.settings.read_text().replace(_PUBLISHING, f"{_PUBLISHING}direct = false\n")
            )
        program = str(Path(sys.executable).with_name("roskva"))
        words = ["source", "run", name, "--config", str(settings), "--data", str(self.data)]
        with (self.data.parent / f"{name}.log").open("ab") as log:
            begun = Reader(self, name)
            process = subprocess.Popen([program, *words], stdout=log, stderr=log)
            begun.process = Server(OURS, process.pid)
            try:
                yield begun
            finally:
                process.terminate()
                process.wait(30)


class Reader:
    process: Server

    def __init__(self, node: Node, name: str) -> None:
        """Before its process is started: what comes then, counts."""
        self._log = node.data / "sources" / name / "changes"
        self._reader: LogReader | None = None
        self._before = self._end()
        self._said = node.data.parent / f"{name}.log"
        self._ready = self._says().count("reading after") if self._said.exists() else 0

    def await_ready(self) -> None:
        """Until it has connected to the database."""
        await_that(lambda: self._says().count("reading after") > self._ready, "it does not connect")

    def _says(self) -> str:
        return self._said.read_text()

    def changes(self) -> int:
        """That have become durable in its log since it was started; a doubt counts as one."""
        return self._end() - self._before

    def _end(self) -> int:
        if self._reader is None:
            if not (self._log / "meta").exists():
                return 0
            self._reader = LogReader(RealDisk(), str(self._log))
        return self._reader.end()

    def await_changes(self, count: int) -> list[Progress]:
        """Until they are durable; each time that there were more."""
        found: list[Progress] = []

        def there() -> bool:
            now = self.changes()
            if not found or now > found[-1].changes:
                found.append(Progress(time.monotonic(), now))
            return now >= count

        await_that(there, "our reader does not come to the end")
        return found


@contextmanager
def node(
    place: Path, urls: dict[str, str], *, more: str = "", pipeline: bool = False
) -> Iterator[Node]:
    """With these sources, by name; none of them is read yet. `more` settings."""
    directory = place / "node"
    directory.mkdir(exist_ok=True)
    settings = directory / "roskva.toml"
    sources = (_SETTINGS.format(name=name, url=url) for name, url in urls.items())
    settings.write_text(UNLIMITED + "".join(sources) + more)
    cores = os.sched_getaffinity(0)
    with roskva(directory, cores, "--config", str(settings), pipeline=pipeline) as server:
        yield Node(server, directory / "data", settings)


def await_that(
    true: Callable[[], bool],
    otherwise: str,
    patience_s: float = _PATIENCE_S,
    every_s: float = _POLL_S,
) -> None:
    give_up_at = time.monotonic() + patience_s
    while not true():
        if time.monotonic() > give_up_at:
            raise RuntimeError(otherwise)
        time.sleep(every_s)
