"""Objects, keys, shards and epochs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.wire.strategies import apps, keys, names

from roskva.errors import BadName
from roskva.model import (
    MAX_NAME_BYTES,
    NO_EPOCH,
    ObjectId,
    check_app,
    check_name,
    is_key,
    is_probe,
    mark_of,
    object_epoch,
    parse_key,
    reset_mark,
    shard_epoch,
    shard_of,
)

BITS = st.integers(0, 2**64 - 1)


@given(apps(), names())
def test_a_key_is_split_into_what_it_was_made_of(app: str, name: str) -> None:
    made = ObjectId(app, name)
    assert parse_key(made.key) == made
    assert str(made) == made.key


@given(st.text())
def test_any_text_is_a_key_or_is_not_and_nothing_else_happens(text: str) -> None:
    if is_key(text):
        assert parse_key(text).key == text
    else:
        with pytest.raises(BadName):
            parse_key(text)


@pytest.mark.parametrize(
    ("text", "app", "name"),
    [
        ("a/b", "a", "b"),
        ("maps/region-1/tile/7", "maps", "region-1/tile/7"),
        ("maps//", "maps", "/"),
        ("0-/ ", "0-", " "),
    ],
)
def test_the_first_slash_splits_a_key(text: str, app: str, name: str) -> None:
    assert parse_key(text) == ObjectId(app, name)


@pytest.mark.parametrize("app", ["", "A", "a_b", "a.b", "ä", "a/b", "a\n", "a" * 64, "\ud800"])
def test_an_app_is_lower_case_digits_and_dashes(app: str) -> None:
    with pytest.raises(BadName, match="an app is"):
        check_app(app)


@pytest.mark.parametrize(
    "character", ["\x00", "\n", "\x1f", "\x7f", "\x80", "\x9f", "+", "#", "\udfff"]
)
def test_a_name_has_no_control_characters_wildcards_or_halves_of_characters(character: str) -> None:
    with pytest.raises(BadName, match="no control characters"):
        check_name(f"a{character}b")


def test_a_name_is_measured_in_bytes() -> None:
    check_name("n" * MAX_NAME_BYTES)
    check_name("ä" * (MAX_NAME_BYTES // 2))
    for name in ("", "n" * (MAX_NAME_BYTES + 1), "ä" * (MAX_NAME_BYTES // 2 + 1)):
        with pytest.raises(BadName, match="1 to 255 bytes"):
            check_name(name)


@pytest.mark.parametrize("text", ["x" * 10_000, "/" + "x" * 10_000, "A" * 10_000 + "/b"])
def test_an_error_does_not_repeat_a_long_name(text: str) -> None:
    with pytest.raises(BadName) as raised:
        parse_key(text)
    assert len(str(raised.value)) < 300


@given(keys() | st.binary(min_size=16, max_size=16), st.integers(1, 1024))
def test_everything_has_one_shard(identity: str | bytes, shards: int) -> None:
    shard = shard_of(identity, shards)
    assert 0 <= shard < shards
    assert shard == shard_of(identity, shards)


def test_shards_are_chosen_as_they_have_always_been() -> None:
    """A change here would lose every object of every data directory there is."""
    placed = [shard_of(key, 1024) for key in ("contacts/alice", "contacts/bob", "contacts/böb")]
    assert placed == [371, 220, 81]
    assert shard_of(bytes(16), 1024) == 853


def test_objects_spread_evenly_over_shards() -> None:
    counts = [0] * 8
    for i in range(8000):
        counts[shard_of(f"app/object-{i}", 8)] += 1
    assert min(counts) > 800
    assert max(counts) < 1200


@given(BITS, BITS)
def test_an_epoch_holds_its_shard_epoch_and_its_mark(shard_bits: int, mark_bits: int) -> None:
    shard, mark = shard_epoch(shard_bits), reset_mark(mark_bits)
    assert 1 <= shard < 2**40
    assert 1 <= mark < 2**20
    for given_mark in (0, mark):
        epoch = object_epoch(shard, given_mark)
        assert NO_EPOCH < epoch < 2**60
        assert mark_of(epoch) == given_mark
        assert epoch >> 20 == shard


@given(BITS, BITS, BITS)
def test_another_shard_epoch_leaves_the_mark_alone(first: int, second: int, mark: int) -> None:
    before = object_epoch(shard_epoch(first), reset_mark(mark))
    after = object_epoch(shard_epoch(second), reset_mark(mark))
    assert mark_of(before) == mark_of(after)
    assert (before == after) == (shard_epoch(first) == shard_epoch(second))


@pytest.mark.parametrize(
    ("key", "probe"),
    [
        ("roskva-probe/0-1", True),
        ("roskva-probe-slow/0-1", True),
        ("roskva-probes/0-1", False),
        ("shop/roskva-probe/", False),
    ],
)
def test_only_the_two_apps_of_the_prober_are_its_own(key: str, probe: bool) -> None:
    assert is_probe(key) is probe
