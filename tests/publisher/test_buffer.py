"""Which updates share a request."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from tests.loops import in_loop

from roskva.publisher.publisher import MAX_BATCH, MAX_BATCH_BYTES, Buffer, Waiting


def item(name: str, *, depends: bool = False, is_reset: bool = False, size: int = 50) -> Waiting:
    done = asyncio.get_running_loop().create_future()
    return Waiting(name, b"x" * size, done, depends=depends, is_reset=is_reset)


def filled(*items: Waiting) -> Buffer:
    buffer = Buffer()
    for entry in items:
        buffer.add(entry)
    return buffer


@in_loop
async def test_plain_versions_of_an_object_share_a_request() -> None:
    items = [item("a"), item("b"), item("a")]
    assert filled(*items).next_batch() == items


@in_loop
async def test_what_depends_waits_and_so_does_what_follows_it() -> None:
    first, second, third, other = item("a"), item("a", depends=True), item("a"), item("b")
    buffer = filled(first, second, third, other)
    assert buffer.next_batch() == [first, other]
    buffer.remove(first)
    buffer.remove(other)
    assert buffer.next_batch() == [second, third]


@in_loop
async def test_reset_goes_alone_and_in_its_turn() -> None:
    before, reset, after = item("a"), item("a", is_reset=True), item("a")
    buffer = filled(before, reset, after)
    for expected in ([before], [reset], [after], []):
        assert buffer.next_batch() == expected
        for entry in expected:
            buffer.remove(entry)


@in_loop
async def test_requests_are_bounded_but_never_empty() -> None:
    assert len(filled(*(item("a") for _ in range(MAX_BATCH + 1))).next_batch()) == MAX_BATCH
    large = [item("a", size=MAX_BATCH_BYTES), item("b")]
    assert filled(*large).next_batch() == large[:1]


entries = st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 9)), max_size=30)


@given(entries)
def test_every_order_leaves_in_order(written: list[tuple[str, bool, int]]) -> None:
    @in_loop
    async def scenario() -> None:
        items = [item(name, depends=depends, is_reset=n == 0) for name, depends, n in written]
        buffer = filled(*items)
        left: list[Waiting] = []
        while batch := buffer.next_batch():
            names = [entry.name for entry in batch]
            for index, entry in enumerate(batch):
                assert not (entry.depends and entry.name in names[:index])
                buffer.remove(entry)
            left += batch
        for name in "abc":
            assert [e for e in left if e.name == name] == [e for e in items if e.name == name]

    scenario()
