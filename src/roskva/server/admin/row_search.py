"""Clients that are away, by the id that their application gave: it stands in their rows alone.

There is no index of it, because a client that is away costs nothing but its row. So the rows are
read, page by page, for as long as an operator waits, and the store is left to others for as long as
each page took. A search that ends before all was read goes on where it was when the same is asked
again. One at a time, and nothing is kept of it but its place.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from roskva.store import rows as layout
from roskva.store.worker import StoreWorker

SEARCH_S: Final = 1.0
"""Less than another process waits for our answer."""
_PAGE_ROWS: Final = 100
MOST_FOUND: Final = 10


class RowsSearched(msgspec.Struct, frozen=True):
    found: list[tuple[str, int]] = []
    """Clients, and when each was seen last, in microseconds."""
    looked_at: int = 0
    """Rows, since the search began."""
    more: bool = False
    """Rows are left, for when the same is asked again."""


class RowSearch:
    def __init__(
        self, stores: Callable[[], Sequence[StoreWorker]], search_s: float = SEARCH_S
    ) -> None:
        """`stores`: of the shards of this process."""
        self._stores = stores
        self._search_s = search_s
        self._asked = asyncio.Lock()
        self._wanted = ""
        self._left: list[StoreWorker] = []
        """Stores that are still to be read, the first of them from `_after`."""
        self._after = b""
        self._looked_at = 0

    async def find(self, application: str) -> RowsSearched:
        until = time.monotonic() + self._search_s
        async with self._asked:
            if application != self._wanted or not self._left:
                self._wanted, self._left = application, list(self._stores())
                self._after, self._looked_at = b"", 0
            found: list[tuple[str, int]] = []
            while self._left and len(found) < MOST_FOUND:
                found += await self._page(application)
                if time.monotonic() >= until:
                    break
            return RowsSearched(found, self._looked_at, bool(self._left))

    async def _page(self, application: str) -> list[tuple[str, int]]:
        after, began = self._after, time.monotonic()
        page = await self._left[0].run(
            lambda store: layout.find_application(store, application, after, _PAGE_ROWS)
        )
        self._looked_at += page.looked_at
        self._after = page.after
        if not page.after:
            del self._left[0]
        await asyncio.sleep(time.monotonic() - began)
        return [(client.hex(), seen_at) for client, seen_at in page.found]
