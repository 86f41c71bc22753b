"""The table, spelled out; and what follows from it whatever the order of events."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roskva.core.freshness import NEVER, Acked, Due, Known, after_ack, declared, due, is_forged
from roskva.model import NO_EPOCH, NO_VERSION, mark_of, object_epoch

ONE, TWO = object_epoch(1, 0), object_epoch(2, 0)
RESET, RESET_AGAIN = object_epoch(1, 5), object_epoch(1, 6)
EPOCHS = (ONE, TWO, RESET, RESET_AGAIN)
VERSIONS = (NO_VERSION, 0, 1, 2, 3)

ACKED = st.tuples(st.sampled_from(VERSIONS), st.sampled_from((NO_EPOCH, *EPOCHS)))
KNOWN = st.tuples(st.sampled_from(VERSIONS), st.sampled_from(EPOCHS))


def spelled_out(acked: Acked, known: Known) -> Due:
    (a, e), (v, epoch) = acked, known
    version_is_known = v != NO_VERSION
    if version_is_known and v > a and e == epoch:
        return Due.VERSION
    if version_is_known and v > a and e != epoch:
        return Due.VERSION
    if version_is_known and v <= a and e == epoch:
        return Due.NOTHING
    if version_is_known and v <= a and e != epoch:
        return Due.UNKNOWN
    if not version_is_known and e == epoch:
        return Due.NOTHING
    return Due.UNKNOWN


def test_the_table_is_the_one_in_the_document() -> None:
    acked = product(VERSIONS, (NO_EPOCH, *EPOCHS))
    for a, k in product(acked, product(VERSIONS, EPOCHS)):
        assert due(a, k) is spelled_out(a, k), (a, k)


def test_who_never_acked_is_always_told_something() -> None:
    assert {due(NEVER, known) for known in product(VERSIONS, EPOCHS)} == {
        Due.VERSION,
        Due.UNKNOWN,
    }


def ack_what_is_due(acked: Acked, known: Known) -> Acked:
    told = due(acked, known)
    if told is Due.NOTHING:
        return acked
    return after_ack(acked, known[0] if told is Due.VERSION else NO_VERSION, known[1], known)


@given(ACKED, KNOWN)
def test_after_acking_what_is_due_nothing_is_due(acked: Acked, known: Known) -> None:
    once = ack_what_is_due(acked, known)
    if due(acked, known) is Due.UNKNOWN and mark_of(known[1]) not in (0, mark_of(acked[1])):
        # The reset took back what was acked: now the version of after the reset is due.
        assert due(once, known) is (Due.NOTHING if known[0] == NO_VERSION else Due.VERSION)
        once = ack_what_is_due(once, known)
    assert due(once, known) is Due.NOTHING


@given(ACKED, st.sampled_from(EPOCHS), st.permutations((0, 1, 2, 3)))
def test_an_older_version_is_never_due_after_a_newer_was_acked_in_the_same_epoch(
    acked: Acked, epoch: int, versions: list[int]
) -> None:
    known = (3, epoch)
    highest = NO_VERSION
    for version in versions:
        acked = after_ack(acked, version, epoch, known)
        highest = max(highest, version)
        for older in range(highest + 1):
            assert due(acked, (older, epoch)) is Due.NOTHING


@given(ACKED, KNOWN, st.sampled_from(VERSIONS), st.sampled_from(EPOCHS))
def test_an_ack_of_another_epoch_makes_nobody_fresh(
    acked: Acked, known: Known, version: int, epoch: int
) -> None:
    if epoch != known[1] != acked[1]:
        assert due(after_ack(acked, version, epoch, known), known) is not Due.NOTHING


@given(ACKED, KNOWN, st.sampled_from(VERSIONS), st.sampled_from(EPOCHS))
def test_an_ack_of_an_older_epoch_takes_nothing_from_who_is_fresh(
    acked: Acked, known: Known, version: int, epoch: int
) -> None:
    if epoch != known[1] == acked[1]:
        a, e = after_ack(acked, version, epoch, known)
        assert (a, e) == (max(acked[0], a), acked[1])
        if mark_of(epoch) != mark_of(e):
            assert a == acked[0], "what was acked before a reset says nothing of what follows it"


@given(ACKED, KNOWN, st.lists(st.sampled_from(VERSIONS), min_size=1, max_size=5), st.data())
def test_acks_of_one_epoch_lead_to_the_same_in_any_order(
    acked: Acked, known: Known, versions: list[int], data: st.DataObject
) -> None:
    if mark_of(acked[1]) != mark_of(known[1]):
        return
    one = other = acked
    for version in versions:
        one = after_ack(one, version, known[1], known)
    for version in data.draw(st.permutations(versions)):
        other = after_ack(other, version, known[1], known)
    assert one == other


def test_acking_under_a_new_mark_takes_back_what_was_acked() -> None:
    for old, new in ((ONE, RESET), (RESET, RESET_AGAIN), (TWO, RESET)):
        acked = after_ack((900, old), NO_VERSION, new, (NO_VERSION, new))
        assert acked == (NO_VERSION, new)
        assert due(acked, (0, new)) is Due.VERSION


def test_a_change_of_epoch_without_a_reset_takes_back_nothing() -> None:
    acked = after_ack((900, ONE), NO_VERSION, TWO, (7, TWO))
    assert acked == (900, TWO)
    assert due(acked, (899, TWO)) is Due.NOTHING


@pytest.mark.parametrize(
    ("version", "epoch", "forged"),
    [(3, ONE, True), (2, ONE, False), (NO_VERSION, ONE, False), (3, TWO, False)],
)
def test_forged_is_what_cannot_have_been_sent(version: int, epoch: int, forged: bool) -> None:
    assert is_forged(version, epoch, (2, ONE)) is forged


@given(st.sampled_from((0, 1, 2, 3)), KNOWN)
def test_a_declared_version_is_compared_with_what_is_known(version: int, known: Known) -> None:
    told = due(declared(version, None, known), known)
    if known[0] > version:
        assert told is Due.VERSION
    else:  # a higher one is of another history: from before a loss or a reset
        assert told is (Due.NOTHING if known[0] == version else Due.UNKNOWN)


@given(st.sampled_from((0, 1, 2, 3)), ACKED, KNOWN)
def test_a_version_declared_for_what_is_registered_keeps_the_epoch_of_its_cache(
    version: int, acked: Acked, known: Known
) -> None:
    if acked[1] != NO_EPOCH:
        assert declared(version, acked, None) == (version, acked[1])
        if known[0] >= version:
            assert declared(version, acked, known) == (version, acked[1])


@given(st.sampled_from((0, 1, 2, 3)), ACKED, KNOWN)
def test_whoever_declares_more_than_is_known_is_told_unknown(
    version: int, acked: Acked, known: Known
) -> None:
    """Also one that has acked this epoch: it may have rolled back to a cache from before it."""
    if version > known[0]:
        assert due(declared(version, acked, known), known) is Due.UNKNOWN


def test_a_version_declared_while_the_shard_is_away_counts_for_no_epoch() -> None:
    assert declared(3, None, None) == (3, NO_EPOCH)
