"""A connection that an application has already, and lets the protocol use.

It carries whole messages, and may lose, repeat and reorder them: the protocol was made for that. A
byte stream has to mark where a message ends; of datagrams each is one message.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol


class Channel(Protocol):
    """One connection, between one client and a node. It is used by one task for each direction, and
    never after it raised or came to its end."""

    async def send(self, message: bytes) -> None:
        """A message of at most 65,536 bytes. Returns when the next one may follow."""
        ...

    async def receive(self) -> bytes | None:
        """The next message; None when the other side has gone."""
        ...


class Attach(Protocol):
    async def __call__(self, channel: Channel, credential: str | None = None) -> None:
        """Serve the client at the other end, until either side has gone.

        `credential`: a JWT that the connection has shown already; a hello may bring another.
        """
        ...


async def both_ways(reading: Coroutine[Any, Any, None], writing: Coroutine[Any, Any, None]) -> None:
    """Until one of them has ended or raised, and then neither goes on."""
    try:
        async with asyncio.TaskGroup() as tasks:
            sides = tasks.create_task(reading), tasks.create_task(writing)
            for one, other in (sides, sides[::-1]):
                one.add_done_callback(lambda _, other=other: other.cancel())  # type: ignore[misc]
    except ExceptionGroup as raised:
        raise raised.exceptions[0] from None
