"""Debezium's engine: `debezium/`, built by Maven where it can be had, reading the same database.

Its program counts changes and does nothing else with them; it keeps its position in a file once a
second. What it is told beside the database is `_PROPERTIES`, and everything else is its default.
"""

import queue
import shutil
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from benchmarks.serving.servers import Server
from benchmarks.sources.databases import TABLE
from benchmarks.sources.ours import Progress

NAME: Final = "Debezium"
_PROFILES: Final = {"PostgreSQL": "postgres", "MariaDB": "mariadb"}
"""Of Maven, by kind of database."""
DIRECTORY: Final = Path(__file__).with_name("debezium")
_PATIENCE_S: Final = 300.0
_PROPERTIES: Final = {
    "name": "peer",
    "topic.prefix": "peer",
    "snapshot.mode": "no_data",
    "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
    "offset.flush.interval.ms": "1000",
    "poll.interval.ms": "5",
    "tombstones.on.delete": "false",
}
_POSTGRES: Final = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "publication.name": "roskva_shop",
    "publication.autocreate.mode": "disabled",
    "slot.name": "debezium",
    "table.include.list": f"public.{TABLE}",
}

_MARIADB: Final = {
    "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
    "database.server.id": "5400",
    "database.include.list": "shop",
    "table.include.list": f"shop.{TABLE}",
    "include.schema.changes": "false",
    "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
}


class Peer:
    """What its program says, as it comes."""

    def __init__(self, process: Server, said: Iterable[str]) -> None:
        self.process = process
        self._words: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        self._stamps: list[tuple[int, int]] = []
        threading.Thread(target=self._listen, args=(said,), daemon=True).start()

    def _listen(self, lines: Iterable[str]) -> None:
        for line in lines:
            match line.split():
                case ["at", sent, received]:
                    self._stamps.append((int(sent), int(received)))
                case words:
                    self._words.put(words)
        self._words.put([])

    def await_ready(self) -> None:
        while self._next() != ["reading"]:
            pass

    def await_changes(self, end: int) -> list[Progress]:
        """Counted from when its program began."""
        found: list[Progress] = []
        while not found or found[-1].changes < end:
            match self._next():
                case [count, nanoseconds]:
                    found.append(Progress(int(nanoseconds) / 1e9, int(count)))
        return found

    def take_stamps(self) -> list[tuple[int, int]]:
        """Of changes since it was asked last: when their statement ran, and when they came, in
        wall-clock microseconds."""
        taken, self._stamps = self._stamps, []
        return taken

    def _next(self) -> list[str]:
        words = self._words.get(timeout=_PATIENCE_S)
        if not words:
            raise RuntimeError("Debezium's engine has ended")
        return words


def what_is_missing(kind: str) -> str:
    """Builds it if it is not there. Nothing: it is there."""
    if shutil.which("java") is None or shutil.which("mvn") is None:
        return "Debezium's engine needs Java 17 and Maven (apt-get install maven)"
    profile = _PROFILES[kind]
    if not (DIRECTORY / "build" / profile / "peer.jar").exists():
        built = subprocess.run(
            ["mvn", "-q", "-B", "-P", profile, "package"],
            cwd=DIRECTORY,
            capture_output=True,
            text=True,
        )
        if built.returncode:
            return "Maven cannot fetch Debezium's engine here"
    return ""


@contextmanager
def reading(place: Path, url: str, *, stamps: bool = False) -> Iterator[Peer]:
    """It goes on where the last one in this place has ended."""
    parts = urlsplit(url)
    mariadb = parts.scheme == "mariadb"
    properties = {
        **_PROPERTIES,
        **(_MARIADB if mariadb else _POSTGRES),
        "offset.storage.file.filename": str(place / "debezium.offsets"),
        "database.hostname": parts.hostname or "",
        "database.port": str(parts.port),
        "database.user": "root" if mariadb else parts.username or "",
        "database.password": "" if mariadb else "not-asked-for",
        "database.dbname": parts.path.removeprefix("/"),
        "schema.history.internal.file.filename": str(place / "debezium.schemas"),
        "stamps": str(int(stamps)),
    }
    file = place / "debezium.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    build = DIRECTORY / "build" / ("mariadb" if mariadb else "postgres")
    jars = f"{build}/peer.jar:{build}/jars/*"
    with (place / "debezium.log").open("ab") as log:
        process = subprocess.Popen(
            ["java", "-cp", jars, "Peer", str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            yield Peer(Server(NAME, process.pid), process.stdout)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
