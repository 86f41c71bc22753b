"""Backup and restore: consistent while in use, checked to the last byte, and honest about loss."""

import asyncio
import shutil
from functools import partial
from pathlib import Path

import msgspec
import pytest
from benchmarks.awaited import AwaitedCommit
from tests.loops import until
from tests.server.history import (
    LINEAGE,
    NOW_US,
    CaughtUp,
    apply,
    apply_in,
    catch_up,
    marker_in,
    open_feed,
    publish,
)

from roskva.errors import BadConfig, Damaged
from roskva.feed.base import Foreign, Locked, Marker, Missing
from roskva.feed.commit import Committer
from roskva.feed.upkeep import Retention
from roskva.model import Update
from roskva.server.backup import (
    MANIFEST,
    BackedUp,
    Manifest,
    back_up,
    encode_manifest,
    make_backup,
    read_manifest,
    restore,
)
from roskva.server.directory import DataDirectory, OwnedShard, ShardPlace
from roskva.store.rocksdb import RocksStore
from roskva.store.worker import StoreWorker


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards, of whose five updates three are in the store; and a backup of them."""
    directory = tmp_path_factory.mktemp("originals")
    data = DataDirectory.open_or_create(directory / "data", 2)
    for number in range(2):
        with data.own(number) as shard:
            log = open_feed(shard.path)
            publish(log, 10, 20, 30, 40, 50)
            log.close()
            apply_in(shard.path, 30, 3)
    back_up(data, directory / "backup", NOW_US)
    return directory


@pytest.fixture
def data(originals: Path, tmp_path: Path) -> DataDirectory:
    shutil.copytree(originals / "data", tmp_path / "data")
    return DataDirectory.open(tmp_path / "data")


@pytest.fixture
def backup(originals: Path, tmp_path: Path) -> Path:
    shutil.copytree(originals / "backup", tmp_path / "backup")
    return tmp_path / "backup"


def test_a_node_that_moves_is_restored_as_it_was(
    data: DataDirectory, backup: Path, tmp_path: Path
) -> None:
    shards = restore(backup, tmp_path / "new", nothing_published_since=True)
    assert [(shard.behind, shard.new_epoch, shard.unreadable) for shard in shards] == [
        (2, False, [])
    ] * 2
    moved = DataDirectory.open(tmp_path / "new")
    assert moved.meta == data.meta
    for number in range(2):
        with moved.own(number) as shard:
            assert marker_in(shard.path) == 3
            assert catch_up(shard.path) == CaughtUp([40, 50], [])


def test_what_was_published_after_the_backup_is_missing_and_not_forgotten(
    data: DataDirectory, backup: Path, tmp_path: Path
) -> None:
    shards = restore(backup, tmp_path / "new")
    assert all(shard.new_epoch for shard in shards)
    with DataDirectory.open(tmp_path / "new").own(0) as shard:
        caught_up = catch_up(shard.path)
        assert caught_up.versions == [40, 50]
        (hole,) = caught_up.missing
        assert isinstance(hole, Missing)
        assert hole.first == 6

        log = open_feed(shard.path)
        publish(log, 60)
        log.close()
        assert catch_up(shard.path) == CaughtUp([40, 50, 60], [hole])


def test_no_offset_of_the_lost_history_is_used_again(
    data: DataDirectory, backup: Path, tmp_path: Path
) -> None:
    restore(backup, tmp_path / "new")
    with data.own(0) as original, DataDirectory.open(tmp_path / "new").own(0) as restored:
        logs = [open_feed(original.path), open_feed(restored.path)]
        first, second = (log.append([Update("contacts/alice", 60)]) for log in logs)
        assert second - first > 1 << 40
        for log in logs:
            log.close()


def test_retention_goes_on_after_a_restore(backup: Path, tmp_path: Path) -> None:
    restore(backup, tmp_path / "new")
    with DataDirectory.open(tmp_path / "new").own(0) as shard:
        log = open_feed(shard.path, retention=Retention(max_bytes=0))
        publish(log, 60, 70, 80)
        end = log.reader().end()
        while log.tidy(NOW_US):
            pass
        assert log.reader().read(Marker(LINEAGE, 5)) == Missing(6, end - 1, "retention")
        assert log.reader().segments()[0].first == end
        log.close()


def test_a_backup_of_what_was_restored_keeps_the_loss_in_mind(backup: Path, tmp_path: Path) -> None:
    restore(backup, tmp_path / "once")
    back_up(DataDirectory.open(tmp_path / "once"), tmp_path / "again", NOW_US)
    shards = restore(tmp_path / "again", tmp_path / "twice", nothing_published_since=True)
    assert all(shard.new_epoch for shard in shards)
    with DataDirectory.open(tmp_path / "twice").own(0) as shard:
        assert [type(hole) for hole in catch_up(shard.path).missing] == [Missing]


def test_the_marker_is_never_ahead_of_the_feed_however_the_backup_is_interleaved(
    data: DataDirectory, tmp_path: Path
) -> None:
    def checkpoint(shard: ShardPlace, made: Path) -> None:
        """The owner goes on: before the checkpoint, and between it and the copy of the feed."""
        store = RocksStore(shard.store_path)
        log = open_feed(shard.path)
        publish(log, 60)
        apply(store, 60, 6)
        store.checkpoint(made)
        publish(log, 70)
        apply(store, 70, 7)
        log.close()
        store.close()

    with data.own(0) as first, data.own(1) as second:
        make_backup(data, [first, second], checkpoint, tmp_path / "backup", NOW_US)
        assert list(first.checkpoints_path.iterdir()) == []
    restore(tmp_path / "backup", tmp_path / "new", nothing_published_since=True)
    for number in range(2):
        with DataDirectory.open(tmp_path / "new").own(number) as shard:
            assert marker_in(shard.path) == 6
            assert catch_up(shard.path) == CaughtUp([70], [])


class Serving:
    """One shard at work: every update is published, applied, and only then counted."""

    def __init__(self, shard: OwnedShard) -> None:
        self.loop = asyncio.get_running_loop()
        self.worker = StoreWorker(RocksStore(shard.store_path))
        self.feed = AwaitedCommit(open_feed(shard.path, segment_bytes=500), Committer())
        self.published = 0
        self.warm = asyncio.Event()

    async def publish_for_ever(self) -> None:
        while True:
            version = self.published + 1
            offset = await self.feed.publish([Update("contacts/alice", version)])
            await self.worker.run(partial(apply, version=version, offset=offset))
            self.published = version
            if version == 50:
                self.warm.set()

    def checkpoint(self, _: ShardPlace, made: Path) -> None:
        asyncio.run_coroutine_threadsafe(self._checkpoint(made), self.loop).result()

    async def _checkpoint(self, made: Path) -> None:
        """Before the feed is copied, it has grown."""
        await self.worker.checkpoint(made)
        at = self.published
        await until(lambda: self.published > at)

    async def close(self) -> None:
        await self.worker.close()
        await self.feed.close()


def test_a_node_backs_itself_up_while_it_serves(tmp_path: Path) -> None:
    data = DataDirectory.open_or_create(tmp_path / "data", 1)

    async def scenario(shard: OwnedShard) -> int:
        serving = Serving(shard)
        publishing = asyncio.create_task(serving.publish_for_ever())
        await serving.warm.wait()
        before = serving.published
        target = tmp_path / "backup"
        await asyncio.to_thread(make_backup, data, [shard], serving.checkpoint, target, NOW_US)
        publishing.cancel()
        await asyncio.wait([publishing])
        await serving.close()
        return before

    with data.own(0) as shard:
        before = asyncio.run(scenario(shard))
    restore(tmp_path / "backup", tmp_path / "new")
    with DataDirectory.open(tmp_path / "new").own(0) as shard:
        marker = marker_in(shard.path)
        caught_up = catch_up(shard.path)
        assert marker >= before
        assert caught_up.versions == list(range(marker + 1, marker + 1 + len(caught_up.versions)))
        assert [type(hole) for hole in caught_up.missing] == [Missing]


def test_retention_during_a_backup_leaves_no_hole_in_it(
    data: DataDirectory, tmp_path: Path
) -> None:
    def expire(done: int, total: int) -> None:
        """As soon as anything of a feed is copied, its three oldest segments are gone."""
        if list(tmp_path.glob("backup/shard-*/feed/*.log")):
            for feed in data.path.glob("shard-*/feed"):
                for segment in sorted(feed.glob("*.log"))[:-2]:
                    segment.unlink()

    back_up(data, tmp_path / "backup", NOW_US, expire)
    restore(tmp_path / "backup", tmp_path / "new", nothing_published_since=True)
    with DataDirectory.open(tmp_path / "new").own(0) as shard:
        assert catch_up(shard.path) == CaughtUp([40, 50], [])


def test_c71_an_older_store_catches_up_from_the_feed_and_misses_nothing(
    data: DataDirectory, backup: Path
) -> None:
    with data.own(0) as shard:
        log = open_feed(shard.path)
        publish(log, 60, 70)
        log.close()
        apply_in(shard.path, 70, 7)
        shutil.rmtree(shard.store_path)
        shutil.copytree(backup / "shard-00" / "store", shard.store_path)
        assert marker_in(shard.path) == 3
        assert catch_up(shard.path) == CaughtUp([40, 50, 60, 70], [])


def test_c72_an_older_store_without_its_range_or_its_feed_is_told_so(
    data: DataDirectory, backup: Path
) -> None:
    for number in range(2):
        with data.own(number) as shard:
            shutil.rmtree(shard.store_path)
            shutil.copytree(backup / shard.path.name / "store", shard.store_path)
    with data.own(0) as shard:
        for segment in sorted(shard.feed_path.glob("*.log"))[:4]:
            segment.unlink()
        caught_up = catch_up(shard.path)
        assert caught_up.versions == [50]
        assert [type(hole) for hole in caught_up.missing] == [Missing]
    with data.own(1) as shard:
        shutil.rmtree(shard.feed_path)
        assert [type(hole) for hole in catch_up(shard.path).missing] == [Foreign]


def test_nothing_is_ever_written_over(data: DataDirectory, backup: Path, tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="not empty: name an empty or a new directory"):
        back_up(data, backup, NOW_US)
    with pytest.raises(BadConfig, match="not empty: name an empty or a new directory"):
        restore(backup, data.path)
    (tmp_path / "file").touch()
    with pytest.raises(BadConfig, match="not empty"):
        restore(backup, tmp_path / "file")
    (tmp_path / "empty").mkdir()
    restore(backup, tmp_path / "empty")
    assert (tmp_path / "empty").stat().st_mode & 0o777 == 0o700


def test_a_running_node_is_not_backed_up_behind_its_back(
    data: DataDirectory, tmp_path: Path
) -> None:
    with data.own(1), pytest.raises(Locked, match="in use by another process"):
        back_up(data, tmp_path / "backup", NOW_US)
    assert not (tmp_path / "backup").exists()


def test_one_changed_byte_anywhere_refuses_the_restore_and_leaves_nothing(
    backup: Path, tmp_path: Path
) -> None:
    files = [path for path in backup.rglob("*") if path.is_file() and path.stat().st_size]
    assert len(files) > 20
    for path in files:
        good = path.read_bytes()
        bad = bytearray(good)
        bad[len(bad) // 2] ^= 0x10
        path.write_bytes(bad)
        with pytest.raises(Damaged, match="is not what was"):
            restore(backup, tmp_path / "new")
        assert not (tmp_path / "new").exists() or not list((tmp_path / "new").iterdir())
        path.write_bytes(good)
    restore(backup, tmp_path / "new")


def test_a_missing_file_refuses_the_restore(backup: Path, tmp_path: Path) -> None:
    (backup / "shard-01" / "meta").unlink()
    with pytest.raises(Damaged, match="shard-01/meta is missing"):
        restore(backup, tmp_path / "new")


def test_a_backup_that_was_never_finished_is_no_backup(
    data: DataDirectory, backup: Path, tmp_path: Path
) -> None:
    (backup / MANIFEST).unlink()
    for directory in (backup, data.path, tmp_path / "nowhere"):
        with pytest.raises(BadConfig, match="no backup, or one that was never finished"):
            restore(directory, tmp_path / "new")


def test_a_backup_that_fails_leaves_nothing_behind(data: DataDirectory, tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done > 2_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        back_up(data, tmp_path / "backup", NOW_US, stop)
    assert list((tmp_path / "backup").iterdir()) == []
    back_up(data, tmp_path / "backup", NOW_US)


def test_a_manifest_of_a_newer_format_or_with_a_path_that_leads_out_is_refused(
    backup: Path, tmp_path: Path
) -> None:
    manifest = read_manifest(backup)
    newer = msgspec.structs.replace(manifest, format=2)
    (backup / MANIFEST).write_bytes(encode_manifest(newer))
    with pytest.raises(BadConfig, match="has format 2; this Roskva reads up to 1: update it"):
        restore(backup, tmp_path / "new")
    for path in ("../outside", "/outside", "shard-00/../../outside"):
        leading_out = msgspec.structs.replace(manifest, files=[BackedUp(path, 0, 0)])
        (backup / MANIFEST).write_bytes(encode_manifest(leading_out))
        with pytest.raises(Damaged, match="outside of the backup"):
            restore(backup, tmp_path / "new")


def test_damage_from_before_the_backup_is_restored_as_it_is_and_named(
    data: DataDirectory, tmp_path: Path
) -> None:
    segment = sorted(ShardPlace(data, 0).feed_path.glob("*.log"))[1]
    content = bytearray(segment.read_bytes())
    content[-40] ^= 1
    segment.write_bytes(content)
    back_up(data, tmp_path / "backup", NOW_US)
    damaged, sound = restore(tmp_path / "backup", tmp_path / "new", nothing_published_since=True)
    assert (damaged.unreadable, sound.unreadable) == ([(2, 2)], [])


def test_progress_reaches_its_end(data: DataDirectory, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    made: Manifest = back_up(
        data, tmp_path / "backup", NOW_US, lambda done, total: seen.append((done, total))
    )
    size = sum(file.size for file in made.files)
    assert seen[-1][0] == size
    seen.clear()
    restore(tmp_path / "backup", tmp_path / "new", progress=lambda *step: seen.append(step))
    assert seen[-1] == (size, size)
