"""Data directories with feeds in them, for tests that need no node."""

from collections.abc import Sequence
from pathlib import Path

from roskva.disk import RealDisk
from roskva.feed.log import Log, LogConfig
from roskva.feed.upkeep import Retention
from roskva.model import Update, shard_of
from roskva.server.directory import DataDirectory, ShardPlace


class WrittenData:
    """A data directory as a node writes it, one log per shard."""

    def __init__(self, path: Path, shards: int = 2, config: LogConfig | None = None) -> None:
        self.path = path
        self.shards = shards
        self._config = config or LogConfig(retention=Retention(max_age_us=None))
        self._data = DataDirectory.open_or_create(path, shards)
        self.logs = [self._open(number, lineage=1000 + number) for number in range(shards)]

    def _open(self, number: int, lineage: int) -> Log:
        place = ShardPlace(self._data, number)
        RealDisk().make_directory(str(place.path))
        return Log.open(
            RealDisk(), str(place.feed_path), lineage=lineage, now_us=1, config=self._config
        )

    def feed_path(self, number: int) -> Path:
        return ShardPlace(self._data, number).feed_path

    def publish(self, *updates: Update, now_us: int = 1_700_000_000_000_000) -> None:
        for number, log in enumerate(self.logs):
            mine = [u for u in updates if shard_of(u.object, self.shards) == number]
            if mine:
                log.append(mine)
                log.commit(now_us)

    def crash(self) -> None:
        """The writers end without a word, and new ones take over: offsets jump."""
        self.logs = [
            Log.open(
                RealDisk(),
                str(self.feed_path(number)),
                lineage=1,
                now_us=1,
                config=self._config,
                takeover=True,
            )
            for number in range(self.shards)
        ]

    def close(self) -> None:
        for log in self.logs:
            log.close()


def updates(keys: Sequence[str], versions: range) -> list[Update]:
    return [Update(key, version) for version in versions for key in keys]
