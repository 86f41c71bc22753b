"""Apps that want to be asked again before each notification.

Nothing is sent to whoever may not register any more, and the registration is withdrawn: the client
is told so. Where the app's backend has to be asked first, the notification is kept back until it
has said yes; if it cannot be asked, the next scan of the session brings the notification again.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from roskva.core.effects import Broadcast, Event, Send, Withdrawn
from roskva.core.registrar import Registrar
from roskva.core.session import Session
from roskva.host.delivery import Delivery
from roskva.model import Key
from roskva.server.access.base import Authority, Verdict
from roskva.wire.messages import PROTOCOL, Notification, ServerMessage

MAX_ASKING: Final = 1000
"""Notifications that are kept back."""


class Guard:
    def __init__(
        self,
        core: Registrar,
        authority: Authority,
        step: Callable[[Event], None],
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.authority = authority
        self._core = core
        self._step = step
        self._run = run
        self._asking = 0

    def broadcast(self, effect: Broadcast) -> Broadcast:
        """To whom it may go now."""
        notification = effect.message.notifications[0]
        if not self._guards(notification.object):
            return effect
        sessions = self._core.conns
        allowed = [
            conn
            for conn in effect.conns
            if conn in sessions and self._allows(sessions[conn], notification)
        ]
        return msgspec.structs.replace(effect, conns=allowed)

    def send(self, effect: Send) -> ServerMessage:
        """What of it may go now."""
        message = effect.message
        session = self._core.conns.get(effect.conn)
        told = message.notifications
        if session is None or not any(self._guards(each.object) for each in told):
            return message
        allowed = [
            each for each in told if not self._guards(each.object) or self._allows(session, each)
        ]
        return msgspec.structs.replace(message, notifications=allowed)

    def _guards(self, key: Key) -> bool:
        return key.partition("/")[0] in self.authority.guarded

    def _allows(self, session: Session, notification: Notification) -> bool:
        key = notification.object
        verdict = self.authority.may_register(session.principal, (key,))
        if isinstance(verdict, Verdict):
            if key in verdict.denied:
                self._step(Withdrawn(session.conn, key))
            return key not in verdict.denied and key not in verdict.undecided
        if self._asking >= MAX_ASKING:
            verdict.close()
        else:
            self._asking += 1
            self._run(self._ask(session, notification, verdict))
        return False

    async def _ask(
        self,
        session: Session,
        notification: Notification,
        asked: Coroutine[Any, Any, Verdict],
    ) -> None:
        try:
            verdict = await asked
        finally:
            self._asking -= 1
        key, conn = notification.object, session.conn
        if key in verdict.denied:
            self._step(Withdrawn(conn, key))
        elif key not in verdict.undecided and self._is_current(session, notification):
            assert isinstance(conn, Delivery)
            conn.connection.send(
                ServerMessage(PROTOCOL, session.number, notifications=[notification])
            )

    def _is_current(self, session: Session, notification: Notification) -> bool:
        """Otherwise there was a newer one to be asked for, or there will be a scan."""
        watched = self._core.watched.get(notification.object)
        if self._core.conns.get(session.conn) is not session or session.lagging:
            return False
        if (
            watched is None
            or watched.known is None
            or notification.object not in session.registered
        ):
            return False
        version, epoch = watched.known
        return notification.epoch == epoch and notification.version in (None, version)
