"""The reset of an app, at the shard: one record, and everything of the app is unknown, once."""

import pytest
from tests.host.shards import LINEAGE, LINK, NOW, WALL_US, Asked, sent
from tests.host.test_shard import shard_of_known

from roskva.core.effects import (
    Apply,
    FeedEnd,
    Loaded,
    LoadObjects,
    ObjectRow,
    Persist,
    Persisted,
    PutShard,
    Tick,
)
from roskva.core.matcher import MatcherConfig
from roskva.errors import LimitExceeded, Unavailable
from roskva.host.effects import Append, NotAppended
from roskva.host.shard import ShardHost
from roskva.model import (
    MAX_RESET_APPS,
    START_OF_2025_S,
    Update,
    app_key,
    is_app,
    mark_of,
    mark_under,
    next_generation,
    reset_mark,
)
from roskva.wire.links import (
    LINK_PROTOCOL,
    CurrentVersion,
    LinkHello,
    NotPublished,
    Push,
    Pushes,
    ResetApp,
    UpdatesPublished,
    Versions,
)

X, Y, OTHER = "app/x", "app/y", "other/x"
RESET = Update(app_key("app"), 5, reset=True)


def told(shard: Asked, effects: list[object]) -> dict[str, tuple[int, int]]:
    """By object: the version and the mark that a registrar was last told, and is told at once."""
    said = [*sent(effects), *sent(shard.step(Tick()))]  # type: ignore[arg-type]
    told: list[CurrentVersion | Push] = []
    for message in said:
        if isinstance(message, Versions):
            told += message.known
        elif isinstance(message, Pushes):
            told += message.pushes
    return {one.object: (one.version, mark_of(one.epoch)) for one in told}


def reset(shard: Asked, generation: int = 5, app: str = "app") -> list[object]:
    shard.say(ResetApp(9, app, generation))
    return list(shard.commit())


def apply(shard: Asked, first: int, *updates: Update) -> list[object]:
    entries = list(enumerate(updates, first))
    return list(shard.step(Apply(LINEAGE, first, entries[-1][0], entries)))


def test_all_objects_of_the_app_are_unknown_and_no_others() -> None:
    shard = shard_of_known(X, Y, OTHER)
    shard.publish(1, Update(X, 100), Update(OTHER, 7))
    shard.commit()
    mark = mark_under(0, 5)
    assert told(shard, reset(shard)) == {X: (-1, mark), Y: (-1, mark)}


def test_it_is_answered_when_it_is_durable_and_named_by_its_generation() -> None:
    shard = shard_of_known(X)
    shard.say(ResetApp(9, "app", 5))
    (append,) = shard.take(Append)
    assert [(u.object, u.version, u.reset) for u in append.updates] == [("app/", 5, True)]
    shard.effects.append(append)
    assert UpdatesPublished(9, [5]) in sent(shard.commit())
    for generation in (0, 4, 5):
        assert sent(shard.say(ResetApp(10, "app", generation))) == [UpdatesPublished(10, [5])]
    assert shard.take(Append) == []


def test_versions_after_it_may_be_lower_and_are_told() -> None:
    shard = shard_of_known(X)
    shard.publish(1, Update(X, 100))
    shard.commit()
    reset(shard)
    shard.publish(2, Update(X, 3, "phone"))
    assert told(shard, list(shard.commit())) == {X: (3, mark_under(0, 5))}
    (push,) = [p for m in sent(shard.effects) if isinstance(m, Pushes) for p in m.pushes][-1:]
    assert (push.previous, push.source) == (-1, "phone")


def test_one_that_comes_twice_or_late_changes_nothing() -> None:
    shard = shard_of_known(X)
    apply(shard, 1, Update(X, 100), RESET, Update(X, 3))
    shard.step(Tick())
    again = apply(shard, 4, RESET, Update(app_key("app"), 4, reset=True))
    assert told(shard, again) == {}
    assert shard.host.matcher.objects[X].version() == 3


def test_what_comes_in_one_range_with_it_ends_as_one_by_one() -> None:
    shard = shard_of_known(X, Y)
    effects = apply(shard, 1, Update(X, 100), Update(Y, 50), RESET, Update(X, 3))
    assert told(shard, effects) == {X: (3, mark_under(0, 5)), Y: (-1, mark_under(0, 5))}


def test_beyond_a_gap_it_does_not_count_until_the_gap_is_closed() -> None:
    shard = shard_of_known(X)
    apply(shard, 2, RESET)
    assert shard.host.matcher.generations == {}
    assert told(shard, apply(shard, 1, Update(X, 100), RESET)) == {X: (-1, mark_under(0, 5))}


def test_the_generation_is_written_with_the_marker_that_covers_it_and_versions_carry_it() -> None:
    shard = shard_of_known(X)
    shard.publish(1, Update(X, 100))
    shard.commit()
    for persist in shard.take(Persist):
        shard.step(Persisted(persist.id))
    reset(shard)
    (persist,) = shard.take(Persist)
    assert persist.writes[-1] == PutShard(shard.host.matcher.epoch, LINEAGE, 2, (("app", 5),))
    shard.step(Persisted(persist.id))
    shard.publish(2, Update(X, 3))
    shard.commit()
    (persist,) = shard.take(Persist)
    row, marker = persist.writes
    assert row.row.generation == 5  # type: ignore[union-attr]
    assert marker.generations == ()  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("row", "known"),
    [
        (ObjectRow(100, epoch=1), (-1, mark_under(0, 5))),
        (ObjectRow(3, epoch=1, generation=5), (3, mark_under(0, 5))),
        (ObjectRow(3, 77, epoch=1, generation=5), (3, mark_under(77, 5))),
    ],
)
def test_after_a_start_rows_of_an_older_generation_are_void(
    row: ObjectRow, known: tuple[int, int]
) -> None:
    shard = Asked()
    stored = PutShard(1, LINEAGE, 0, (("app", 5),))
    shard.host = ShardHost(
        MatcherConfig(0, 1), stored, boot=2, assigned=0, wall_us=WALL_US, now=NOW
    )
    shard.step(FeedEnd(LINEAGE, 0, 1))
    shard.say(LinkHello(LINK_PROTOCOL, "registrar", 0, 1), LINK)
    shard.watch(X)
    (load,) = shard.take(LoadObjects)
    assert told(shard, list(shard.step(Loaded(load.id, {X: row})))) == {X: known}


def test_a_shard_that_has_not_read_its_feed_does_not_say_what_it_has() -> None:
    shard = Asked()
    shard.host.matcher.caught_up = False
    (answer,) = sent(shard.say(ResetApp(9, "app", 0)))
    assert isinstance(answer, NotPublished)
    assert answer.code == Unavailable.code


def test_one_that_was_not_durable_may_be_asked_for_again() -> None:
    shard = Asked()
    for request in (9, 10):
        shard.say(ResetApp(request, "app", 5))
        (append,) = shard.take(Append)
        shard.step(NotAppended([append.request], Unavailable("full")))
    assert UpdatesPublished(9, [5]) in sent(reset(shard))  # type: ignore[arg-type]


def test_an_app_that_is_not_on_the_fast_path_is_answered_before_its_matcher_has_it() -> None:
    shard = Asked(slow=frozenset({"app"}))
    assert UpdatesPublished(9, [5]) in sent(reset(shard))  # type: ignore[arg-type]
    assert shard.host.matcher.generations == {}
    assert sent(shard.say(ResetApp(10, "app", 0))) == [UpdatesPublished(10, [5])]


def test_generations_are_kept_of_so_many_apps_and_no_more() -> None:
    shard = Asked()
    shard.host.matcher.generations = {f"app-{i}": 1 for i in range(MAX_RESET_APPS)}
    (answer,) = sent(shard.say(ResetApp(9, "app", 5)))
    assert isinstance(answer, NotPublished)
    assert answer.code == LimitExceeded.code
    assert UpdatesPublished(9, [2]) in sent(reset(shard, 2, "app-7"))  # type: ignore[arg-type]


def test_registrars_are_told_in_slices_and_others_meanwhile_what_is_newer() -> None:
    keys = [f"app/{i}" for i in range(1200)]
    shard = shard_of_known(*keys[:500])
    for part in (keys[500:1000], keys[1000:]):
        shard.watch(*part)
        for load in shard.take(LoadObjects):
            shard.step(Loaded(load.id, {key: ObjectRow() for key in load.keys}))
    assert sent(reset(shard)) == [UpdatesPublished(9, [5])]  # type: ignore[arg-type]
    slices = []
    while shard.host.next_deadline() == 0.0:
        (message,) = sent(shard.step(Tick()))
        assert isinstance(message, Versions)
        slices.append([one.object for one in message.known])
    assert list(map(len, slices)) == [500, 500, 200]
    assert [key for part in slices for key in part] == keys


def test_the_next_generation_is_above_all_known_and_above_the_hours() -> None:
    assert next_generation([], START_OF_2025_S) == 1
    assert next_generation([3, 0], START_OF_2025_S) == 4
    assert next_generation([3, 0], START_OF_2025_S + 3600 * 100) == 101
    assert next_generation([3], 0.0) == 4


def test_an_app_is_no_object_and_its_marks_are_never_that_of_no_reset() -> None:
    assert is_app(app_key("app"))
    assert not any(map(is_app, ("app/x", "app/x/", "app//")))
    assert mark_under(0, 0) == 0
    own = reset_mark(2**20 - 2)
    assert mark_under(own, 0) == own
    marks = [mark_under(own, generation) for generation in range(5)]
    assert len(set(marks)) == 5
    assert all(0 < mark < 2**20 for mark in marks)
