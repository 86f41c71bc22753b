"""A database followed as a source does it, without a node: a thread, and a log of changes."""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.serving.nodes import PATIENCE_S, await_that
from tests.sources.servers import Postgres

from roskva.disk import RealDisk
from roskva.feed.base import Batch, Marker
from roskva.feed.commit import wall_clock_us
from roskva.feed.reader import LogReader
from roskva.model import Update
from roskva.sources.change import body_of, doubt_of
from roskva.sources.changes import LOG, ChangesLog
from roskva.sources.database import Tables
from roskva.sources.follower import Follower
from roskva.sources.postgres.log import PostgresLog


class Followed:
    """What is in the log of changes is asked of its files."""

    def __init__(self, server: Postgres, place: Path, *tables: str, url: str | None = None) -> None:
        """`url`: where the server is found, if not at its own address."""
        self.server, self.place, self._url = server, place, url
        self.tables = Tables(tables)
        self.seen = 0
        """How many doubts were taken note of."""
        self._ordinals = itertools.count(1)
        self._follower: Follower | None = None

    def start(self, adopt: bool = False) -> None:
        changes = ChangesLog.open(
            RealDisk(), str(self.place), "shop", lineage=7, now_us=wall_clock_us()
        )
        self._follower = Follower(
            PostgresLog("shop", self._url or self.server.url, None, self.tables),
            changes,
            next_ordinal=lambda: next(self._ordinals),
            grown=lambda last: None,
            ended=lambda: None,
            adopt=adopt,
        )
        self._follower.start()

    def stop(self) -> None:
        if self._follower is not None:
            self._follower.stop()
            self._follower.join()
            assert self._follower.failed is None, self._follower.failed
            self._follower = None

    @contextmanager
    def away(self) -> Iterator[None]:
        """It cannot connect for so long, and finds everything as it was left."""
        server = self.server
        server.administer("ALTER ROLE roskva NOLOGIN")
        server.administer(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'roskva'"
        )
        gone = "SELECT 1 FROM pg_stat_activity WHERE usename = 'roskva'"
        await_that(lambda: not server.administer(gone), PATIENCE_S)
        yield
        server.administer("ALTER ROLE roskva LOGIN")

    @property
    def why(self) -> str:
        """It does not read, or not all."""
        if self._follower is None:
            return ""
        return "; ".join((self._follower.why, *self._follower.complaints)).strip("; ")

    @property
    def changed(self) -> int:
        return 0 if self._follower is None else self._follower.changed

    @property
    def alarm(self) -> bool:
        return self._follower is not None and self._follower.alarm

    def reading(self) -> None:
        await_that(self._reads, PATIENCE_S, lambda: self.why)

    def _reads(self) -> bool:
        return self._follower is not None and self._follower.state == "reading"

    def doubt(self) -> str:
        """The cause of the next doubt."""
        causes = await_that(lambda: self.doubts()[self.seen :], PATIENCE_S, lambda: self.why)
        self.seen += 1
        return causes[0]

    def doubts(self) -> list[str]:
        return [doubt_of(update).cause for update in self.records() if update.reset]

    def told(self, name: str) -> Update:
        """The last of what was changed of this row, when there is something of it that is newer
        than every doubt."""

        def found() -> Update | None:
            latest = None
            for update in self.records():
                if update.reset:
                    latest = None
                elif update.object == f"shop/{name}":
                    latest = update
            return latest

        return await_that(found, PATIENCE_S, lambda: f"{self.why} {self.names()}")

    def names(self) -> list[str]:
        """Of the rows that were changed, in order."""
        return [update.object[5:] for update in self.records() if not update.reset]

    def rows(self) -> list[bytes]:
        return [bytes(body_of(update).row) for update in self.records() if not update.reset]

    def records(self) -> list[Update]:
        if not (self.place / LOG / "meta").exists():
            return []
        reader = LogReader(RealDisk(), str(self.place / LOG))
        found: list[Update] = []
        after = 0
        while after < reader.end():
            read = reader.read(Marker(reader.lineage, after))
            assert isinstance(read, Batch), read
            found += read.updates()
            after = read.last
        return found
