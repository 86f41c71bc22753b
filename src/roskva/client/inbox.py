"""What waits for the application, bounded however slow it is.

Of each object only the newest notification waits and the newest word on its registration, of each
kind of trouble the newest, and one request to register again. What replaces an event takes its
place in the order, so nothing is overtaken for ever.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable

from roskva.core.effects import (
    ClientEvent,
    Notify,
    NotifyUnknown,
    RegistrationFailure,
    RegistrationStatus,
    Trouble,
)
from roskva.model import Key


class Inbox:
    def __init__(self) -> None:
        self._waiting: OrderedDict[Hashable, ClientEvent] = OrderedDict()
        self._arrived = asyncio.Event()
        self._closed = False

    def waiting(self) -> list[ClientEvent]:
        return list(self._waiting.values())

    def put(self, event: ClientEvent) -> None:
        if self._closed:
            return
        self._waiting[_slot(event)] = event
        if isinstance(event, RegistrationFailure):
            self.forget(event.object)
        self._arrived.set()

    def forget(self, key: Key) -> None:
        """What was told of an object does not concern the application any more."""
        self._waiting.pop((Notify, key), None)

    async def take(self) -> ClientEvent | None:
        """The next event; None when the inbox is closed."""
        while not self._waiting:
            if self._closed:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self._waiting.popitem(last=False)[1]

    def close(self) -> None:
        """What waits is dropped: nobody could ack it any more."""
        self._closed = True
        self._waiting.clear()
        self._arrived.set()


def _slot(event: ClientEvent) -> Hashable:
    match event:
        case Notify(object=key) | NotifyUnknown(object=key):
            return Notify, key
        case RegistrationStatus(object=key) | RegistrationFailure(object=key):
            return RegistrationStatus, key
        case Trouble(code=code):
            return Trouble, code
        case _:
            return type(event)
