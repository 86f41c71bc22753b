"""A client process of a scenario: the real client, and an application that wants some objects."""

from __future__ import annotations

from functools import partial
from typing import Final

from tests.scenarios.cluster import Cluster, Node, ScriptError
from tests.scenarios.registrar import Connection, RegistrarNode

from roskva.core.client import ClientConfig, ClientMachine
from roskva.core.effects import (
    Acknowledge,
    ClientEvent,
    CloseConnection,
    Connected,
    Deliver,
    Disconnected,
    Event,
    FromServer,
    Notify,
    NotifyUnknown,
    Online,
    OpenConnection,
    Register,
    ReissueRegistrations,
    SaveIdentity,
    Tick,
    Transmit,
    Unregister,
)
from roskva.model import Key
from roskva.wire.messages import Hello, ServerMessage

APP: Final = "contacts"
_LATENCY: Final = 0.010


class ClientNode(Node):
    def __init__(self, cluster: Cluster, name: str, registrars: list[RegistrarNode]) -> None:
        super().__init__(cluster, name)
        self.registrars = registrars
        """In the order in which it tries them."""
        self.application = name
        self.identity: bytes | None = None
        self.wanted: dict[Key, None] = {}
        self.told: dict[Key, tuple[int | None, int]] = {}
        """Version and epoch of what the application was last told and has not acked."""
        self.acks_at_once = False
        self.conn: Connection | None = None
        self.has_network = True
        self.reads_slowly = False
        self.greeted_at: list[float] = []
        self.granted_at: list[float] = []
        self.notified_at: list[float] = []

    def start(self) -> None:
        self.begin()
        self.told = {}
        config = ClientConfig(app=APP, application=self.application)
        self.core = ClientMachine(
            config, self.identity, self.cluster.dice.getrandbits(64), self.now()
        )
        self.wake_at(self.core.next_deadline())

    def crash(self) -> None:
        self.end()
        self.cluster.trace.say("clients", self.name, "crashes")
        conn, self.conn = self.conn, None
        if conn is not None:
            conn.break_off()

    def tick(self) -> None:
        self.step(Tick())

    def step(self, event: Event) -> None:
        for effect in self.core.step(event, self.now()):
            match effect:
                case OpenConnection():
                    self._dial()
                case CloseConnection():
                    conn, self.conn = self.conn, None
                    if conn is not None:
                        conn.close_by_client()
                case Transmit(message=message):
                    if isinstance(message, Hello):
                        self.greeted_at.append(self.now())
                    if self.conn is not None:
                        self.conn.to_registrar(message)
                case SaveIdentity(identity=identity):
                    self.identity = identity
                case Deliver(event=delivered):
                    self._deliver(delivered)
        self.wake_at(self.core.next_deadline())

    # The connection.

    def _dial(self) -> None:
        able = [registrar for registrar in self.registrars if registrar.alive]
        if not able or not self.has_network:
            self.after(_LATENCY, lambda: self.step(Disconnected()))
            return
        conn = self.conn = Connection(self, able[0])
        able[0].accept(conn)
        self.after(_LATENCY, lambda: self.step(Connected()) if conn is self.conn else None)

    def closed(self, conn: Connection) -> None:
        if self.alive and conn is self.conn:
            self.conn = None
            self.step(Disconnected())

    def received(self, message: ServerMessage) -> None:
        if message.grant is not None:
            self.granted_at.append(self.now())
        self.step(FromServer(message))

    def lose_network(self) -> None:
        self.has_network = False
        conn, self.conn = self.conn, None
        if conn is not None:
            self.cluster.trace.say(
                "clients", f"{self.name} x {conn.registrar.name}", "disconnected"
            )
            conn.break_off()
            self.step(Disconnected())

    def regain_network(self) -> None:
        self.has_network = True
        self.step(Online())

    def read_again(self) -> None:
        self.reads_slowly = False
        if self.conn is not None:
            self.conn.registrar.drain(self.conn)

    # The application.

    def _deliver(self, event: ClientEvent) -> None:
        text = self.cluster.notation.to_application(event)
        self.cluster.trace.say("clients", f"{self.name} ::", text)
        match event:
            case Notify(object=key, version=version, epoch=epoch):
                self._hear(key, version, epoch)
            case NotifyUnknown(object=key, epoch=epoch):
                self._hear(key, None, epoch)
            case ReissueRegistrations():
                for key in self.wanted:
                    self.after(0, partial(self.step, Register(key)))

    def _hear(self, key: Key, version: int | None, epoch: int) -> None:
        self.told[key] = (version, epoch)
        self.notified_at.append(self.now())
        if self.acks_at_once:
            self.after(0, lambda: self.ack() if key in self.told else None)

    def ack(self) -> None:
        if not self.told:
            raise ScriptError(f"{self.name} has nothing to ack")
        told, self.told = self.told, {}
        for key, (version, epoch) in told.items():
            self.step(Acknowledge(key, version, epoch))

    def register(self, key: Key, version: int | None) -> None:
        self.wanted[key] = None
        self.step(Register(key, version))

    def unregister(self, key: Key) -> None:
        del self.wanted[key]
        self.told.pop(key, None)
        self.step(Unregister(key))
