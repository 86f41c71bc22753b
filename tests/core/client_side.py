"""A client for tests: the real machine, and an application that remembers what it is told."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.core.links import Connection

from roskva.core.client import ClientConfig, ClientMachine
from roskva.core.effects import (
    Acknowledge,
    ClientEvent,
    CloseConnection,
    Closed,
    Connected,
    Deliver,
    Disconnected,
    Effect,
    Event,
    FromServer,
    Notify,
    NotifyUnknown,
    OpenConnection,
    Opened,
    Register,
    SaveIdentity,
    Stop,
    Tick,
    Transmit,
    Unregister,
)
from roskva.model import Key
from roskva.wire.messages import ClientMessage, FromClient, Hello, Operation, ServerMessage

if TYPE_CHECKING:
    from tests.core.pair import Pair


class ClientSide:
    """A client and the application on it, which acks what it is told unless told not to."""

    def __init__(self, pair: Pair, config: ClientConfig, identity: bytes | None) -> None:
        self.pair, self.config = pair, config
        self.registrar = pair.registrars[0]
        self.reachable = True
        self.auto_ack = True
        self.identity = identity
        self.conn: Connection | None = None
        self.sent: list[FromClient] = []
        self.heard: list[ServerMessage] = []
        self.events: list[ClientEvent] = []
        self.start()

    def start(self) -> None:
        self.core = ClientMachine(
            self.config, self.identity, seed=self.pair.bits(), now=self.pair.now
        )

    def restart(self) -> None:
        """The process ends and begins again with what it saved."""
        self.lose_connection(tell=False)
        self.start()

    # What the application does.

    def register(self, *keys: Key, version: int | None = None) -> None:
        for key in keys:
            self.step(Register(key, version))

    def unregister(self, key: Key) -> None:
        self.step(Unregister(key))

    def ack(self, event: ClientEvent) -> None:
        if isinstance(event, Notify):
            self.step(Acknowledge(event.object, event.version, event.epoch))
        elif isinstance(event, NotifyUnknown):
            self.step(Acknowledge(event.object, None, event.epoch))

    def stop(self) -> None:
        self.step(Stop())

    # What it was told, and what it sent.

    def told(self, key: Key) -> list[int | None]:
        """The notifications so far, None for unknown."""
        return [
            event.version if isinstance(event, Notify) else None
            for event in self.events
            if isinstance(event, Notify | NotifyUnknown) and event.object == key
        ]

    def clear(self) -> None:
        self.sent, self.heard, self.events = [], [], []

    def hellos(self) -> list[Hello]:
        return [message for message in self.sent if isinstance(message, Hello)]

    def messages(self) -> list[ClientMessage]:
        return [message for message in self.sent if isinstance(message, ClientMessage)]

    def operations(self) -> list[Operation]:
        return [operation for message in self.messages() for operation in message.operations]

    # The machine.

    def deadline(self) -> float | None:
        return self.core.next_deadline()

    def tick(self) -> None:
        self.step(Tick())

    def step(self, event: Event) -> None:
        for effect in self.core.step(event, self.pair.now):
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Transmit(message=message):
                self.sent.append(message)
                if self.conn is not None:
                    self.conn.up.put(message)
            case Deliver(event=event):
                self.events.append(event)
                if self.auto_ack:
                    self.pair.soon(partial(self.ack, event))
            case SaveIdentity(identity=identity):
                self.identity = identity
            case OpenConnection():
                self.pair.soon(self._connect)
            case CloseConnection():
                self.lose_connection(tell=False)
            case _:
                raise AssertionError(effect)

    def _connect(self) -> None:
        if not self.reachable:
            self.step(Disconnected())
            return
        conn = self.conn = Connection(self.pair.next_id(), self, self.registrar)
        self.registrar.conns[conn.id] = conn
        self.registrar.step(Opened(conn.id, self.pair.random_bytes(28)))
        self.step(Connected())

    def received(self, conn: Connection, message: ServerMessage) -> None:
        if conn is self.conn:
            self.heard.append(message)
            self.step(FromServer(message))

    def hung_up(self, conn: Connection) -> None:
        if conn is self.conn:
            self.conn = None
            self.step(Disconnected())

    def lose_connection(self, *, tell: bool = True) -> None:
        conn, self.conn = self.conn, None
        if conn is None:
            return
        if conn.registrar.conns.pop(conn.id, None) is not None:
            self.pair.soon(partial(conn.registrar.step, Closed(conn.id)))
        if tell:
            self.step(Disconnected())
