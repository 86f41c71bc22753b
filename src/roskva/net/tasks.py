"""The tasks of a client or publisher that an application enters with `async with`."""

import asyncio
from types import TracebackType


class OwnedTasks(asyncio.TaskGroup):
    """A task group for what works behind an application's `async with`.

    An error of the application passes through as it is, instead of in an ExceptionGroup; one of the
    tasks still ends everything. Whoever owns it tells its tasks to end before it is left.
    """

    async def __aexit__(
        self,
        et: type[BaseException] | None,
        exc: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if et is not None and not issubclass(et, asyncio.CancelledError):
            et = exc = tb = None
        await super().__aexit__(et, exc, tb)
