"""On columns the same comes out as one by one."""

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from roskva.core.objects import coalesce
from roskva.feed.arrow import PLACED, rows_of
from roskva.feed.base import updates_of
from roskva.model import Loss, Update, epoch_record
from roskva.pipeline.columns import coalesced

RECORDS = st.builds(
    lambda epoch, last: epoch_record(epoch, Loss(1, last, "damage"), 0),
    st.integers(1000, 1003),
    st.integers(0, 5),
)
"""Of epochs, of which some are for the same loss."""

UPDATES = st.lists(
    st.builds(
        Update,
        st.sampled_from(["app/a", "app/b", "b/c"]),
        st.integers(1, 6),
        st.sampled_from([None, "author"]),
        st.sampled_from([None, b"1", b"2"]),
        st.integers(0, 3),
        reset=st.sampled_from([False] * 5 + [True]),
    )
    | st.builds(Update, st.sampled_from(["app/", "b/"]), st.integers(1, 3), reset=st.just(True))
    | RECORDS,
    max_size=30,
)
Entries = list[tuple[int, Update]]


def table(entries: Entries) -> pa.Table:
    offsets = pa.array([offset for offset, _ in entries], pa.int64())
    rows = rows_of([update for _, update in entries])
    return pa.Table.from_arrays([offsets, *rows.columns], schema=PLACED)


def entries_of(rows: pa.Table) -> Entries:
    updates = [u for b in rows.drop_columns("offset").to_batches() for u in updates_of(b)]
    return list(zip(rows["offset"].to_pylist(), updates, strict=True))


@given(UPDATES)
def test_columns_are_coalesced_like_updates_one_by_one(updates: list[Update]) -> None:
    entries = list(enumerate(updates, 1))
    assert entries_of(coalesced(table(entries))) == coalesce(entries)


@given(UPDATES, st.integers(0, 30))
def test_parts_may_be_coalesced_first(updates: list[Update], cut: int) -> None:
    entries = list(enumerate(updates, 1))
    parts = [coalesced(table(entries[:cut])), table(entries[cut:])]
    assert entries_of(coalesced(pa.concat_tables(parts))) == coalesce(entries)
