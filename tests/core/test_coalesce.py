"""Leaving out what a range of the feed makes up for changes nothing of where it leads."""

from hypothesis import given
from hypothesis import strategies as st
from tests.core.pair import Pair
from tests.core.shard_side import ShardSide

from roskva.core.effects import Apply
from roskva.core.objects import coalesce
from roskva.model import WHOLE_SHARD, Loss, Update, epoch_record

RECORDS = st.builds(
    lambda epoch, last: epoch_record(epoch, Loss(1, last, "damage"), 0),
    st.integers(1000, 1003),
    st.integers(0, 5),
)
"""Of epochs, of which some are for the same loss."""

UPDATES = st.lists(
    st.builds(
        Update,
        st.sampled_from(["app/a", "app/b", "app/c"]),
        st.integers(1, 6),
        st.sampled_from([None, "author"]),
        st.sampled_from([None, b"1", b"2"]),
        reset=st.sampled_from([False, False, False, True]),
    )
    | st.builds(Update, st.just("app/"), st.integers(1, 3), reset=st.just(True))
    | RECORDS,
    min_size=1,
    max_size=12,
)
Rows = dict[str, tuple[int, int, int, int, bytes | None]]


def rows(shard: ShardSide) -> Rows:
    return {
        key: (row.version, row.mark, row.epoch, row.generation, row.payload)
        for key, row in shard.objects.items()
    }


def apply(pair: Pair, first: int, updates: list[tuple[int, Update]], last: int) -> None:
    pair.shard.step(Apply(pair.shard.lineage, first, last, updates))
    pair.settle()


def one_by_one(updates: list[Update]) -> Pair:
    pair = Pair()
    for offset, update in enumerate(updates, 1):
        apply(pair, offset, [(offset, update)], offset)
    return pair


@given(UPDATES, st.integers(0, 12))
def test_a_coalesced_range_leads_where_its_updates_lead_one_by_one(
    updates: list[Update], applied_before: int
) -> None:
    """Also where the matcher had applied a part of the range before."""
    expected = one_by_one(updates)
    pair = one_by_one(updates[:applied_before])
    numbered = list(enumerate(updates, 1))
    apply(pair, 1, coalesce(numbered), len(updates))
    assert rows(pair.shard) == rows(expected.shard)
    assert pair.shard.stored is not None
    assert pair.shard.stored.applied == len(updates)
    assert pair.shard.stored.epoch == expected.shard.stored.epoch  # type: ignore[union-attr]


@given(UPDATES)
def test_at_most_a_reset_and_a_version_are_left_of_an_object(updates: list[Update]) -> None:
    updates = [update for update in updates if update.object not in ("app/", WHOLE_SHARD)]
    left = coalesce(enumerate(updates, 1))
    assert [offset for offset, _ in left] == sorted({offset for offset, _ in left})
    for key in {update.object for update in updates}:
        kinds = [update.reset for _, update in left if update.object == key]
        assert kinds in ([True], [False], [True, False])


@given(UPDATES)
def test_an_author_is_named_only_if_nothing_was_left_out(updates: list[Update]) -> None:
    for offset, update in coalesce(enumerate(updates, 1)):
        if update.source is not None and not update.reset:
            key, since, until = update.object, 0, len(updates) + 1
            for place, other in enumerate(updates, 1):
                if other.reset and other.object in (key, "app/", WHOLE_SHARD):
                    since = place if place < offset else since
                    until = min(until, place) if place > offset else until
            numbered = enumerate(updates, 1)
            same = [u for o, u in numbered if u.object == key and since < o < until]
            assert same == [update], offset
