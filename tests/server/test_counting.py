"""What a shard counts of updates, however they reach its matcher."""

import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from tests.loops import in_loop

from roskva.answer import answer_of
from roskva.config import FeedConfig
from roskva.core.objects import coalesce
from roskva.feed.commit import Committer
from roskva.model import PROBE_APP, PROBE_SLOW_APP, Update, is_probe
from roskva.server.directory import DataDirectory
from roskva.server.shard import Shard
from roskva.wire.links import FromShard, Offer

FAST, SLOW = ("fast/x", "fast/y", f"{PROBE_APP}/x"), ("slow/x", "slow/y", f"{PROBE_SLOW_APP}/x")
COUNT = 300


class Bridge:
    """Offers what was published, as the one on Spark does: without what is outdated."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.entries: list[tuple[int, Update]] = []
        self.offered = 0
        """Up to this offset."""

    def send(self, message: FromShard) -> None:
        pass

    def drop(self) -> None:
        pass

    def offer(self, first: int, last: int) -> None:
        entries = [entry for entry in self.entries if first <= entry[0] <= last]
        offer = Offer(1, 0, self._shard.lineage, first, last, coalesce(entries))
        self._shard.offered(self, offer)

    def catch_up(self, dice: random.Random) -> None:
        """In one range or several; some of it for the second time."""
        end = self._shard.feed_end
        while self.offered < end:
            last = dice.randint(self.offered + 1, end)
            self.offer(max(1, self.offered + 1 - dice.randrange(3)), last)
            self.offered = last


def updates(dice: random.Random, count: int) -> Iterator[Update]:
    for _ in range(count):
        yield Update(dice.choice(FAST + SLOW), dice.randrange(50))


@asynccontextmanager
async def open_shard(directory: Path, fast: Callable[[str], bool]) -> AsyncIterator[Shard]:
    data = DataDirectory.open_or_create(directory / "data", 1)
    wrong: list[Exception] = []
    with data.serving():
        shard = await Shard.open(data, 0, FeedConfig(), Committer(), wrong.append, fast)
        try:
            yield shard
        finally:
            with suppress(Exception):
                await shard.close()
    assert wrong == []


@in_loop
async def test_on_the_fast_path_all_that_is_published_was_new_or_old(tmp_path: Path) -> None:
    dice = random.Random(0)
    async with open_shard(tmp_path, lambda app: True) as shard:
        for update in updates(dice, COUNT):
            await answer_of(partial(shard.publish, [update]))
        counted = shard.matcher.counters
        assert counted["applied"] + counted["old"] == COUNT
        assert counted["old"] > 0


@pytest.mark.parametrize("seed", range(5))
@in_loop
async def test_what_is_published_counts_once_whoever_brings_it(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    published = {"users": 0, "probe": 0}
    async with open_shard(tmp_path, ("fast", PROBE_APP).__contains__) as shard:
        bridge = Bridge(shard)
        for update in updates(dice, COUNT):
            await answer_of(partial(shard.publish, [update]))
            published["probe" if is_probe(update.object) else "users"] += 1
            bridge.entries.append((shard.feed_end, update))
            if dice.random() < 0.1:
                bridge.catch_up(dice)
        bridge.catch_up(dice)
        assert shard.matcher.applied == shard.feed_end
        assert shard.published == published
