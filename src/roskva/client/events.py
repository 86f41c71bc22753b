"""What the application is told: events that wait for it, and an object with a method for each.

What waits is bounded however slow the application is. Of each object only the newest notification
waits and the newest word on its registration, of each kind of trouble the newest, and one request
to register again. What was overtaken by a newer version on its way is not told any more. What
replaces an event takes its place in the order, so nothing is overtaken for ever.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Hashable

from roskva.core import effects
from roskva.model import Key

News = effects.Notify | effects.NotifyUnknown
"""What is acked."""


def covers(taken: effects.ClientEvent | None, other: effects.ClientEvent | None) -> bool:
    """Whether who has taken the first over need not be told the other, which it overtook."""
    return (
        isinstance(taken, effects.Notify)
        and isinstance(other, effects.Notify)
        and (taken.object, taken.epoch) == (other.object, other.epoch)
        and taken.version >= other.version
    )


# What waits.


class Inbox:
    def __init__(self) -> None:
        self.waiting: OrderedDict[Hashable, effects.ClientEvent] = OrderedDict()
        self._arrived = asyncio.Event()
        self._closed = False

    def put(self, event: effects.ClientEvent) -> None:
        if self._closed:
            return
        slot = _slot(event)
        if not covers(self.waiting.get(slot), event):
            self.waiting[slot] = event
        if isinstance(event, effects.RegistrationFailure):
            self.forget(event.object)
        self._arrived.set()

    def forget(self, key: Key) -> effects.ClientEvent | None:
        """What was told of an object does not concern the loop any more."""
        return self.waiting.pop((effects.Notify, key), None)

    def acked(self, news: News) -> None:
        if covers(news, self.waiting.get((effects.Notify, news.object))):
            self.forget(news.object)

    async def take(self) -> effects.ClientEvent | None:
        """The next event; None when the inbox is closed."""
        while not self.waiting:
            if self._closed:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        return self.waiting.popitem(last=False)[1]

    def close(self) -> None:
        """What waits is dropped: nobody could ack it any more."""
        self._closed = True
        self.waiting.clear()
        self._arrived.set()


def _slot(event: effects.ClientEvent) -> Hashable:
    match event:
        case effects.Notify(object=key) | effects.NotifyUnknown(object=key):
            return effects.Notify, key
        case effects.RegistrationStatus(object=key) | effects.RegistrationFailure(object=key):
            return effects.RegistrationStatus, key
        case effects.Trouble(code=code):
            return effects.Trouble, code
        case _:
            return type(event)


# A method for each event.


class Listener:
    """Override what matters to you, and hand it to `Client.run`.

    A method that returns has taken the event over: a notification is then acked. One that raises
    ends `Client.run` with its error, and the notification comes again.
    """

    async def notify(self, event: effects.Notify) -> None:
        """The object stands at this version: drop or renew what you hold of it."""

    async def notify_unknown(self, event: effects.NotifyUnknown) -> None:
        """The object may have changed: look at its source before you return."""

    async def registration_status(self, event: effects.RegistrationStatus) -> None:
        """The server has your registration, or has it no longer."""

    async def registration_failure(self, event: effects.RegistrationFailure) -> None:
        """You are not registered. If `transient`, registering again may succeed."""

    async def reissue_registrations(self, event: effects.ReissueRegistrations) -> None:
        """Register for what you want; what is registered already costs nothing."""

    async def trouble(self, event: effects.Trouble) -> None:
        """Something to show or to log; the client goes on by itself."""


async def call_listener(listener: Listener, event: effects.ClientEvent) -> None:
    match event:
        case effects.Notify():
            await listener.notify(event)
        case effects.NotifyUnknown():
            await listener.notify_unknown(event)
        case effects.RegistrationStatus():
            await listener.registration_status(event)
        case effects.RegistrationFailure():
            await listener.registration_failure(event)
        case effects.ReissueRegistrations():
            await listener.reissue_registrations(event)
        case effects.Trouble():
            await listener.trouble(event)
