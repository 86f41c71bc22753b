"""Apps that are asked whether a client may hear of an object: when it registers, and where an app
wants it, before each notification, and before it publishes.

Most is decided at once. Where an app's backend has to be asked, a message waits, and what its
connection says of registrations after it waits behind it: the core takes them in their order. Acks
and heartbeats do not wait.

Nothing is sent to whoever may not register any more, and the registration is withdrawn: the client
is told so. Where the app's backend has to be asked first, the notification is kept back until it
has said yes; if it cannot be asked, the next check of the session brings the notification again.
So many questions are under way at a time; who has to wait for its turn is asked about then, and
told what is due to it by then.

What is to be published has been admitted before the app's backend is asked, so that nobody asks it
more often than it may publish. Of one client's connection nothing overtakes: what it publishes next
waits for this answer (MQTT), or is another request (HTTP).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import count
from typing import Any, Final

import msgspec

from roskva.channels.base import Outcomes
from roskva.core.effects import (
    Broadcast,
    Event,
    FromConnection,
    Handle,
    KeptBack,
    Send,
    Withdrawn,
)
from roskva.core.freshness import Due, due
from roskva.core.registrar import Registrar
from roskva.core.session import Session
from roskva.errors import Overloaded, RoskvaError, Unauthorised, Unavailable
from roskva.host.effects import Submitted
from roskva.model import NOBODY, Key, Principal, Update
from roskva.server.access.authority import Authority, Later, Verdict
from roskva.server.admission import Admitted
from roskva.wire.messages import PROTOCOL, ClientMessage, Notification, ServerMessage

MAX_WAITING: Final = 16
"""Messages of one connection."""
MAX_CONNECTIONS: Final = 1000
"""That wait."""
MAX_ASKING: Final = 1000
"""Questions about notifications, under way."""
MAX_PUBLISHING: Final = 10_000
"""Updates that wait for an answer."""
_TURN: Final = 100
"""Of those that wait, looked at before the loop gets its turn."""


class Authorisation:
    def __init__(
        self,
        core: Registrar,
        authority: Authority,
        step: Callable[[Event | Submitted], None],
        run: Callable[[Coroutine[Any, Any, None]], None],
        hand: Callable[[Handle, ServerMessage], None],
    ) -> None:
        """`hand`: sends a message to a connection."""
        self.authority = authority
        self._core = core
        self._step = step
        self._run = run
        self._hand = hand
        self._waiting: dict[Handle, deque[ClientMessage]] = {}
        self._asking = 0
        self._to_ask: dict[tuple[Session, Key], None] = {}
        """Of registrations that wait for their turn, the oldest first."""
        self._publishing = 0
        self._unanswered: dict[int, Outcomes] = {}
        """Of publishes that wait, by number."""
        self._numbers = count()

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
            elif key in verdict.undecided:
                self._step(KeptBack(session.conn, key))
            return key not in verdict.denied and key not in verdict.undecided
        if self._asking >= MAX_ASKING:
            verdict.close()
            self._to_ask[session, key] = None
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
            self._tell(session, notification)
        else:
            self._step(KeptBack(conn, key))
        await self._ask_others()

    async def _ask_others(self) -> None:
        """Those whose turn has come."""
        for looked_at in count(1):
            if not self._to_ask or self._asking >= MAX_ASKING:
                return
            session, key = next(iter(self._to_ask))
            del self._to_ask[session, key]
            notification = self._due(session, key)
            if notification is None:
                self._step(KeptBack(session.conn, key))
            elif self._allows(session, notification):
                self._tell(session, notification)
            if looked_at % _TURN == 0:
                await asyncio.sleep(0)

    def _tell(self, session: Session, notification: Notification) -> None:
        message = ServerMessage(PROTOCOL, session.number, notifications=[notification])
        self._hand(session.conn, message)

    def _due(self, session: Session, key: Key) -> Notification | None:
        watched = session.registered.get(key)
        if watched is None or watched.known is None or session.lagging:
            return None
        if self._core.conns.get(session.conn) is not session:
            return None
        version, epoch = watched.known
        match due(watched.sessions[session], watched.known):
            case Due.NOTHING:
                return None
            case Due.UNKNOWN:
                return Notification(key, None, epoch)
            case Due.VERSION:
                return Notification(key, version, epoch, watched.payload)

    def _is_current(self, session: Session, notification: Notification) -> bool:
        """Otherwise there was a newer one to be asked for, or it is due at the next check."""
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

    # Publishing.

    def publish(self, principal: Principal, admitted: Admitted, answered: Outcomes) -> None:
        app = principal.app
        if app is None or principal.key or app not in self.authority.asked_at_publish:
            self._step(Submitted(answered, admitted))
            return
        keys = [each.object for each in admitted if isinstance(each, Update)]
        verdict = self.authority.confirmed(principal, keys)
        if isinstance(verdict, Verdict):
            self._step(Submitted(answered, _confirmed(admitted, verdict)))
        elif self._publishing + len(keys) > MAX_PUBLISHING:
            verdict.close()
            answered(Overloaded("too many updates wait for the app's backend: try again later"))
        else:
            number = next(self._numbers)
            self._unanswered[number] = answered
            self._publishing += len(keys)
            self._run(self._confirm(number, admitted, len(keys), verdict))

    async def _confirm(
        self, number: int, admitted: Admitted, updates: int, asked: Later[Verdict]
    ) -> None:
        try:
            verdict = await asked
        finally:
            self._publishing -= updates
        answered = self._unanswered.pop(number, None)
        if answered is not None:
            self._step(Submitted(answered, _confirmed(admitted, verdict)))

    def give_up(self) -> None:
        """The node stops: whoever publishes has to come again."""
        unanswered, self._unanswered = self._unanswered, {}
        for answered in unanswered.values():
            answered(Unavailable("the app's backend was not asked: publish again"))


def _confirmed(admitted: Admitted, verdict: Verdict) -> Admitted:
    return [each if isinstance(each, RoskvaError) else _judged(each, verdict) for each in admitted]


def _judged(update: Update, verdict: Verdict) -> Update | RoskvaError:
    if update.object in verdict.denied:
        return Unauthorised("publishing this object is not allowed")
    if update.object in verdict.undecided:
        return Unavailable("the app's backend cannot be asked: try again later")
    return update


def wanted(message: ClientMessage) -> set[Key]:
    """What it would register for."""
    found = {operation.object for operation in message.operations if operation.register}
    found.update(key for sync in message.syncs for key in sync.objects)
    return found
