"""How much streams and polls of one principal are told in a second, all of them together.

What is told to a stream costs this process time that others wait for. So the events of a principal
have a rate: who has something to tell its client lines up, and is called when it is its turn. By
then it may be something newer. A short burst goes out at once. Other principals have their own
lines.

Nobody in particular has one for its address, and so has everybody on this machine together.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final
from weakref import WeakValueDictionary

from litestar.types import Scope

from roskva.channels.peers import customer
from roskva.model import Principal

BURST_S: Final = 0.05
"""As many events as the rate has in this time go out at once."""

Turn = Callable[[], int]
"""It may write now; returns how many events."""


class StreamBudget:
    __slots__ = ("__weakref__", "_each_s", "_line", "_serving", "_spent_until")

    def __init__(self, per_second: int) -> None:
        self._each_s = 1 / per_second
        self._spent_until = 0.0
        self._line: deque[Turn] = deque()
        self._serving = False

    def line_up(self, turn: Turn) -> None:
        """It is called before long, and once."""
        self._line.append(turn)
        if not self._serving:
            self._serve_at(self._spent_until - BURST_S)

    def _serve_at(self, at: float) -> None:
        """Never at once: who lines up may be about to hear of more."""
        self._serving = True
        asyncio.get_running_loop().call_at(at, self._serve)

    def _serve(self) -> None:
        now = asyncio.get_running_loop().time()
        spent_until = max(self._spent_until, now)
        while self._line and spent_until <= now + BURST_S:
            spent_until += self._line.popleft()() * self._each_s
        self._spent_until, self._serving = spent_until, False
        if self._line:
            self._serve_at(spent_until - BURST_S)


class Budgets:
    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._budgets: WeakValueDictionary[Hashable, StreamBudget] = WeakValueDictionary()
        """Of those who have a stream or a poll open: they hold them."""

    def of(self, principal: Principal, scope: Scope) -> StreamBudget:
        address = customer(scope["client"][0]) if scope["client"] else ""
        owner = (principal.app, principal.name) if principal.name else address
        budget = self._budgets.get(owner)
        if budget is None:
            budget = self._budgets[owner] = StreamBudget(self._per_second)
        return budget
