"""An application as an object with one method per event, instead of a loop over events."""

from roskva.core.effects import (
    ClientEvent,
    Notify,
    NotifyUnknown,
    RegistrationFailure,
    RegistrationStatus,
    ReissueRegistrations,
    Trouble,
)


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


async def tell(listener: Listener, event: ClientEvent) -> None:
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
