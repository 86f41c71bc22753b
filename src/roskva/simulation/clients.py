"""Applications in the simulation, and the clients they run on: the real client core, or MQTT.

An application keeps, per object, which change of it it knows. Told a version, it knows that one;
told unknown, it looks at the backend. Either takes a moment, then it acks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from roskva.core import effects
from roskva.core.backoff import Rate
from roskva.core.client import ClientConfig, ClientMachine
from roskva.core.effects import ClientEvent, Effect
from roskva.core.identity import pack_identity, unpack_identity
from roskva.errors import BadMessage
from roskva.model import Key, app_of
from roskva.simulation.network import Connection, Datagrams
from roskva.simulation.process import SimulatedProcess
from roskva.wire import codec
from roskva.wire.messages import ClientMessage

if TYPE_CHECKING:
    from roskva.simulation.world import World

APP = "app"


class App:
    """What an application believes; it outlives its client's connection, and with luck a crash."""

    def __init__(self, wanted: list[Key]) -> None:
        self.wanted = dict.fromkeys(wanted)
        self.knows: dict[Key, int] = {}
        self.version: dict[Key, int] = {}
        """Of what it knows, where that came as a version."""
        self.own: set[tuple[Key, int]] = set()
        """Changes it made itself."""
        self.asked_at: dict[Key, float] = {}
        self.dropped: set[Key] = set()
        """Thrown away or rolled back, and the server may not have heard."""
        self.left_at: dict[Key, float] = {}
        """When it unregistered, or was refused, what it has been told nothing of since."""

    def learn(self, key: Key, stamp: int) -> None:
        """A change, and its own ones that followed directly."""
        stamp = max(stamp, self.knows.get(key, 0))
        while (key, stamp + 1) in self.own:
            stamp += 1
        self.knows[key] = stamp

    def wrote(self, key: Key) -> bool:
        """It was named as a source, and promises by that to keep what it has of the object."""
        return any(change[0] == key for change in self.own)

    def forget(self, key: Key) -> None:
        self.own = {change for change in self.own if change[0] != key}
        self.knows.pop(key, None)
        self.version.pop(key, None)


class AnyClient(SimulatedProcess):
    """What both kinds share: an application, and one connection at a time."""

    reliable = False
    wire: type[Connection] = Connection

    def __init__(self, world: World, name: str, wanted: list[Key]) -> None:
        super().__init__(world, name)
        self.app = App(wanted)
        self.conn: Connection | None = None
        self.reads_slowly = False
        self.busy_until = 0.0
        """Until then the application acks nothing."""
        self.deliveries = 0
        self.acked: dict[Key, int] = {}
        """The newest change acked as a version in this life."""

    def dial(self) -> None:
        registrar = self.world.pick_registrar()
        if registrar is None:
            self.later(self.world.net.delay(), self.hung_up)
            return
        conn = self.conn = self.wire(self.world, self, registrar, self.reliable)
        registrar.accept(conn)
        self.later(self.world.net.delay(), self.connected)

    def connected(self) -> None:
        raise NotImplementedError

    def hung_up(self) -> None:
        raise NotImplementedError

    def closed(self, conn: Connection) -> None:
        if conn is self.conn:
            self.conn = None
            self.later(0, self.hung_up)

    def hang_up(self) -> None:
        conn, self.conn = self.conn, None
        if conn is not None:
            conn.close("client")

    def read_again(self) -> None:
        self.reads_slowly = False
        if self.conn is not None and self.conn.server.alive:
            self.conn.server.drain(self.conn)

    def received(self, conn: Connection, frame: bytes) -> None:
        raise NotImplementedError

    def told(self, key: Key, version: int | None) -> int:
        """The application learns; returns the change it will ack."""
        oracle, app = self.world.oracle, self.app
        self.deliveries += 1
        self.world.notifications += 1
        if version is None:
            stamp = self.world.look(key)
            app.version.pop(key, None)
            self.world.seen("told unknown")
        else:
            stamp = oracle.stamp_told(self.name, key, version)
            self.world.check_told(self.name, key, stamp)
            if self.world.keeps_order(key, version):
                oracle.check_not_older(self.name, key, stamp, self.acked.get(key, 0))
            if stamp >= app.knows.get(key, 0):
                app.version[key] = version
        app.learn(key, stamp)
        app.dropped.discard(key)
        app.left_at.pop(key, None)
        oracle.note(self.world.clock.now, f"{self.name} told {key} {version}")
        return stamp

    def reaction_time(self) -> float:
        if self.world.clock.now < self.busy_until:
            return self.busy_until - self.world.clock.now
        return self.world.dice.random() * self.world.swarm.app_delay

    def crash(self) -> None:
        self.end()
        self.acked = {}
        conn, self.conn = self.conn, None
        if conn is not None:
            conn.close("client")


class ClientNode(AnyClient):
    """A client of the full protocol."""

    core: ClientMachine
    kind = "client"
    of_app = APP

    def __init__(self, world: World, index: int, wanted: list[Key]) -> None:
        super().__init__(world, f"{self.kind}-{index}", wanted)
        self.application = self.name
        """Stands for one cache: when all of that is lost, the next one has another."""
        self.identity: bytes | None = None
        self.identities: list[bytes] = []
        self.unknown_in: dict[Key, set[int]] = {}
        """The epochs in which it was told unknown."""

    def start(self) -> None:
        swarm = self.world.swarm
        self.begin()
        if self.identity is None:
            self.app.dropped.clear()
        self.asked: set[Key] = set()
        self.machine = self.core = ClientMachine(
            ClientConfig(
                app=self.of_app,
                application=self.application,
                heartbeat=swarm.heartbeat,
                answer_timeout=swarm.answer_timeout,
                backoff_first=0.5,
                backoff_cap=8.0,
                rate=Rate(25, 1000),
                reissue_grace=1.0,
                fenced_wait=4.0,
            ),
            self.identity,
            self.world.dice.getrandbits(64),
            self.now(),
        )
        self.set_timer()

    def counters(self) -> dict[str, int]:
        return self.core.counters

    def connected(self) -> None:
        if self.conn is not None:
            self.step(effects.Connected())

    def hung_up(self) -> None:
        if self.conn is None:
            self.step(effects.Disconnected())

    def received(self, conn: Connection, frame: bytes) -> None:
        if conn is not self.conn:
            return
        try:
            message = codec.decode_from_server(frame)
        except BadMessage:
            return
        self.step(effects.FromServer(message))

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case effects.OpenConnection():
                self.dial()
            case effects.CloseConnection():
                self.hang_up()
            case effects.Transmit(message=message):
                if isinstance(message, ClientMessage):
                    self.asked.update(operation.object for operation in message.operations)
                else:
                    self.asked.clear()
                if self.conn is not None:
                    self.conn.send("server", codec.encode(message))
            case effects.SaveIdentity(identity=identity):
                delay = self.world.pen.random() * self.world.swarm.app_delay
                self.later(delay, lambda: self.keep(identity))
            case effects.Deliver(event=event):
                self.deliver(event)

    def keep(self, identity: bytes | None) -> None:
        """Written when the application comes to it, and perhaps it crashes before."""
        self.identity = identity
        if identity is not None:
            self.identities.append(identity)

    # The application.

    def deliver(self, event: ClientEvent) -> None:
        if isinstance(event, effects.Notify | effects.NotifyUnknown):
            generations = self.world.operator.generations.get(app_of(event.object), {0})
            self.world.oracle.check_mark(self.name, event.object, event.epoch, generations)
        match event:
            case effects.Notify(object=key, version=version, epoch=epoch):
                stamp = self.told(key, version)
                self.later(self.reaction_time(), lambda: self.ack(key, version, epoch, stamp))
            case effects.NotifyUnknown(object=key, epoch=epoch):
                self.unknown_in.setdefault(key, set()).add(epoch)
                self.later(self.reaction_time(), lambda: self.look(key, epoch))
            case effects.RegistrationStatus(object=key, registered=False):
                self.app.dropped.discard(key)
            case effects.RegistrationStatus(object=key, registered=True):
                if key in self.app.knows:
                    self.app.dropped.discard(key)  # it was a declaration, and is on record
                self.world.oracle.note(self.world.clock.now, f"{self.name} registered {key}")
                if key in self.asked:  # else it was on record, and nothing had to be compared
                    self.asked.discard(key)
                    self.world.confirmed(self, key)
            case effects.RegistrationFailure(object=key):
                self.world.seen("registration failed")
                self.app.left_at.setdefault(key, self.world.clock.now)
                self.later(1.0, lambda: self.register(key))
            case effects.ReissueRegistrations():
                for key in list(self.app.wanted):
                    declares = self.world.dice.random() < 0.5
                    self.register(key, self.app.version.get(key) if declares else None)

    def look(self, key: Key, epoch: int) -> None:
        if key in self.app.wanted:
            stamp = self.told(key, None)
            self.ack(key, None, epoch, stamp)

    def ack(self, key: Key, version: int | None, epoch: int, stamp: int) -> None:
        if key in self.app.wanted:
            if version is not None and key in self.core.heard:  # else taken back by a declaration
                self.acked[key] = max(self.acked.get(key, 0), stamp)
            self.step(effects.Acknowledge(key, version, epoch))

    def register(self, key: Key, version: int | None = None) -> None:
        if self.alive and key in self.app.wanted:
            self.app.asked_at[key] = self.world.clock.now
            self.step(effects.Register(key, version))

    def writes(self, key: Key, stamp: int) -> str:
        """The application makes this change itself; returns what to name as its source."""
        self.app.own.add((key, stamp))
        self.app.learn(key, 0)
        return self.application

    # Faults.

    def unregister(self, key: Key) -> None:
        if key in self.app.wanted and self.alive:
            del self.app.wanted[key]
            self.app.forget(key)
            self.app.dropped.add(key)
            self.app.left_at[key] = self.world.clock.now
            self.acked.pop(key, None)
            self.step(effects.Unregister(key))

    def want(self, key: Key) -> None:
        self.app.wanted[key] = None
        self.register(key)

    def crash(self) -> None:
        """An identity is kept only together with the cache that it stands for."""
        super().crash()
        if self.app.dropped:
            self.identity = None

    def crash_forgetting(self) -> None:
        self.crash()
        self.identity = None
        self.application += "'"
        self.app = App(list(self.app.wanted))

    def take_older_token(self) -> None:
        """What is cached is of today."""
        if self.identity is not None:
            self.identity = self.identities[-1]

    def spoil_token(self) -> None:
        kept = unpack_identity(self.identity, self.of_app) if self.identity else None
        if kept is not None:
            spoilt = msgspec.structs.replace(kept, token=kept.token[:-1] + b"?")
            self.identity = pack_identity(spoilt)


class OwnChannelNode(ClientNode):
    """A client whose application brings a channel of its own, and a bad one: datagrams."""

    kind = "own"
    wire = Datagrams
