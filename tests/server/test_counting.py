"""What a shard counts of updates that reach its matcher in every way: published = applied + old."""

import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from tests.loops import in_loop

from roskva.answer import answer_of
from roskva.config import FeedConfig
from roskva.core.coalesce import coalesce
from roskva.feed.commit import Committer
from roskva.model import PROBE_APP, PROBE_SLOW_APP, Update
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


def figures(shard: Shard) -> dict[str, tuple[int, int]]:
    """By traffic what was published, and what was counted of it."""
    counted = shard.matcher.counters
    return {
        "users": (shard.published, counted["applied"] + counted["old"]),
        "probe": (shard.probe_published, counted["probe_applied"] + counted["probe_old"]),
    }


def updates(dice: random.Random, count: int) -> Iterator[Update]:
    for _ in range(count):
        yield Update(dice.choice(FAST + SLOW), dice.randrange(50))


@pytest.mark.parametrize("seed", range(5))
@in_loop
async def test_what_the_bridge_leaves_out_counts_as_old(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    data = DataDirectory.open_or_create(tmp_path / "data", 1)
    wrong: list[Exception] = []
    with data.serving():
        shard = await Shard.open(
            data, 0, FeedConfig(), Committer(), wrong.append, ("fast", PROBE_APP).__contains__
        )
        try:
            bridge = Bridge(shard)
            for update in updates(dice, COUNT):
                await answer_of(partial(shard.publish, [update]))
                bridge.entries.append((shard.feed_end, update))
                if dice.random() < 0.1:
                    bridge.catch_up(dice)
            bridge.catch_up(dice)
            assert shard.matcher.applied == shard.feed_end
            for published, counted in figures(shard).values():
                assert published == counted
            assert shard.published + shard.probe_published == COUNT
            assert shard.matcher.counters["probe_old"] > 0
        finally:
            with suppress(Exception):
                await shard.close()
    assert wrong == []
