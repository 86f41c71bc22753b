"""A row is told as what its values say, one by one, whatever they are."""

import json
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from roskva.sources.postgres.pgoutput import UNCHANGED, Column, Relation, RowChange, Value
from roskva.sources.postgres.rows import MAX_VALUE_BYTES, Published, published

TEXTS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
NUMBERS = st.integers().map(str) | st.decimals(allow_nan=False, allow_infinity=False).map(
    lambda number: format(number, "f")
)
VALUES: dict[int, st.SearchStrategy[str]] = {
    20: st.integers(-(2**63), 2**63 - 1).map(str),
    1700: NUMBERS | st.sampled_from(["NaN", "Infinity"]),
    16: st.sampled_from(["t", "f"]),
    25: TEXTS,
}
LEFT_OUT = st.sampled_from([None, UNCHANGED, b"x" * (MAX_VALUE_BYTES + 1)])


@st.composite
def rows(draw: st.DrawFn) -> tuple[list[int], list[Value]]:
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), max_size=6))
    values = [draw(VALUES[type].map(str.encode) | LEFT_OUT) for type in types]
    return types, values


def table(types: list[int]) -> Published:
    columns = (Column("id", 20, True), *(Column(f"c{i}", t, False) for i, t in enumerate(types)))
    found = published(Relation(1, "public", "products", "d", columns), ("id",))
    assert isinstance(found, Published)
    return found


def shown(value: bytes, type: int) -> object:
    text = value.decode()
    if type == 16:
        return text == "t"
    return Decimal(text) if type in (20, 1700) and text not in ("NaN", "Infinity") else text


@given(rows())
def test_what_is_told_of_a_row_is_what_its_values_say(given: tuple[list[int], list[Value]]) -> None:
    types, values = given
    published = table(types)
    change = RowChange("update", Relation(1, "public", "products", "d", ()), [b"7", *values], None)
    [found] = published.changes(change, 5)
    expected: dict[str, object] = {"id": Decimal(7)}
    missing = []
    for i, (type, value) in enumerate(zip(types, values, strict=True)):
        if value is None:
            expected[f"c{i}"] = None
        elif value == UNCHANGED or len(value) > MAX_VALUE_BYTES:
            missing.append(f"c{i}")
        else:
            expected[f"c{i}"] = shown(value, type)
    told = json.loads(bytes(found.row), parse_int=Decimal, parse_float=Decimal)
    assert told == expected
    assert found.missing == tuple(missing)
    assert found.key == ("7",)
