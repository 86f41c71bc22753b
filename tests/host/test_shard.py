"""The order of effects of a shard: appended, applied, told, answered."""

import pickle
from random import Random

import pytest
from tests.host.shards import AN_HOUR_US, LINEAGE, NOW, WALL_US, Asked, kinds, sent, unversioned

from roskva.core.effects import (
    Apply,
    Failed,
    FeedEnd,
    LinkDown,
    Loaded,
    LoadObjects,
    ObjectRow,
    Persist,
    Persisted,
    PutAssigned,
    PutShard,
    ReadFeed,
    SendLink,
    Tick,
)
from roskva.core.objects import coalesce
from roskva.errors import StorageUnavailable
from roskva.host.effects import Append, NotAppended, SetMarker
from roskva.host.shard import GAP_CLOSED_S, SLICE, every_app
from roskva.model import Update
from roskva.wire.links import (
    AwaitGap,
    CurrentVersion,
    Gap,
    NotPublished,
    Offer,
    OpenSession,
    Ping,
    Pushes,
    Taken,
    UpdatesPublished,
    Versions,
)

X, Y = "app/x", "app/y"
ROW = ObjectRow()


def shard_of_known(*keys: str, slow: frozenset[str] = frozenset()) -> Asked:
    """One that a registrar wants these of, and that has loaded them."""
    shard = Asked(slow=slow)
    shard.watch(*keys)
    for load in shard.take(LoadObjects):
        shard.step(Loaded(load.id, {key: ROW for key in load.keys}))
    shard.effects.clear()
    return shard


def test_a_publish_is_appended_and_nothing_is_said_before_it_is_durable() -> None:
    shard = shard_of_known(X)
    shard.publish(1, Update(X, 5))
    assert [type(effect) for effect in shard.effects] == [Append]


def test_what_is_durable_is_told_before_its_publisher_is_answered() -> None:
    shard = shard_of_known(X)
    shard.publish(1, Update(X, 5))
    effects = shard.commit()
    assert kinds(effects) == ["Pushes", "UpdatesPublished"]
    assert shard.host.matcher.applied == 1


def test_a_group_is_told_before_any_of_its_publishers_is_answered() -> None:
    shard = shard_of_known(X, Y)
    for request, update in ((1, Update(X, 1)), (2, Update(Y, 1)), (3, Update(X, 2))):
        shard.publish(request, update)
    told, *answers = sent(shard.commit())
    assert isinstance(told, Pushes)
    assert {(push.object, push.version) for push in told.pushes} == {(X, 2), (Y, 1)}
    assert answers == [UpdatesPublished(1, [1]), UpdatesPublished(2, [1]), UpdatesPublished(3, [2])]


def test_a_group_that_is_not_durable_is_refused_and_applied_to_nothing() -> None:
    shard = shard_of_known(X)
    shard.publish(1, Update(X, 5))
    shard.publish(2, Update(X, 6))
    requests = [append.request for append in shard.take(Append)]
    answers = sent(shard.step(NotAppended(requests, StorageUnavailable("no space"))))
    assert answers == [
        NotPublished(request, StorageUnavailable.code, "no space") for request in (1, 2)
    ]
    assert shard.host.matcher.applied == 0


def test_a_large_group_is_applied_in_slices_and_its_marker_stands_at_its_end() -> None:
    shard = shard_of_known(X)
    shard.publish(1, *(Update(X, version) for version in range(1, 2 * SLICE + 2)))
    effects = shard.commit()
    assert kinds(effects) == ["Pushes", "Pushes", "Pushes", "UpdatesPublished"]
    assert shard.host.matcher.applied == 2 * SLICE + 1


# Versions that are assigned.


def test_nothing_is_assigned_above_a_limit_that_is_not_on_disk() -> None:
    shard = Asked()
    for request in (1, 2):
        shard.publish(request, unversioned("x"), unversioned("y"))
    assert shard.take(Append) == []
    (raising,) = shard.take(Persist)
    (write,) = raising.writes
    assert isinstance(write, PutAssigned)
    shard.step(Persisted(raising.id))
    first, second = shard.take(Append)
    versions = [update.version for append in (first, second) for update in append.updates]
    assert versions == sorted(set(versions))
    assert versions[0] >= WALL_US
    assert versions[-1] < write.limit
    shard.publish(3, unversioned("x"))
    (third,) = shard.take(Append)
    assert third.updates[0].version > versions[-1]


def test_versions_go_on_above_the_limit_of_before_whatever_the_clock_says() -> None:
    shard = Asked(assigned=WALL_US + AN_HOUR_US)
    shard.publish(1, unversioned("x"))
    (raising,) = shard.take(Persist)
    shard.step(Persisted(raising.id))
    (append,) = shard.take(Append)
    assert append.updates[0].version > WALL_US + AN_HOUR_US


def test_everybody_who_waits_learns_that_the_disk_failed_and_the_next_may_succeed() -> None:
    shard = Asked()
    for request in (1, 2):
        shard.publish(request, unversioned("x"))
    (raising,) = shard.take(Persist)
    answers = sent(shard.step(Failed(raising.id)))
    assert [type(answer) for answer in answers] == [NotPublished, NotPublished]
    shard.publish(3, unversioned("x"))
    (again,) = shard.take(Persist)
    shard.step(Persisted(again.id))
    assert len(shard.take(Append)) == 1


def test_assigned_versions_follow_the_clock() -> None:
    shard = Asked()
    shard.publish(1, unversioned("x"))
    shard.step(Persisted(shard.take(Persist)[0].id))
    shard.take(Append)
    shard.now = NOW + 30.0
    shard.publish(2, unversioned("x"))
    (append,) = shard.take(Append)
    assert append.updates[0].version == WALL_US + 30 * 10**6


# What is not on the fast path.


def test_an_app_off_the_fast_path_is_read_from_the_feed_if_there_is_no_bridge() -> None:
    shard = shard_of_known("slow/x", slow=frozenset(("slow",)))
    shard.publish(1, Update("slow/x", 1))
    assert kinds(shard.commit()) == ["UpdatesPublished"]
    shard.step(FeedEnd(LINEAGE, 1, 1))
    assert shard.take(ReadFeed) == [], "it has just started, and a bridge may be about to come"
    while shard.now < NOW + 10.0:
        shard.now += 1.0
        shard.say(Ping(0, 0))
        shard.step(Tick())
    assert shard.take(ReadFeed) == [ReadFeed(LINEAGE, 0)]
    assert kinds(shard.step(Apply(LINEAGE, 1, 1, [(1, Update("slow/x", 1))]))) == ["Pushes"]
    assert shard.ways.counts == {"own": 1}
    assert shard.ways.alone == [True]


def test_neighbours_of_a_slow_app_are_told_at_once_and_the_marker_waits() -> None:
    shard = shard_of_known(X, slow=frozenset(("slow",)))
    shard.publish(1, Update("slow/x", 1), Update(X, 1))
    assert kinds(shard.commit()) == ["Pushes", "UpdatesPublished"]
    assert shard.host.matcher.applied == 0


def with_a_bridge(**options: frozenset[str]) -> Asked:
    shard = shard_of_known(X, **options)
    shard.say(Offer(1, 0), link=9)
    shard.effects.clear()
    return shard


def ask_where_it_stands(shard: Asked, seconds: float) -> None:
    """As the bridge does all the time, and the clock that says where the feed ends."""
    until = shard.now + seconds
    while shard.now < until and not any(isinstance(e, ReadFeed) for e in shard.effects):
        shard.now += 1.0
        shard.say(Offer(1, 0), link=9)
        shard.step(FeedEnd(LINEAGE, shard.end, 1))
        shard.step(Tick())


def brought(shard: Asked, first: int, *updates: Update) -> None:
    last = first + len(updates) - 1
    shard.say(Offer(2, 0, LINEAGE, first, last, list(enumerate(updates, first))), link=9)


def test_what_is_off_the_fast_path_is_left_to_a_bridge_that_is_alive() -> None:
    shard = with_a_bridge(slow=frozenset(("slow",)))
    for version in range(1, 6):
        shard.publish(version, Update("slow/x", version))
        shard.commit()
        ask_where_it_stands(shard, 8.0)
        brought(shard, version, Update("slow/x", version))
    assert shard.take(ReadFeed) == []
    assert shard.ways.counts == {"bridge": 5}
    assert shard.ways.alone == []


def test_what_a_bridge_asks_about_and_does_not_bring_is_read_after_ten_seconds() -> None:
    shard = with_a_bridge(slow=frozenset(("slow",)))
    shard.publish(1, Update("slow/x", 1))
    shard.commit()
    left_at = shard.now
    ask_where_it_stands(shard, 60.0)
    assert shard.take(ReadFeed) == [ReadFeed(LINEAGE, 0)]
    assert shard.now - left_at <= 11.0
    shard.step(Apply(LINEAGE, 1, 1, [(1, Update("slow/x", 1))]))
    assert shard.ways.counts == {"own": 1}
    assert shard.ways.alone == [True]

    shard.publish(2, Update("slow/x", 2))
    shard.commit()
    ask_where_it_stands(shard, 60.0)
    assert shard.now - left_at <= 13.0, "it has failed before, and is not waited for again"

    brought(shard, 2, Update("slow/x", 2))
    shard.effects.clear()
    shard.publish(3, Update("slow/x", 3))
    shard.commit()
    ask_where_it_stands(shard, 8.0)
    assert shard.take(ReadFeed) == [], "it has brought something, and is trusted again"
    assert shard.ways.alone == [True, False]


def test_a_bridge_that_is_always_a_little_behind_makes_nobody_wait_for_long() -> None:
    """It brings an update every nine seconds, and every second there is another one."""
    shard = with_a_bridge(slow=frozenset(("slow",)))
    seen_at = [shard.now]
    for version in range(1, 60):
        shard.publish(version, Update("slow/x", version))
        shard.commit()
        seen_at.append(shard.now)
        ask_where_it_stands(shard, 1.0)
        if version % 9 == 0:
            place = shard.host.matcher.applied + 1
            brought(shard, place, Update("slow/x", place))
        for asked in shard.take(ReadFeed):
            entries = [(at, Update("slow/x", at)) for at in range(asked.after + 1, shard.end + 1)]
            shard.step(Apply(LINEAGE, asked.after + 1, shard.end, entries))
        oldest = shard.host.matcher.applied + 1
        assert oldest > shard.end or shard.now - seen_at[oldest] <= GAP_CLOSED_S + 1.0
    assert shard.ways.counts["own"] > 0 < shard.ways.counts["bridge"]


def test_a_bridge_that_is_gone_is_waited_for_no_longer() -> None:
    shard = with_a_bridge(slow=frozenset(("slow",)))
    shard.now += 10.0
    shard.publish(1, Update("slow/x", 1))
    shard.commit()
    shard.step(FeedEnd(LINEAGE, 1, 1))
    assert shard.take(ReadFeed) == [ReadFeed(LINEAGE, 0)]
    shard.say(Offer(1, 0), link=9)
    assert shard.ways.alone == [True, False]


def gaps_told(shard: Asked) -> list[Gap]:
    return [e.message for e in shard.take(SendLink) if isinstance(e.message, Gap)]


def test_a_bridge_that_waits_is_told_when_something_is_left_to_it() -> None:
    shard = with_a_bridge(slow=frozenset(("slow",)))
    shard.say(AwaitGap(7, 0, LINEAGE, 0), link=9)
    shard.publish(1, Update(X, 1))
    shard.commit()
    shard.step(FeedEnd(LINEAGE, shard.end, 1))
    assert gaps_told(shard) == [], "it came by the fast path"
    shard.publish(2, Update("slow/x", 1))
    shard.commit()
    assert gaps_told(shard) == [Gap(7, 0, 1, 2)]
    shard.publish(3, Update("slow/x", 2))
    shard.commit()
    assert gaps_told(shard) == [], "it has to ask again"
    shard.say(AwaitGap(8, 0, LINEAGE, 2), link=9)
    assert gaps_told(shard) == [Gap(8, 0, 1, 3)]
    shard.say(AwaitGap(9, 0, LINEAGE, 3), link=9)
    assert gaps_told(shard) == [], "it has been up to there"
    shard.say(AwaitGap(10, 0, LINEAGE + 1, 3), link=9)
    assert gaps_told(shard) == [Gap(10, 0, 1, 3)], "but of another feed"


def test_a_gap_that_the_fast_path_has_left_is_told_of_too() -> None:
    shard = with_a_bridge()
    shard.say(AwaitGap(7, 0, LINEAGE, 0), link=9)
    shard.end = 1
    shard.publish(1, Update(X, 2))
    shard.commit()
    assert gaps_told(shard) == [Gap(7, 0, 0, 2)]


def test_whoever_is_gone_is_not_told() -> None:
    shard = with_a_bridge(slow=frozenset(("slow",)))
    shard.say(AwaitGap(7, 0, LINEAGE, 0), link=9)
    shard.step(LinkDown(9))
    shard.publish(1, Update("slow/x", 1))
    shard.commit()
    assert gaps_told(shard) == []


def test_what_is_left_to_the_bridge_is_no_gap_and_what_is_lost_is_one() -> None:
    shard = with_a_bridge(slow=frozenset(("slow",)))
    shard.publish(1, Update("slow/x", 1), Update(X, 1))
    shard.commit()
    for version in range(2, 5):
        shard.publish(version, Update(X, version))
        shard.commit()
    assert shard.ways.gaps == 0
    shard.end += 1  # never handed over
    for version in range(5, 8):
        shard.publish(version, Update(X, version))
        shard.commit()
    assert shard.ways.gaps == 1, "one, however much comes until it is closed"
    shard.step(FeedEnd(LINEAGE, shard.end, 1))
    assert shard.ways.gaps == 1
    shard.step(FeedEnd(LINEAGE, shard.end + 1, 1))
    assert shard.ways.gaps == 2


def test_what_is_read_at_the_start_counts_apart() -> None:
    shard = Asked(end=2)
    entries = [(1, Update(X, 1)), (2, Update(Y, 1))]
    shard.step(Apply(LINEAGE, 1, 2, entries))
    shard.publish(1, Update(X, 2))
    shard.commit()
    assert shard.ways.counts == {"start": 2, "fast": 1}
    assert shard.ways.alone == []


def test_a_bridge_that_is_at_work_is_given_time_to_close_a_gap() -> None:
    shard = with_a_bridge()
    shard.end = 1  # something before was never handed over
    shard.publish(1, Update(X, 2))
    shard.commit()
    assert shard.take(ReadFeed) == []
    left_at = shard.now
    while shard.now < left_at + 10.0:
        deadline = shard.host.next_deadline()
        assert deadline is not None
        shard.step(Tick())
        assert shard.take(ReadFeed) == []
        shard.now = deadline
    shard.step(Tick())
    assert shard.take(ReadFeed) == [ReadFeed(LINEAGE, 0)]


def test_a_gap_that_the_bridge_has_closed_is_not_read_again() -> None:
    shard = with_a_bridge()
    shard.end = 1
    shard.publish(1, Update(X, 2))
    shard.commit()
    shard.say(Offer(2, 0, LINEAGE, 1, 2, [(1, Update(X, 1)), (2, Update(X, 2))]), link=9)
    shard.now += 15.0
    shard.step(Tick())
    assert shard.take(ReadFeed) == []


def test_a_gap_is_read_to_its_end_once_patience_with_the_bridge_is_over() -> None:
    shard = with_a_bridge()
    shard.end = 5
    shard.publish(1, Update(X, 9))
    shard.commit()
    shard.now += 10.0
    shard.step(Tick())
    assert shard.take(ReadFeed) == [ReadFeed(LINEAGE, 0)]
    shard.step(Apply(LINEAGE, 1, 2, [(1, Update(X, 1)), (2, Update(X, 2))]))
    assert shard.take(ReadFeed) == [ReadFeed(LINEAGE, 2)], "a slice at a time, and at once"


def test_patience_with_the_bridge_ends_though_the_matcher_asks_again() -> None:
    shard = with_a_bridge()
    shard.end = 1
    shard.publish(1, Update(X, 2))
    shard.commit()
    asked_at, config = shard.now, shard.host.matcher.config
    while not shard.take(ReadFeed):
        shard.now = min(shard.now + config.read_timeout / 3, shard.host.next_deadline() or 0)
        shard.step(Tick())
        assert shard.now < asked_at + 12.0


def test_an_offer_is_answered_when_it_is_on_disk() -> None:
    shard = shard_of_known(X)
    shard.say(Offer(3, 0, LINEAGE, 1, 1, [(1, Update(X, 1))]), link=9)
    assert kinds(shard.effects) == ["Pushes"]
    (persist,) = shard.take(Persist)
    assert persist.writes[-1] == PutShard(shard.host.matcher.epoch, LINEAGE, 1)
    assert shard.step(Persisted(persist.id)) == [SendLink(9, Taken(3, LINEAGE, 1))]


def test_an_end_of_the_feed_that_was_looked_at_before_the_last_commit_is_no_loss() -> None:
    shard = shard_of_known(X)
    epoch = shard.host.matcher.epoch
    shard.publish(1, Update(X, 1))
    shard.commit()
    shard.step(FeedEnd(LINEAGE, 0, 5))
    assert shard.host.matcher.epoch == epoch
    assert shard.host.matcher.feed_last == 1


# The store and the marker.


def test_the_feed_is_kept_until_what_it_holds_is_in_the_store() -> None:
    shard = shard_of_known(X)
    shard.publish(1, Update(X, 1))
    shard.commit()
    shard.step(FeedEnd(LINEAGE, 1, 1))
    assert shard.take(SetMarker) == []
    shard.step(Persisted(shard.take(Persist)[0].id))
    shard.step(FeedEnd(LINEAGE, 1, 1))
    assert shard.take(SetMarker) == [SetMarker(LINEAGE, 1)]
    shard.step(FeedEnd(LINEAGE, 1, 1))
    assert shard.take(SetMarker) == []


def test_each_machine_gets_the_answers_to_its_own_questions() -> None:
    """Their first requests have the same number."""
    shard = Asked()
    shard.watch(X)
    shard.say(OpenSession(1, b"client"))
    shard.publish(1, unversioned("x"))
    asked = [effect.id for effect in shard.effects if hasattr(effect, "id")]
    assert len(asked) == len(set(asked)) == 3
    load = shard.take(LoadObjects)[0]
    assert kinds(shard.step(Loaded(load.id, {X: ROW}))) == ["Versions"]


def test_a_host_can_be_pickled_in_the_middle_of_its_work() -> None:
    shard = shard_of_known(X)
    shard.publish(1, unversioned("x"))
    shard.publish(2, Update(X, 5))
    shard.host.fast_path = every_app
    again = pickle.loads(pickle.dumps(shard.host))
    shard.host = again
    assert kinds(shard.commit()) == ["Pushes", "UpdatesPublished"]


# However updates reach the matcher.


def known(shard: Asked) -> list[CurrentVersion]:
    """What the shard says of what was asked for last, when the store has nothing newer."""
    (load,) = shard.take(LoadObjects)
    (said,) = sent(shard.step(Loaded(load.id, dict.fromkeys(load.keys, ROW))))
    assert isinstance(said, Versions)
    return said.known


def test_on_the_fast_path_all_that_is_published_was_new_or_old() -> None:
    dice, shard, count = Random(0), Asked(), 300
    for request in range(1, count + 1):
        shard.publish(request, Update(dice.choice((X, Y)), dice.randrange(50)))
        if dice.random() < 0.3:
            shard.commit()
    shard.commit()
    counted = shard.host.matcher.counters
    assert counted["applied"] + counted["old"] == count
    assert counted["old"] > 0


@pytest.mark.parametrize("seed", range(5))
def test_the_marker_reaches_the_end_whoever_brings_what(seed: int) -> None:
    """Some apps are not on the fast path; a bridge offers what was published in ranges, some of it
    twice, and without what is outdated."""
    dice, shard = Random(seed), Asked(slow=frozenset(("slow",)))
    feed: list[tuple[int, Update]] = []
    offered = 0
    for request in range(1, 301):
        update = Update(dice.choice((X, Y, "slow/x", "slow/y")), dice.randrange(50))
        shard.publish(request, update)
        shard.commit()
        feed.append((shard.end, update))
        while offered < shard.end and (dice.random() < 0.1 or request == 300):
            first = max(1, offered + 1 - dice.randrange(3))
            offered = dice.randint(offered + 1, shard.end)
            part = [entry for entry in feed if first <= entry[0] <= offered]
            shard.say(Offer(1, 0, LINEAGE, first, offered, coalesce(part)), link=9)
    assert shard.host.matcher.applied == shard.end
    newest = {key: max(u.version for _, u in feed if u.object == key) for key in (X, "slow/x")}
    shard.watch(*newest)
    told = {one.object: one.version for one in known(shard)}
    assert told == newest
