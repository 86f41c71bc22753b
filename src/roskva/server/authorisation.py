"""Apps that are asked whether a client may hear of an object: when it registers, and where an app
wants it, before each notification.

Most is decided at once. Where an app's backend has to be asked, a message waits, and what its
connection says of registrations after it waits behind it: the core takes them in their order. Acks
and heartbeats do not wait.

Nothing is sent to whoever may not register any more, and the registration is withdrawn: the client
is told so. Where the app's backend has to be asked first, the notification is kept back until it
has said yes; if it cannot be asked, the next scan of the session brings the notification again.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

import msgspec

from roskva.core.effects import Broadcast, Event, FromConnection, Handle, Send, Withdrawn
from roskva.core.registrar import Registrar
from roskva.core.session import Session
from roskva.model import NOBODY, Key
from roskva.server.access.authority import Authority, Verdict
from roskva.wire.messages import PROTOCOL, ClientMessage, Notification, ServerMessage

MAX_WAITING: Final = 16
"""Messages of one connection."""
MAX_CONNECTIONS: Final = 1000
"""That wait."""
MAX_ASKING: Final = 1000
"""Notifications that are kept back."""


class Authorisation:
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
        self._waiting: dict[Handle, deque[ClientMessage]] = {}
        self._asking = 0

    # Registering.

    def received(self, conn: Handle, message: ClientMessage) -> None:
        line = self._waiting.get(conn)
        if line is not None:
            line.append(message)
            if len(line) > MAX_WAITING:
                self._give_up(conn, line)
            return
        session = self._core.conns.get(conn)
        principal = NOBODY if session is None else session.principal
        verdict = self.authority.may_register(principal, wanted(message))
        if isinstance(verdict, Verdict):
            self._step(FromConnection(conn, message, verdict.denied, verdict.undecided))
            return
        line = deque([message])
        if len(self._waiting) >= MAX_CONNECTIONS:
            verdict.close()
            self._give_up(conn, line)
            return
        self._waiting[conn] = line
        self._run(self._decide(conn, line, verdict))

    async def _decide(
        self, conn: Handle, line: deque[ClientMessage], verdict: Coroutine[Any, Any, Verdict]
    ) -> None:
        try:
            message = line[0]
            self._decided(conn, line, message, await verdict)
            while line and (session := self._core.conns.get(conn)) is not None:
                message = line[0]
                next_one = self.authority.may_register(session.principal, wanted(message))
                found = next_one if isinstance(next_one, Verdict) else await next_one
                self._decided(conn, line, message, found)
        finally:
            del self._waiting[conn]

    def _decided(
        self, conn: Handle, line: deque[ClientMessage], message: ClientMessage, found: Verdict
    ) -> None:
        if line and line[0] is message:  # else it was given up meanwhile
            line.popleft()
            self._step(FromConnection(conn, message, found.denied, found.undecided))

    def _give_up(self, conn: Handle, line: deque[ClientMessage]) -> None:
        """In their order, and all of them: the client may try again."""
        while line:
            message = line.popleft()
            self._step(FromConnection(conn, message, undecided=frozenset(wanted(message))))

    # Notifying.

    def audience(self, effect: Broadcast) -> Broadcast:
        """To whom it may go now."""
        notification = effect.message.notifications[0]
        sessions = self._core.conns
        allowed = [
            conn
            for conn in effect.conns
            if conn in sessions and self._allows(sessions[conn], notification)
        ]
        return msgspec.structs.replace(effect, conns=allowed)

    def message(self, effect: Send) -> ServerMessage:
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
            message = ServerMessage(PROTOCOL, session.number, notifications=[notification])
            conn.connection.send(message)  # type: ignore[attr-defined]

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


def wanted(message: ClientMessage) -> set[Key]:
    """What it would register for."""
    found = {operation.object for operation in message.operations if operation.register}
    found.update(key for sync in message.syncs for key in sync.objects)
    return found
