"""A group commit for whoever waits for an answer, one publisher at a time."""

import asyncio
from collections.abc import Callable, Sequence

from roskva.errors import RoskvaError
from roskva.feed.base import Committed
from roskva.feed.commit import Committer, GroupCommit
from roskva.feed.log import Log
from roskva.model import Update


class AwaitedCommit(GroupCommit):
    def __init__(
        self,
        log: Log,
        committer: Committer,
        on_commit: Callable[[Committed], None] = lambda committed: None,
    ) -> None:
        super().__init__(log, committer, self._settle)
        self._on_commit = on_commit
        self._requests = 0
        self._publishers: dict[int, tuple[asyncio.Future[int], int]] = {}

    async def publish(self, updates: Sequence[Update]) -> int:
        """The offset of the first of them, once they are durable."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._requests += 1
        self._publishers[self._requests] = answer, len(updates)
        self.append(self._requests, updates)
        return await answer

    def _settle(self, outcome: Committed | RoskvaError, requests: list[int]) -> None:
        first = 0
        if isinstance(outcome, Committed):
            first = outcome.base
            self._on_commit(outcome)
        for request in requests:
            answer, count = self._publishers.pop(request)
            if not answer.done():  # else whoever waited for it has given up
                if isinstance(outcome, RoskvaError):
                    answer.set_exception(outcome)
                else:
                    answer.set_result(first)
            first += count
