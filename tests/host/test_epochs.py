"""A new epoch is a record in the feed: asked for by who has lost something, and read back."""

import pytest
from tests.host.shards import LINEAGE, LINK, NOW, WALL_US, Asked, kinds, sent
from tests.host.test_app_reset import apply
from tests.host.test_shard import shard_of_known

from roskva.core.effects import (
    Apply,
    DropLink,
    FeedEnd,
    FeedMissing,
    Loaded,
    LoadObjects,
    ObjectRow,
    Persist,
    Persisted,
    PutShard,
    Tick,
)
from roskva.core.matcher import MatcherConfig, from_nothing
from roskva.errors import StorageUnavailable
from roskva.host.effects import Append, NotAppended
from roskva.host.shard import ShardHost
from roskva.model import Loss, Update, epoch_record, loss_of, shard_epoch, shard_part
from roskva.wire.links import (
    LINK_PROTOCOL,
    CurrentVersion,
    Interest,
    LinkHello,
    Ping,
    Push,
    Pushes,
    Versions,
)

X, Y = "app/x", "app/y"
FIRST = shard_epoch(1)
"""The epoch of a shard that has lost nothing yet."""
BITS = 41
PROPOSED = shard_epoch(BITS)
ANOTHERS = PROPOSED + 1
LATER = 2
"""A link that is opened later."""


def damage(last: int) -> Loss:
    return Loss(LINEAGE, last, "damage")


def started(stored: PutShard, end: int) -> Asked:
    """From what is on disk, over a feed that ends there."""
    shard = Asked()
    shard.host = ShardHost(
        MatcherConfig(0, 1), stored, boot=2, assigned=0, wall_us=WALL_US, now=NOW
    )
    shard.effects.clear()
    shard.end = end
    shard.step(FeedEnd(LINEAGE, end, BITS))
    return shard


def with_a_loss(*keys: str) -> Asked:
    """It knew what this registrar wants, and has just learnt that offset 1 is damaged."""
    shard = shard_of_known(*keys)
    shard.end = 1
    shard.step(FeedMissing(LINEAGE, 1, BITS))
    return shard


def asked_for(shard: Asked) -> list[tuple[int, Loss]]:
    """The records that are to be appended; they stay so."""
    appends = [effect for effect in shard.effects if isinstance(effect, Append)]
    return [(each.version, loss_of(each)) for append in appends for each in append.updates]


def connect(shard: Asked, *keys: str) -> None:
    """A registrar that wants these, over a new link. The store has no rows of them."""
    shard.say(LinkHello(LINK_PROTOCOL, "registrar", 0, 1), LATER)
    shard.say(Interest(add=list(keys)), LATER)
    for load in shard.take(LoadObjects):
        shard.step(Loaded(load.id, {key: ObjectRow() for key in load.keys}))


def told(shard: Asked) -> list[tuple[str, int, int]]:
    """Objects, versions and epochs, in the order in which they were said."""
    shard.step(Tick())
    told: list[CurrentVersion | Push] = []
    for message in sent(shard.effects):
        if isinstance(message, Versions):
            told += message.known
        elif isinstance(message, Pushes):
            told += message.pushes
    return [(one.object, one.version, shard_part(one.epoch)) for one in told]


def on_disk(shard: Asked) -> PutShard:
    """The row as the store has it, when everything has been written."""
    row: PutShard | None = None
    while persists := shard.take(Persist):
        for persist in persists:
            [row] = [write for write in persist.writes if isinstance(write, PutShard)]
            shard.step(Persisted(persist.id))
    assert row is not None
    return row


# Beginning.


def test_the_first_record_of_a_feed_is_its_first_epoch_and_until_then_nothing_is_said() -> None:
    shard = started(from_nothing(LINEAGE, BITS), end=0)
    connect(shard, X)
    assert kinds(shard.effects) == ["Welcome"]
    assert asked_for(shard) == [(PROPOSED, Loss(LINEAGE, 0, "begun"))]
    shard.commit()
    assert told(shard) == [(X, -1, PROPOSED)]
    assert on_disk(shard) == PutShard(PROPOSED, LINEAGE, 1, excused=0)


def test_over_a_feed_that_is_whole_a_shard_without_rows_goes_on_in_its_epoch() -> None:
    shard = started(from_nothing(LINEAGE, BITS), end=2)
    connect(shard, X)
    apply(shard, 1, epoch_record(ANOTHERS, Loss(LINEAGE, 0, "begun"), 0), Update(X, 7))
    assert asked_for(shard) == []
    assert told(shard) == [(X, 7, ANOTHERS)]


def test_rows_from_before_there_were_records_go_on_in_their_epoch() -> None:
    shard = started(PutShard(FIRST, LINEAGE, 5), end=5)
    connect(shard, X)
    assert asked_for(shard) == []
    assert told(shard) == [(X, -1, FIRST)]


# Losing.


def test_who_has_lost_something_drops_its_links_and_says_nothing_over_new_ones() -> None:
    shard = with_a_loss(X)
    assert shard.take(DropLink) == [DropLink(LINK)]
    assert asked_for(shard) == [(PROPOSED, damage(1))]
    shard.say(Interest(add=[Y]))  # it had not heard yet that its link is gone
    connect(shard, X)
    shard.say(Ping(1, 0), LATER)
    assert kinds(shard.effects) == ["Welcome", "Pong"]
    assert told(shard) == []
    shard.commit()
    assert told(shard) == [(X, -1, PROPOSED)]


def test_publishing_goes_on_while_a_shard_is_silent_and_what_comes_is_known_afterwards() -> None:
    shard = with_a_loss(X)
    [begin] = shard.take(Append)
    connect(shard, X)
    shard.publish(7, Update(X, 9))
    assert kinds(shard.commit()) == ["UpdatesPublished"]
    assert told(shard) == []
    shard.effects.append(begin)
    shard.commit()
    assert told(shard) == [(X, 9, PROPOSED)]


def test_a_feed_that_ends_before_what_was_applied_begins_an_epoch_there() -> None:
    shard = started(PutShard(FIRST, LINEAGE, 9, excused=8), end=5)
    assert asked_for(shard) == [(PROPOSED, Loss(LINEAGE, 5, "truncated"))]
    shard.commit()
    assert on_disk(shard) == PutShard(PROPOSED, LINEAGE, 6, excused=5)


def test_another_feed_begins_with_an_epoch() -> None:
    shard = started(PutShard(FIRST, LINEAGE - 1, 9, excused=8), end=0)
    assert asked_for(shard) == [(PROPOSED, Loss(LINEAGE, 0, "recreated"))]


def test_a_loss_is_read_past_to_the_end_before_a_record_is_asked_for() -> None:
    """There may be one of it: it was asked for before a crash, or by somebody else."""
    shard = started(PutShard(FIRST, LINEAGE, 1), end=5)
    shard.step(FeedMissing(LINEAGE, 3, BITS))
    assert asked_for(shard) == []
    apply(shard, 4, Update(X, 4), epoch_record(ANOTHERS, damage(3), 0))
    assert asked_for(shard) == []
    assert on_disk(shard) == PutShard(ANOTHERS, LINEAGE, 5, excused=3)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_record_that_answers_for_less_than_was_lost_ends_nothing(lost: int) -> None:
    shard = started(PutShard(FIRST, LINEAGE, 1), end=5)
    shard.step(FeedMissing(LINEAGE, 3, BITS))
    apply(shard, 4, epoch_record(ANOTHERS, damage(lost), 0), Update(X, 4))
    assert asked_for(shard) == [(PROPOSED, damage(3))]


# Which record counts.


def test_of_two_records_for_a_loss_the_first_counts_and_a_reader_without_it_follows() -> None:
    shard = shard_of_known(X)
    apply(shard, 1, epoch_record(PROPOSED, damage(0), 0), epoch_record(ANOTHERS, damage(0), 0))
    assert told(shard) == [(X, -1, PROPOSED)]
    assert on_disk(shard) == PutShard(PROPOSED, LINEAGE, 2, excused=0)


def test_also_over_a_crash_between_them() -> None:
    shard = started(PutShard(PROPOSED, LINEAGE, 1, excused=0), end=1)
    connect(shard, X)
    shard.effects.clear()
    apply(shard, 2, epoch_record(ANOTHERS, damage(0), 0))
    assert told(shard) == []


def test_our_record_comes_second_and_the_first_is_our_epoch() -> None:
    shard = with_a_loss(X)
    [ours] = shard.take(Append)
    connect(shard, X)
    apply(shard, 2, epoch_record(ANOTHERS, damage(1), 0), *ours.updates)
    assert told(shard) == [(X, -1, ANOTHERS)]


def test_beyond_a_gap_a_record_does_not_count_until_the_gap_is_closed() -> None:
    shard = shard_of_known(X)
    record = epoch_record(PROPOSED, damage(0), 0)
    apply(shard, 2, record)
    assert shard.host.matcher.epoch == FIRST
    apply(shard, 1, Update(Y, 1), record)
    assert told(shard) == [(X, -1, PROPOSED)]


def test_versions_before_a_record_are_unknown_after_it_and_those_behind_it_known() -> None:
    shard = shard_of_known(X, Y)
    record = epoch_record(PROPOSED, damage(0), 0)
    apply(shard, 1, Update(X, 100), Update(Y, 100), record, Update(Y, 101))
    assert dict((key, (version, epoch)) for key, version, epoch in told(shard)) == {
        X: (-1, PROPOSED),
        Y: (101, PROPOSED),
    }


def test_a_version_that_comes_again_in_an_epoch_is_known_in_it() -> None:
    """It came early, before the record that is in the gap."""
    shard = shard_of_known(X)
    apply(shard, 2, Update(X, 100))
    shard.effects.clear()
    apply(shard, 1, epoch_record(PROPOSED, damage(0), 0), Update(X, 100))
    assert told(shard)[-1] == (X, 100, PROPOSED)


# A crash at every step, and a disk that is full.


def test_who_starts_from_a_row_with_a_loss_is_silent_and_asks_again() -> None:
    before = with_a_loss(X)
    row = on_disk(before)
    assert row == PutShard(PROPOSED, LINEAGE, 1, loss=damage(1))
    shard = started(row, end=1)
    connect(shard, X)
    assert told(shard) == []
    assert asked_for(shard) == [(PROPOSED, damage(1))]


def test_who_starts_after_its_record_was_appended_finds_it() -> None:
    shard = started(PutShard(PROPOSED, LINEAGE, 1, loss=damage(1)), end=2)
    connect(shard, X)
    apply(shard, 2, epoch_record(PROPOSED, damage(1), 0))
    assert asked_for(shard) == []
    assert told(shard) == [(X, -1, PROPOSED)]


def test_who_starts_before_its_row_was_written_finds_loss_and_record() -> None:
    shard = started(PutShard(FIRST, LINEAGE, 0), end=2)
    shard.step(FeedMissing(LINEAGE, 1, BITS))
    apply(shard, 2, epoch_record(ANOTHERS, damage(1), 0))
    assert asked_for(shard) == []
    assert on_disk(shard) == PutShard(ANOTHERS, LINEAGE, 2, excused=1)


def test_a_record_that_the_feed_refuses_is_asked_for_again_and_publishers_hear_no_more_of_it() -> (
    None
):
    shard = with_a_loss(X)
    [begin] = shard.take(Append)
    shard.publish(7, Update(X, 9))
    [publish] = shard.take(Append)
    full = StorageUnavailable("the disk is full")
    refused = shard.step(NotAppended([begin.request, publish.request], full))
    assert kinds(refused) == ["NotPublished"]
    assert asked_for(shard) == []
    shard.now += shard.host.matcher.config.retry_delay
    shard.step(Tick())
    assert asked_for(shard) == [(PROPOSED, damage(1))]
    connect(shard, X)
    shard.commit()
    assert told(shard) == [(X, -1, PROPOSED)]


def test_a_second_loss_while_it_is_silent_is_answered_for_by_a_record_of_its_own() -> None:
    shard = with_a_loss(X)
    [first] = shard.take(Append)
    shard.step(Apply(LINEAGE, 5, 5, [(5, Update(Y, 1))]))
    shard.step(FeedMissing(LINEAGE, 4, BITS + 1))
    apply(shard, 5, Update(Y, 1))
    assert asked_for(shard) == [(PROPOSED + 1, damage(4))]
    connect(shard, X)
    apply(shard, 6, *first.updates)
    assert told(shard) == []
    shard.end = 6
    shard.commit()
    assert told(shard) == [(X, -1, PROPOSED + 1)]
