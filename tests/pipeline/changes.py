"""Logs of changes, for tests that need no database."""

import shutil
from pathlib import Path

import msgspec

from roskva.config import Config, IngestConfig, NodeConfig, SourceConfig
from roskva.disk import RealDisk
from roskva.feed.log import LogConfig
from roskva.feed.upkeep import Retention
from roskva.sources.change import NULL, Change, Op
from roskva.sources.changes import DIRECTORY, ChangesLog, Slice
from roskva.sources.position import Doubt, PostgresPosition

NOW_US = 1_700_000_000_000_000


def changed(
    key: int,
    price: object = None,
    before: object = None,
    op: Op = "update",
    table: str = "products",
) -> Change:
    """Of a table `id, price`; without a price it was deleted."""
    row, old = (
        NULL if value is None else msgspec.Raw(msgspec.json.encode({"id": key, "price": value}))
        for value in (price, before)
    )
    return Change(table, op if price is not None else "delete", (str(key),), row, old, NOW_US)


class WrittenChanges:
    """The log of a source `shop`, as its process writes it."""

    def __init__(
        self, data: Path, retention: Retention | None = None, segment_bytes: int = 16 << 20
    ) -> None:
        self.data = data
        self.place = data / DIRECTORY / "shop"
        self._config = LogConfig(segment_bytes, retention or Retention(max_age_us=None))
        self._ordinal = 0
        self._lsn = 10
        self.log = self._open(1000)
        self.doubt()

    def _open(self, lineage: int) -> ChangesLog:
        return ChangesLog.open(
            RealDisk(),
            str(self.place),
            "shop",
            lineage=lineage,
            now_us=NOW_US,
            config=self._config,
        )

    def begin_anew(self) -> None:
        """Its log was lost."""
        self.close()
        shutil.rmtree(self.place)
        self.log = self._open(2000)
        self.doubt()

    def doubt(self) -> None:
        self._ordinal += 1
        self.log.doubt(Doubt("attached", "it begins"), self._ordinal, self._at(), NOW_US)

    def add(self, *changes: Change) -> None:
        """In one transaction."""
        self._lsn += 10
        self.log.append([Slice(str(self._lsn), changes, self._at())], NOW_US)

    def _at(self) -> PostgresPosition:
        return PostgresPosition("7", 1, self._lsn)

    def settings(self, **flows: IngestConfig) -> Config:
        source = SourceConfig(url="postgresql://db/shop", tables=("products", "orders"))
        return Config(node=NodeConfig(data=self.data), source={"shop": source}, ingest=flows)

    def close(self) -> None:
        self.log.close(NOW_US)


def flow(**given: object) -> IngestConfig:
    """Of the products."""
    columns = "id BIGINT, price INT"
    return msgspec.convert(
        {
            "format": "roskva-changes",
            "path": "shop",
            "table": "products",
            "columns": columns,
            **given,
        },
        IngestConfig,
    )
