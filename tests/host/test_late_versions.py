"""The app of a change source: versions of an ordinal below the last that was begun are late."""

import pytest
from tests.host.shards import LINEAGE, NOW, WALL_US, Asked, sent

from roskva.core.effects import Apply, FeedEnd, PutShard
from roskva.core.matcher import MatcherConfig
from roskva.errors import StorageUnavailable, TooLate, error_of
from roskva.host.effects import Append, NotAppended, Settled, Submitted
from roskva.host.shard import ShardHost
from roskva.host.submissions import Holding, Submissions
from roskva.model import OFFSET_BITS, Update, app_key
from roskva.wire.links import NotPublished, PublishUpdates, ResetApp, UpdatesPublished

SHOP = frozenset({"shop"})


def change(ordinal: int, offset: int, name: str = "a") -> Update:
    return Update(f"shop/products/{name}", ordinal << OFFSET_BITS | offset)


def reset_to(shard: Asked, ordinal: int) -> None:
    shard.say(ResetApp(9, "shop", ordinal))
    shard.commit()


def answers(shard: Asked) -> list[object]:
    found = [m for m in sent(shard.effects) if isinstance(m, UpdatesPublished | NotPublished)]
    shard.effects = []
    return list(found)


def test_a_late_version_is_refused_for_good_and_what_came_with_it_is_published() -> None:
    shard = Asked(source_apps=SHOP)
    reset_to(shard, 5)
    answers(shard)
    other = Update("other/x", 3)
    shard.publish(1, change(4, 99), change(5, 1, "b"), other)
    (append,) = shard.take(Append)
    assert append.updates == [change(5, 1, "b"), other]
    shard.effects.append(append)
    shard.commit()
    assert answers(shard) == [UpdatesPublished(1, [-1, change(5, 1).version, 3])]
    shard.publish(2, change(4, 99))
    assert answers(shard) == [UpdatesPublished(2, [-1])]


def test_an_app_without_a_source_may_go_on_with_lower_versions() -> None:
    shard = Asked()
    reset_to(shard, 5)
    shard.publish(1, change(4, 99))
    assert shard.take(Append)


def test_behind_a_reset_that_is_being_appended_it_is_late_already() -> None:
    shard = Asked(source_apps=SHOP)
    shard.say(ResetApp(9, "shop", 5))
    shard.publish(1, change(4, 99))
    (append,) = shard.take(Append)
    assert answers(shard) == [UpdatesPublished(1, [-1])]
    shard.step(NotAppended([append.request], StorageUnavailable("full")))
    answers(shard)
    shard.publish(2, change(4, 99))
    assert shard.take(Append)


def test_while_the_feed_is_being_read_nobody_knows_and_it_is_to_come_again() -> None:
    """The reset may be in what was not read yet."""
    host = ShardHost(
        MatcherConfig(0, 1),
        PutShard(1, LINEAGE, 0),
        boot=1,
        assigned=0,
        wall_us=WALL_US,
        now=NOW,
        source_apps=SHOP,
    )
    shard = Asked(source_apps=SHOP)
    shard.host, shard.effects = host, []
    shard.step(FeedEnd(LINEAGE, 1, 1))
    shard.publish(1, change(4, 99))
    (refused,) = answers(shard)
    assert isinstance(refused, NotPublished)
    assert error_of(refused.code, "").retriable
    shard.publish(2, Update("other/x", 3))
    assert shard.take(Append)
    reset = Update(app_key("shop"), 5, reset=True)
    shard.step(Apply(LINEAGE, 1, 1, [(1, reset)]))
    shard.publish(3, change(4, 99))
    assert UpdatesPublished(3, [-1]) in answers(shard)


@pytest.mark.parametrize("held", [False, True])
def test_whoever_published_it_is_told_which_one_is_late(held: bool) -> None:
    submissions = Submissions(1, Holding())
    first = [] if held else submissions.link_up(0)
    outputs = submissions.submit(Submitted("request", [change(4, 1), change(5, 2)]), 0.0)
    (sent_part,) = outputs or submissions.link_up(0)
    assert not first
    assert isinstance(sent_part.message, PublishUpdates)  # type: ignore[union-attr]
    (settled,) = submissions.answered(1, [-1, change(5, 2).version])
    assert isinstance(settled, Settled)
    late, good = settled.outcomes
    assert isinstance(late, TooLate)
    assert not late.retriable
    assert good == change(5, 2).version
