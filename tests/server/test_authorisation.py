"""Registrations that have to be asked for: in their order, and never too many of them."""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any

from tests.core.pair import Pair
from tests.core.test_attached import Device
from tests.loops import in_loop, until

from roskva.core.effects import Broadcast, Opened
from roskva.core.identity import TokenKeys
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.errors import BadInput, Overloaded, Unauthorised, Unavailable
from roskva.host.delivery import Announcement, Delivery
from roskva.model import Key, Principal, Update
from roskva.server.access.authority import ALLOWED, AllowAll, Later, Verdict
from roskva.server.admission import Admitted
from roskva.server.authorisation import (
    MAX_ASKING,
    MAX_CONNECTIONS,
    MAX_PUBLISHING,
    MAX_WAITING,
    Authorisation,
)
from roskva.wire.messages import (
    PROTOCOL,
    Ack,
    ClientMessage,
    Notification,
    Operation,
    ServerMessage,
    Sync,
)


class Silent(Delivery):
    def notify(self, announcement: Announcement) -> None: ...


class Asks(AllowAll):
    """Names that begin with "ask" are asked for, until the gate is opened."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.denies: frozenset[Key] = frozenset()
        self.asking = self.most_at_once = 0
        self.asked_at_publish = frozenset({"app"})

    def may_register(  # type: ignore[override]  # others may have to be asked
        self, principal: Principal, keys: Collection[Key]
    ) -> Verdict | Later[Verdict]:
        return self._ask() if any("/ask" in key for key in keys) else ALLOWED

    def confirmed(  # type: ignore[override]
        self, principal: Principal, keys: Collection[Key]
    ) -> Verdict | Later[Verdict]:
        return self._ask()

    async def _ask(self) -> Verdict:
        self.asking += 1
        self.most_at_once = max(self.most_at_once, self.asking)
        await self.gate.wait()
        self.asking -= 1
        return Verdict(self.denies)


def hand(conn: Any, message: ServerMessage) -> None:
    conn.connection.send(message)


class Bench:
    def __init__(self) -> None:
        self.asks = Asks()
        self.taken: list[Any] = []
        self.tasks: list[asyncio.Task[None]] = []
        core = Registrar(RegistrarConfig("r", 1), TokenKeys({1: bytes(32)}, 1), 0, 0.0)
        self.core = core
        self.authorisation = Authorisation(core, self.asks, self.taken.append, self._run, hand)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self.tasks.append(asyncio.get_running_loop().create_task(work))

    def connect(self) -> Delivery:
        conn = Silent()
        self.core.step(Opened(conn, bytes(28)), 0.0)
        return conn

    def say(self, conn: Delivery, number: int, *names: str) -> None:
        operations = [Operation(f"app/{name}") for name in names]
        message = ClientMessage(PROTOCOL, 1, number, operations=operations)
        self.authorisation.received(conn, message)

    def numbers(self, conn: Delivery) -> list[int]:
        return [
            event.message.number
            for event in self.taken
            if event.conn is conn and isinstance(event.message, ClientMessage)
        ]

    async def end(self) -> None:
        self.asks.gate.set()
        await asyncio.gather(*self.tasks)


@in_loop
async def test_what_can_be_decided_is_decided_at_once() -> None:
    bench = Bench()
    conn = bench.connect()
    bench.say(conn, 1, "x")
    assert bench.numbers(conn) == [1]
    assert not bench.tasks


@in_loop
async def test_messages_wait_behind_one_that_is_asked_for() -> None:
    bench = Bench()
    conn, other = bench.connect(), bench.connect()
    bench.say(conn, 1, "ask-1", "secret")
    bench.say(conn, 2, "x")
    bench.say(conn, 3, "ask-2")
    bench.say(other, 1, "x")
    assert bench.numbers(conn) == []
    assert bench.numbers(other) == [1]
    bench.asks.denies = frozenset({"app/secret"})
    await bench.end()
    assert bench.numbers(conn) == [1, 2, 3]
    assert bench.taken[1].denied == {"app/secret"}
    assert bench.taken[2].denied == frozenset()
    bench.say(conn, 4, "x")
    assert bench.numbers(conn) == [1, 2, 3, 4], "nobody waits any more"


@in_loop
async def test_too_many_of_one_connection_are_all_given_up_in_their_order() -> None:
    bench = Bench()
    conn = bench.connect()
    for number in range(1, MAX_WAITING + 2):
        bench.say(conn, number, f"ask-{number}")
    assert bench.numbers(conn) == list(range(1, MAX_WAITING + 2))
    assert all(event.undecided for event in bench.taken)
    bench.say(conn, 100, "ask")
    await bench.end()
    assert bench.numbers(conn)[-1] == 100
    assert not bench.taken[-1].undecided
    assert len(bench.taken) == MAX_WAITING + 2, "what was given up is not answered again"


@in_loop
async def test_too_many_connections_are_not_kept_waiting() -> None:
    bench = Bench()
    for _ in range(MAX_CONNECTIONS):
        bench.say(bench.connect(), 1, "ask")
    assert not bench.taken
    late = bench.connect()
    bench.say(late, 1, "ask")
    [event] = bench.taken
    assert event.conn is late
    assert event.undecided == {"app/ask"}
    await bench.end()
    assert len(bench.taken) == MAX_CONNECTIONS + 1


@in_loop
async def test_syncs_are_asked_for_as_well() -> None:
    bench = Bench()
    conn = bench.connect()
    sync = ClientMessage(PROTOCOL, 1, 1, syncs=[Sync(b"", ["app/ask", "app/x"])])
    bench.authorisation.received(conn, sync)
    assert not bench.taken
    await bench.end()
    assert bench.numbers(conn) == [1]


class Heard(list[tuple[Key, int | None]]):
    """A connection, as what it was told."""

    def send(self, message: ServerMessage) -> None:
        self += [(told.object, told.version) for told in message.notifications]


@in_loop
async def test_who_is_not_asked_about_at_once_is_as_soon_as_there_is_room() -> None:
    pair, bench, heard = Pair(), Bench(), Heard()
    keys = [f"app/ask-{number}" for number in range(MAX_ASKING + 300)]
    device = Device(pair)
    device.say(*map(Operation, keys))
    (session,) = pair.registrar.core.sessions.values()
    session.conn.connection = heard  # type: ignore[attr-defined]
    authorisation = Authorisation(
        pair.registrar.core, bench.asks, pair.registrar.step, bench.authorisation._run, hand
    )
    for key in keys:
        pair.publish(key, 1)
    pair.settle()
    _, epoch = session.registered[keys[0]].known or (0, 0)
    for key in keys:
        message = ServerMessage(PROTOCOL, notifications=[Notification(key, 1, epoch)])
        assert not authorisation.audience(Broadcast(message, [session.conn])).conns
    await asyncio.sleep(0)
    assert bench.asks.asking == MAX_ASKING
    newer, acked = keys[-1], keys[-2]
    pair.publish(newer, 2)
    device.say(acks=[Ack(acked, 1, epoch)])
    assert heard == []
    bench.asks.gate.set()
    await until(lambda: not bench.asks.asking and len(heard) >= len(keys) - 1)
    assert sorted(heard) == sorted([*((key, 1) for key in keys[:-2]), (newer, 2)])
    assert bench.asks.most_at_once == MAX_ASKING
    await bench.end()


ALICE = Principal("alice", "app")
UPDATES: Admitted = [Update("app/x", 1), BadInput("no"), Update("app/secret", 2)]


@in_loop
async def test_what_is_published_waits_for_its_answer_and_a_publish_key_for_none() -> None:
    bench = Bench()
    bench.asks.denies = frozenset({"app/secret"})
    backend = Principal("key-1", "app", key=True)
    answers: list[Any] = []
    bench.authorisation.publish(ALICE, UPDATES, answers.append)
    assert not bench.taken
    bench.authorisation.publish(backend, UPDATES, answers.append)
    assert [event.updates for event in bench.taken] == [UPDATES]
    await bench.end()
    taken = bench.taken[1].updates
    assert taken[:2] == UPDATES[:2]
    assert isinstance(taken[2], Unauthorised)


@in_loop
async def test_what_waits_to_be_published_is_bounded_and_answered_when_a_node_stops() -> None:
    bench, answers = Bench(), list[Any]()
    many: Admitted = [Update(f"app/{number}", 1) for number in range(MAX_PUBLISHING)]
    bench.authorisation.publish(ALICE, many, answers.append)
    bench.authorisation.publish(ALICE, UPDATES, answers.append)
    assert [type(answer) for answer in answers] == [Overloaded]
    await asyncio.sleep(0)
    for task in bench.tasks:
        task.cancel()
    bench.authorisation.give_up()
    assert [type(answer) for answer in answers] == [Overloaded, Unavailable]
    assert not bench.taken
    await asyncio.gather(*bench.tasks, return_exceptions=True)
