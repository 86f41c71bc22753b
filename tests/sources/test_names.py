"""What rows are called."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roskva.errors import BadName
from roskva.model import MAX_NAME_BYTES, check_name
from roskva.sources.names import row_name, table_name

texts = st.text(max_size=300)
keys = st.lists(st.none() | texts, min_size=1, max_size=4)


def test_plain_keys_stand_as_they_are() -> None:
    assert row_name(table_name(None, "products"), ["17"]) == "products/17"
    assert row_name(table_name("sales", "orders"), ["berlin", "17"]) == "sales.orders/berlin/17"
    assert row_name("users", ["Ærøskøbing"]) == "users/Ærøskøbing"


def test_what_may_not_be_in_a_name_is_escaped() -> None:
    assert row_name("t", ["a/b", "50%", "c+#\n"]) == "t/a%2fb/50%25/c%2b%23%0a"
    assert row_name("t", [None, ""]) == "t/%-/"
    assert table_name("a.b", "c") == "a%2eb.c"
    assert table_name("a", "b.c") == "a.b%2ec"


def test_a_long_key_is_hashed_and_the_table_can_still_be_read() -> None:
    long = row_name("documents", ["x" * 300])
    assert long == "documents/%~f89fe8ccebb93ea1e88c4282b96955633ae313ff"
    assert long != row_name("documents", ["x" * 299])


def test_a_table_whose_name_leaves_no_room_is_refused_by_name() -> None:
    with pytest.raises(BadName, match="the table ttt"):
        table_name(None, "t" * 250)


@given(st.none() | st.text(max_size=20), st.text(min_size=1, max_size=20), keys)
def test_whatever_a_row_is_called_is_a_name(
    schema: str | None, table: str, key: list[str | None]
) -> None:
    name = row_name(table_name(schema, table), key)
    check_name(name)
    assert len(name.encode()) <= MAX_NAME_BYTES


@given(keys, keys)
def test_no_two_rows_of_a_table_share_a_name(
    one: list[str | None], other: list[str | None]
) -> None:
    if len(one) == len(other) and one != other:
        assert row_name("t", one) != row_name("t", other)
