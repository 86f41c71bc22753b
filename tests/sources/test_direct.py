"""The direct flow, with shards that are away, refuse, answer late, and are asked twice."""

import math
import random
from collections import deque

import pytest

from roskva.core.effects import Event as CoreEvent
from roskva.core.effects import FromLink, LinkDown, LinkUp, SendLink, Tick
from roskva.feed.base import Missing
from roskva.model import NO_VERSION, Update, app_key, ordinal_of, shard_of
from roskva.sources import direct
from roskva.sources.change import version_of
from roskva.sources.direct import (
    MAX_UPDATES,
    DirectFlow,
    Effect,
    MoveMarker,
    RaiseDoubt,
    ReadLog,
    Records,
    SawGeneration,
)
from roskva.wire.links import NotPublished, PublishUpdates, ResetApp, UpdatesPublished

SHARDS = 3


def change(offset: int, row: str, ordinal: int = 1) -> tuple[int, Update]:
    return offset, Update(f"shop/products/{row}", version_of(ordinal, offset), None, b"{}", 7)


def doubt(offset: int, ordinal: int) -> tuple[int, Update]:
    return offset, Update(app_key("shop"), ordinal, "", b"{}", reset=True)


def reached(flow: DirectFlow) -> DirectFlow:
    for shard in range(SHARDS):
        flow.step(LinkUp(shard), 0.0)
    return flow


def sent(effects: list[Effect]) -> list[Update]:
    found = []
    for effect in effects:
        if isinstance(effect, SendLink) and isinstance(effect.message, PublishUpdates):
            found += effect.message.updates
    return found


def answers(effects: list[Effect]) -> list[CoreEvent]:
    found: list[CoreEvent] = []
    for effect in effects:
        if isinstance(effect, SendLink) and isinstance(effect.message, PublishUpdates):
            versions = [update.version for update in effect.message.updates]
            done = UpdatesPublished(effect.message.request, versions)
            found.append(FromLink(effect.link, done))
    return found


def test_the_last_change_of_a_row_is_published_and_the_marker_follows_the_answers() -> None:
    flow = reached(DirectFlow(SHARDS, 0, 5.0, None))
    effects = flow.step(Records([change(1, "a"), change(2, "b"), change(3, "a")], 3), 0.0)
    assert {update.object: update.version for update in sent(effects)} == {
        "shop/products/a": version_of(1, 3),
        "shop/products/b": version_of(1, 2),
    }
    assert all(update.payload is None for update in sent(effects))
    assert not any(isinstance(effect, MoveMarker) for effect in effects)
    moved = [each for answer in answers(effects) for each in flow.step(answer, 0.0)]  # type: ignore[arg-type]
    assert MoveMarker(3) in moved


def test_a_batch_ends_where_its_last_update_is_and_what_is_left_out_has_a_later_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(direct, "MAX_BATCH", 2)
    flow = reached(DirectFlow(SHARDS, 0, 5.0, None))
    rows = [change(1, "a"), change(2, "b"), change(3, "a"), change(4, "c"), change(5, "b")]
    effects = flow.step(Records(rows, 7, superseded=10), 0.0)
    assert flow.superseded == 12
    moved = [each for answer in answers(effects) for each in flow.step(answer, 0.0)]  # type: ignore[arg-type]
    assert [each for each in moved if isinstance(each, MoveMarker)] == [
        MoveMarker(4),  # with the last words on a and c; that on b comes after it
        MoveMarker(7),
    ]
    assert flow.published == 3


def test_who_catches_up_leaves_shards_time_for_others() -> None:
    flow = reached(DirectFlow(SHARDS, 0, 5.0, None))
    count = 10 * MAX_UPDATES
    effects = flow.step(Records([change(n, str(n)) for n in range(1, count + 1)], count), 0.0)
    told: list[Update] = []
    while sent(effects):
        assert len(sent(effects)) <= MAX_UPDATES
        told += sent(effects)
        effects = [each for answer in answers(effects) for each in flow.step(answer, 0.0)]  # type: ignore[arg-type]
    assert len(told) == flow.marker == count


def test_what_is_behind_a_doubt_waits_for_every_shard_and_what_is_before_it_is_void_then() -> None:
    flow = reached(DirectFlow(SHARDS, 0, 5.0, None))
    first = flow.step(Records([change(1, "a"), doubt(2, 5), change(3, "a", 5)], 3), 0.0)
    [before] = sent(first)
    assert before.version == version_of(1, 1)
    asked = [e.message for e in first if isinstance(e, SendLink)]
    assert asked.count(ResetApp(0, "shop", 5)) == SHARDS
    for shard in range(SHARDS):
        assert flow.marker == 0
        effects = flow.step(FromLink(shard, UpdatesPublished(0, [5])), 0.0)
    [after] = sent(effects)
    assert (after.version, flow.marker) == (version_of(5, 3), 2)
    [late] = answers(first)
    assert flow.step(late, 0.0) == []  # type: ignore[arg-type]
    flow.step(answers(effects)[0], 0.0)  # type: ignore[arg-type]
    assert flow.marker == 3


def test_without_publishing_doubts_are_passed_on_and_the_marker_moves() -> None:
    flow = reached(DirectFlow(SHARDS, 0, 5.0, None, publishes=False))
    effects = flow.step(Records([change(1, "a"), doubt(2, 5), change(3, "a", 5)], 3), 0.0)
    asked = [each.message for each in effects if isinstance(each, SendLink)]
    assert asked.count(ResetApp(0, "shop", 5)) == SHARDS
    assert flow.marker == 0
    for shard in range(SHARDS):
        effects = flow.step(FromLink(shard, UpdatesPublished(0, [5])), 0.0)
    assert (flow.marker, flow.published, sent(effects)) == (3, 0, [])


def test_a_shard_that_does_not_answer_a_reset_is_asked_again() -> None:
    flow = reached(DirectFlow(SHARDS, 0, 5.0, None))
    flow.step(Records([doubt(1, 5)], 1), 0.0)
    flow.step(FromLink(0, UpdatesPublished(0, [5])), 0.0)
    flow.step(FromLink(1, NotPublished(0, "unavailable", "not yet")), 0.0)
    flow.step(LinkDown(2), 0.0)
    again = flow.step(Tick(), flow.next_deadline())
    assert [each.link for each in again if isinstance(each, SendLink)] == [1]
    back = flow.step(LinkUp(2), 3.0)
    assert ResetApp(0, "shop", 5) in [e.message for e in back if isinstance(e, SendLink)]


def test_a_late_answer_to_an_earlier_reset_says_nothing_of_this_one() -> None:
    flow = reached(DirectFlow(SHARDS, 0, 5.0, None))
    flow.step(Records([doubt(1, 5), doubt(2, 6)], 2), 0.0)
    flow.step(Tick(), flow.next_deadline())  # the first is asked for twice
    for shard in range(SHARDS):
        flow.step(FromLink(shard, UpdatesPublished(0, [5])), 3.0)
    effects = [
        each
        for shard in range(SHARDS)
        for each in flow.step(FromLink(shard, UpdatesPublished(0, [5])), 3.0)
    ]
    assert MoveMarker(2) not in effects
    for shard in range(SHARDS):
        effects += flow.step(FromLink(shard, UpdatesPublished(0, [6])), 3.0)
    assert effects.count(MoveMarker(2)) == 1


def test_what_is_too_late_is_not_sent_again_and_says_that_the_app_was_reset() -> None:
    flow = reached(DirectFlow(SHARDS, 0, 5.0, None))
    first = flow.step(Records([change(1, "a", 4), change(2, "b", 4)], 2), 0.0)
    effects = [
        each
        for answer in answers(first)
        if isinstance(answer, FromLink) and isinstance(answer.message, UpdatesPublished)
        for each in flow.step(
            FromLink(
                answer.link,
                UpdatesPublished(answer.message.request, [-1] * len(answer.message.versions)),
            ),
            0.0,
        )
    ]
    assert SawGeneration(5) in effects
    assert MoveMarker(2) in effects
    assert not sent(flow.step(Tick(), 100.0))
    assert (flow.published, flow.superseded) == (0, 2)


def test_a_shard_that_comes_back_is_asked_for_the_last_reset() -> None:
    """It may have lost it with its feed. To others that is nothing."""
    flow = reached(DirectFlow(SHARDS, 0, 5.0, None, passed=ResetApp(0, "shop", 4)))
    assert SendLink(1, ResetApp(0, "shop", 4)) in flow.step(LinkUp(1), 0.0)
    flow.step(Records([doubt(1, 5)], 1), 0.0)
    for shard in range(SHARDS):
        flow.step(FromLink(shard, UpdatesPublished(0, [5])), 0.0)
    assert SendLink(1, ResetApp(0, "shop", 5)) in flow.step(LinkUp(1), 0.0)
    flow.step(FromLink(1, NotPublished(0, "unavailable", "it has not read its feed yet")), 0.0)
    assert flow.step(Tick(), flow.next_deadline()) == [SendLink(1, ResetApp(0, "shop", 5))]
    assert flow.step(FromLink(1, UpdatesPublished(0, [5])), 3.0) == []
    assert flow.next_deadline() == math.inf
    assert flow.step(FromLink(1, UpdatesPublished(0, [7])), 3.0) == [SawGeneration(7)]


def test_a_shard_that_comes_back_while_others_reset_may_have_lost_what_it_had_answered() -> None:
    flow = reached(DirectFlow(SHARDS, 0, 5.0, None))
    flow.step(Records([doubt(1, 5)], 1), 0.0)
    for shard in (0, 1):
        flow.step(FromLink(shard, UpdatesPublished(0, [5])), 0.0)
    flow.step(LinkDown(1), 0.0)
    flow.step(FromLink(2, UpdatesPublished(0, [5])), 0.0)
    assert SendLink(1, ResetApp(0, "shop", 5)) in flow.step(LinkUp(1), 0.0)


def test_the_first_change_that_is_read_says_which_reset_was_the_last() -> None:
    flow = reached(DirectFlow(SHARDS, 3, 5.0, None))
    assert len(flow.step(LinkUp(1), 0.0)) == 1  # nothing but a greeting
    effects = flow.step(Records([change(4, "a", 5)], 4), 0.0)
    asked = [SendLink(shard, ResetApp(0, "shop", 5)) for shard in range(SHARDS)]
    assert all(each in effects for each in asked)


def test_behind_a_hole_the_marker_waits_for_a_doubt() -> None:
    flow = reached(DirectFlow(SHARDS, 0, 5.0, None))
    [asked] = [e for e in flow.step(Missing(1, 7, "damage"), 0.0) if isinstance(e, RaiseDoubt)]
    assert asked.doubt.cause == "log lost"
    first = flow.step(Records([change(8, "a")], 8), 0.0)
    assert len(sent(first)) == 1
    effects = [each for answer in answers(first) for each in flow.step(answer, 0.0)]  # type: ignore[arg-type]
    assert not any(isinstance(each, MoveMarker) for each in effects)
    flow.step(Records([doubt(9, 5)], 9), 0.0)
    for shard in range(SHARDS):
        effects += flow.step(FromLink(shard, UpdatesPublished(0, [5])), 0.0)
    assert MoveMarker(9) in effects


def published(message: PublishUpdates, generation: int) -> list[int]:
    """What is late is refused."""
    return [
        NO_VERSION if ordinal_of(update.version) < generation else update.version
        for update in message.updates
    ]


@pytest.mark.parametrize("seed", range(20))
def test_every_row_ends_with_its_last_version_whatever_shards_do(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    dice = random.Random(seed)
    monkeypatch.setattr(direct, "MAX_BATCH", dice.randrange(1, 5))
    ordinal, log = 1, [doubt(1, 1)]
    for offset in range(2, 120):
        if dice.random() < 0.05:
            ordinal += 1
            log.append(doubt(offset, ordinal))
        else:
            log.append(change(offset, dice.choice("abcdefgh"), ordinal))
    feed: list[dict[str, int]] = [{} for _ in range(SHARDS)]
    generations = [0] * SHARDS
    marker, resets = 0, 0
    while marker < len(log):
        flow = DirectFlow(SHARDS, marker, 1.0, None)
        pending: deque[Effect] = deque(reached(flow).step(Tick(), 0.0))
        pending.append(ReadLog(marker))
        now = 0.0
        for _ in range(dice.randrange(20, 200)):  # then it is killed
            now += 0.05
            event: object = Tick()
            if pending:
                pending.rotate(-dice.randrange(2))
                effect = pending.popleft()
                match effect:
                    case MoveMarker(offset=offset):
                        marker = max(marker, offset)
                    case ReadLog(after=after):
                        part = log[after : after + dice.randrange(1, 12)]
                        event = Records(part, part[-1][0]) if part else Tick()
                    case SendLink(link=int() as shard, message=PublishUpdates() as message):
                        refused = dice.random() < 0.2
                        numbers = [] if refused else published(message, generations[shard])
                        for update, number in zip(message.updates, numbers, strict=False):
                            assert shard == shard_of(update.object, SHARDS)
                            old = feed[shard].get(update.object, 0)
                            if number > old:
                                feed[shard][update.object] = number
                        answer = UpdatesPublished(message.request, numbers)
                        no = NotPublished(message.request, "unavailable", "not now")
                        event = FromLink(shard, no if refused else answer)
                    case SendLink(link=int() as shard, message=ResetApp(generation=generation)):
                        if generation > generations[shard]:
                            generations[shard], feed[shard] = generation, {}
                            resets += 1
                        if dice.random() < 0.7:
                            event = FromLink(shard, UpdatesPublished(0, [generation]))
            pending += flow.step(event, now)  # type: ignore[arg-type]
    expected: dict[str, int] = {}
    for _, update in log:
        if update.reset:
            expected = {}
        else:
            expected[update.object] = update.version
    assert {k: v for shard in feed for k, v in shard.items()} == expected
    assert resets == SHARDS * sum(update.reset for _, update in log)
