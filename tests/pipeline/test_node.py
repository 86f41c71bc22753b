"""MatcherLinks that answer, that are down, that hang: a bridge gets on with all of them."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.pipeline.scripted_matcher import ScriptedMatcher
from tests.serving.nodes import await_that

from roskva.feed.base import Marker
from roskva.model import Update
from roskva.pipeline import node as under_test
from roskva.pipeline.node import Entry, GapWatch, MatcherLinks, Range

LINEAGE = 77

pytestmark = pytest.mark.usefixtures("matchers_have_time")


@pytest.fixture
def matcher(tmp_path: Path) -> Iterator[ScriptedMatcher]:
    matcher = ScriptedMatcher(tmp_path, tmp_path / "state-0", [0, 1], LINEAGE)
    yield matcher
    matcher.stop()


@pytest.fixture
def matchers(matcher: ScriptedMatcher, tmp_path: Path) -> Iterator[MatcherLinks]:
    with closing(MatcherLinks(str(tmp_path))) as found:
        yield found


def entries(offsets: range, payload: bytes | None = None) -> list[Entry]:
    return [(offset, Update("app/a", offset, payload=payload)) for offset in offsets]


def deliver(matchers: MatcherLinks, offered: Range, rows: list[Entry]) -> Marker | None:
    [at] = matchers.deliver([(offered, rows)])
    return at


def test_positions_are_those_of_the_shards_that_answer(
    matcher: ScriptedMatcher, matchers: MatcherLinks
) -> None:
    matcher.position = {0: 5, 1: 9}
    assert matchers.positions([0, 1, 2]) == {0: Marker(LINEAGE, 5), 1: Marker(LINEAGE, 9)}


def test_a_range_is_offered_in_parts_that_follow_each_other(
    matcher: ScriptedMatcher, matchers: MatcherLinks
) -> None:
    rows = entries(range(10, 30_000, 7))
    assert deliver(matchers, Range(0, LINEAGE, 1, 30_000), rows) == Marker(LINEAGE, 30_000)
    firsts = [offer.first for offer in matcher.offers]
    assert firsts == [1, *(offer.last + 1 for offer in matcher.offers[:-1])]
    assert max(len(offer.updates) for offer in matcher.offers) <= 1000
    assert [entry for offer in matcher.offers for entry in offer.updates] == rows


def test_parts_are_small_in_bytes_too(matcher: ScriptedMatcher, matchers: MatcherLinks) -> None:
    rows = entries(range(1, 1001), b"x" * 16_000)
    assert deliver(matchers, Range(0, LINEAGE, 1, 1000), rows) == Marker(LINEAGE, 1000)
    assert len(matcher.offers) > 10


def test_a_gap_is_told_by_where_the_matcher_stands(
    matcher: ScriptedMatcher, matchers: MatcherLinks
) -> None:
    matcher.position[0] = 3
    rows = entries(range(10, 20_000))
    assert deliver(matchers, Range(0, LINEAGE, 10, 20_000), rows) == Marker(LINEAGE, 3)


def test_one_that_is_down_is_left_alone_and_found_again(
    matcher: ScriptedMatcher, matchers: MatcherLinks
) -> None:
    assert matchers.positions([0])
    matcher.stop()
    began = time.monotonic()
    for _ in range(50):
        assert matchers.positions([0]) == {}
        assert deliver(matchers, Range(0, LINEAGE, 1, 1), entries(range(1, 2))) is None
        assert time.monotonic() - began < 30.0, "to wait for an answer once takes longer"
    matcher.start()
    await_that(lambda: bool(matchers.positions([0])), 60.0)


def test_one_that_was_started_again_is_found_at_once(
    matcher: ScriptedMatcher, matchers: MatcherLinks
) -> None:
    assert matchers.positions([0])
    matcher.stop()
    matcher.start()
    assert matchers.positions([0, 1]) == {0: Marker(LINEAGE, 0), 1: Marker(LINEAGE, 0)}


def test_one_that_hangs_costs_one_wait_and_then_next_to_nothing(
    matcher: ScriptedMatcher, matchers: MatcherLinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(under_test, "_ASK_S", 0.2)
    monkeypatch.setattr(under_test, "_LEFT_ALONE_S", (3600.0,))
    matcher.silent = True
    assert matchers.positions([0, 1]) == {}
    await_that(lambda: matcher.asked == 2, 60.0)
    for _ in range(20):
        assert matchers.positions([0, 1]) == {}
    assert matcher.asked == 2


# Being told of gaps.


@pytest.fixture
def watch(matcher: ScriptedMatcher, tmp_path: Path) -> Iterator[GapWatch]:
    with closing(GapWatch(str(tmp_path))) as found:
        yield found


BEEN = {0: Marker(LINEAGE, 5), 1: Marker(LINEAGE, 5)}


def test_whoever_waits_is_told_of_a_gap_of_any_shard(
    matcher: ScriptedMatcher, watch: GapWatch
) -> None:
    assert not watch.await_gap(BEEN, 0.01)
    matcher.position = {0: 5, 1: 5}
    matcher.misses(1, 7)
    assert watch.await_gap(BEEN, 60.0)
    assert not watch.await_gap({**BEEN, 1: Marker(LINEAGE, 7)}, 0.01), "it has been there now"


def test_a_question_stands_and_is_not_asked_again(
    matcher: ScriptedMatcher, watch: GapWatch
) -> None:
    watch.await_gap(BEEN, 0.01)
    await_that(lambda: len(matcher.waiting) == 2, 60.0)
    asked = dict(matcher.waiting)
    for _ in range(5):
        watch.await_gap(BEEN, 0.0)
    matcher.misses(1, 7)
    assert watch.await_gap(BEEN, 60.0), "and what it says now answers the first question"
    assert matcher.waiting[0] == asked[0]


def test_a_process_that_was_started_again_is_asked_again(
    matcher: ScriptedMatcher, watch: GapWatch
) -> None:
    watch.await_gap(BEEN, 0.01)
    matcher.stop()
    assert not watch.await_gap(BEEN, 60.0), "it notices at once"
    matcher.start()
    matcher.misses(0, 9)
    await_that(lambda: watch.await_gap(BEEN, 0.1), 60.0)


def test_without_a_node_there_is_nobody(tmp_path: Path) -> None:
    matchers = MatcherLinks(str(tmp_path))
    assert matchers.positions([0]) == {}
    assert not GapWatch(str(tmp_path)).await_gap({}, 0.01)
    assert deliver(matchers, Range(0, 1, 1, 1), entries(range(1, 2))) is None
