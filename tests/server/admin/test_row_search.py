"""Clients that are away are looked for in their rows, a page at a time."""

import asyncio

from tests.loops import in_loop

from roskva.core.effects import PutClient
from roskva.server.admin.row_search import MOST_FOUND, RowSearch
from roskva.store import rows
from roskva.store.memory import MemoryStore
from roskva.store.worker import StoreWorker

ROWS = 250
"""In each of two stores: three pages."""


async def stores() -> list[StoreWorker]:
    made = []
    for shard in range(2):
        worker = StoreWorker(MemoryStore())
        writes = [
            PutClient(number.to_bytes(8) + bytes([shard] * 8), 1, number, f"phone-{shard}-{number}")
            for number in range(ROWS)
        ]
        many = [PutClient(bytes([shard, i]) * 8, 1, i, "fleet") for i in range(1, MOST_FOUND)]
        await worker.write(*map(list, rows.batches([*writes, *many])))
        made.append(worker)
    return made


@in_loop
async def test_all_rows_are_looked_through_and_whoever_it_is_is_found() -> None:
    workers = await stores()
    search = RowSearch(lambda: workers, search_s=60.0)
    answer = await search.find("phone-1-7")
    assert [(bytes.fromhex(client)[8:], at) for client, at in answer.found] == [(b"\1" * 8, 7)]
    assert (answer.looked_at, answer.more) == (2 * (ROWS + MOST_FOUND - 1), False)
    assert await search.find("phone-9") == type(answer)([], answer.looked_at, False)
    for worker in workers:
        await worker.close()


@in_loop
async def test_a_search_that_takes_too_long_goes_on_when_the_same_is_asked_again() -> None:
    workers = await stores()
    search = RowSearch(lambda: workers, search_s=0.0)
    answers = [await search.find("phone-9")]
    while answers[-1].more:
        answers.append(await search.find("phone-9"))
    rows_of_each = ROWS + MOST_FOUND - 1
    assert [answer.looked_at for answer in answers] == [
        *(100, 200, rows_of_each),
        *(rows_of_each + 100, rows_of_each + 200, 2 * rows_of_each),
    ]
    assert (await search.find("phone-9")).looked_at == 100, "from the start"
    assert (await search.find("phone-8")).looked_at == 100, "another search"
    for worker in workers:
        await worker.close()


@in_loop
async def test_no_more_are_found_than_are_shown_and_one_searches_at_a_time() -> None:
    workers = await stores()
    search = RowSearch(lambda: workers, search_s=60.0)
    first, second = await asyncio.gather(search.find("fleet"), search.find("fleet"))
    assert MOST_FOUND <= len(first.found) < 2 * MOST_FOUND
    assert len({client for client, _ in first.found}) == len(first.found)
    assert first.looked_at <= second.looked_at
    for worker in workers:
        await worker.close()
