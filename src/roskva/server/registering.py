"""Messages with registrations in them: authorised, then handed to the core.

Most are decided at once. Where an app's backend has to be asked, a message waits, and what its
connection says of registrations after it waits behind it: the core takes them in their order. Acks
and heartbeats do not wait.
"""

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any, Final

from roskva.core.effects import Received
from roskva.core.registrar import Registrar
from roskva.host.delivery import Delivery
from roskva.model import NOBODY, Key
from roskva.server.access.base import Authority, Verdict
from roskva.wire.messages import ClientMessage

MAX_WAITING: Final = 16
"""Messages of one connection."""
MAX_CONNECTIONS: Final = 1000
"""That wait."""


class Registering:
    def __init__(
        self,
        core: Registrar,
        authority: Authority,
        step: Callable[[Received], None],
        run: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self.authority = authority
        self._core = core
        self._step = step
        self._run = run
        self._waiting: dict[Delivery, deque[ClientMessage]] = {}

    def received(self, conn: Delivery, message: ClientMessage) -> None:
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
            self._step(Received(conn, message, verdict.denied, verdict.undecided))
            return
        line = deque([message])
        if len(self._waiting) >= MAX_CONNECTIONS:
            verdict.close()
            self._give_up(conn, line)
            return
        self._waiting[conn] = line
        self._run(self._decide(conn, line, verdict))

    async def _decide(
        self, conn: Delivery, line: deque[ClientMessage], verdict: Coroutine[Any, Any, Verdict]
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
        self, conn: Delivery, line: deque[ClientMessage], message: ClientMessage, found: Verdict
    ) -> None:
        if line and line[0] is message:  # else it was given up meanwhile
            line.popleft()
            self._step(Received(conn, message, found.denied, found.undecided))

    def _give_up(self, conn: Delivery, line: deque[ClientMessage]) -> None:
        """In their order, and all of them: the client may try again."""
        while line:
            message = line.popleft()
            self._step(Received(conn, message, undecided=frozenset(wanted(message))))


def wanted(message: ClientMessage) -> set[Key]:
    """What it would register for."""
    found = {operation.object for operation in message.operations if operation.register}
    found.update(key for sync in message.syncs for key in sync.objects)
    return found
