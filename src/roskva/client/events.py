"""What the application is told: events that wait for it, and an object with a method for each.

What waits is bounded however slow the application is. Of each object only the newest notification
waits and the newest word on its registration, of each kind of trouble the newest, and one request
to register again. What replaces an event takes its place in the order, so nothing is overtaken for
ever.
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
    ReissueRegistrations,
    Trouble,
)
from roskva.model import Key

# What waits.


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


# A method for each event.


class Listener:
    """Override what matters to you, and hand it to `Client.run`.

    A method that returns has taken the event over: a notification is then acked. One that raises
    ends `Client.run` with its error, and the notification comes again.
    """

    async def notify(self, event: Notify) -> None:
        """The object stands at this version: drop or renew what you hold of it."""

    async def notify_unknown(self, event: NotifyUnknown) -> None:
        """The object may have changed: look at its source before you return."""

    async def registration_status(self, event: RegistrationStatus) -> None:
        """The server has your registration, or has it no longer."""

    async def registration_failure(self, event: RegistrationFailure) -> None:
        """You are not registered. If `transient`, registering again may succeed."""

    async def reissue_registrations(self, event: ReissueRegistrations) -> None:
        """Register for what you want; what is registered already costs nothing."""

    async def trouble(self, event: Trouble) -> None:
        """Something to show or to log; the client goes on by itself."""


async def call_listener(listener: Listener, event: ClientEvent) -> None:
    match event:
        case Notify():
            await listener.notify(event)
        case NotifyUnknown():
            await listener.notify_unknown(event)
        case RegistrationStatus():
            await listener.registration_status(event)
        case RegistrationFailure():
            await listener.registration_failure(event)
        case ReissueRegistrations():
            await listener.reissue_registrations(event)
        case Trouble():
            await listener.trouble(event)
