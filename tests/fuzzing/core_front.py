"""A node without I/O behind a channel: the registrar core, and a shard that says yes to everything.

Every input is one connection from its beginning to its end; the loop turns until nothing is left of
it but what the core keeps on purpose.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from tests.channels.mqtt_side import RecordingFront

from roskva.answer import Answered
from roskva.channels.base import Outcomes
from roskva.core.effects import (
    Broadcast,
    Close,
    Effect,
    Event,
    FromConnection,
    FromLink,
    LinkUp,
    Send,
    SendLink,
    Tick,
)
from roskva.core.identity import TokenKeys
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.host.delivery import Delivery, Write
from roskva.host.registrar import Fanout, Outputs
from roskva.model import NOBODY, Principal, Update
from roskva.wire.links import (
    CurrentVersion,
    Interest,
    LinkHello,
    OpenSession,
    Ping,
    Pong,
    RowWritten,
    SessionOpened,
    Versions,
    Welcome,
    WriteRow,
)
from roskva.wire.messages import FromClient

EPOCH = 8


class CoreFront(RecordingFront):
    def __init__(self) -> None:
        super().__init__(assigned=True)
        self.now = 0.0
        self.core = Registrar(
            RegistrarConfig("r", 1, linger=0.0), TokenKeys({1: bytes(32)}, 1), 0, self.now
        )
        self.broken: Exception | None = None
        self._fanout = Fanout()
        self._waiting: deque[Event] = deque()
        self._stepping = False
        self.step(LinkUp(0))

    def step(self, event: Event) -> None:
        self._waiting.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._waiting:
                for effect in self.core.step(self._waiting.popleft(), self.now):
                    self._carry_out(effect)
        finally:
            self._stepping = False

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        deadline = self.core.next_deadline()
        while deadline is not None and deadline <= self.now:
            self.step(Tick())
            deadline = self.core.next_deadline()

    def identify(
        self,
        app: str | None,
        credential: str | None,
        certificate: str | None,
        answered: Answered[Principal],
    ) -> None:
        answered(NOBODY)

    def received(self, conn: Delivery, principal: Principal, message: FromClient) -> None:
        self.step(FromConnection(conn, message, principal=principal))

    def check_publishing(self, principal: Principal, body_bytes: int) -> None:
        pass

    def publish(self, principal: Principal, updates: Sequence[Update], answered: Outcomes) -> None:
        answered([7 for _ in updates])

    def _write(self, outputs: Outputs) -> None:
        for each in outputs:
            if isinstance(each, Write):
                self.writer.write(each.addresses, each.data)
            else:
                self.step(each)
        if self._fanout.pending:
            asyncio.get_running_loop().call_soon(self._work)

    def _work(self) -> None:
        try:
            self._write(self._fanout.work())
        except Exception as error:
            self.broken = error

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Broadcast():
                self._write(self._fanout.broadcast(effect))
            case Send(conn=Delivery() as delivery, message=message):
                delivery.connection.send(message)
            case Close(conn=Delivery() as delivery):
                delivery.connection.close()
            case SendLink(message=message):
                self._answer(message)

    def _answer(self, message: object) -> None:
        match message:
            case LinkHello():
                self.step(FromLink(0, Welcome(0)))
            case OpenSession(request=request):
                self.step(FromLink(0, SessionOpened(request, 1000 + request)))
            case WriteRow(request=request) if request:
                self.step(FromLink(0, RowWritten(request)))
            case Ping():
                self.step(FromLink(0, Pong(agree=True)))
            case Interest(add=add) if add:
                self.step(FromLink(0, Versions([CurrentVersion(key, 1, EPOCH) for key in add])))


class Turning:
    """A loop, turned by hand."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._error: BaseException | None = None

    def run(self, *works: Callable[[], None]) -> None:
        """One after the other, with two turns of the loop after each: what a channel puts off is
        done in the next, and what that leads to in the one after it."""
        self.loop.call_soon(self._next, list(works))
        self.loop.run_forever()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def _next(self, works: list[Callable[[], None]]) -> None:
        if not works or self._error is not None:
            self.loop.stop()
            return
        self._guarded(works.pop(0))
        self.loop.call_soon(self.loop.call_soon, self._next, works)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error
