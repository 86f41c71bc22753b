"""Registrations that have to be asked for: in their order, and never too many of them."""

import asyncio
from collections.abc import Collection, Coroutine
from typing import Any

from tests.loops import in_loop

from roskva.core.effects import Opened
from roskva.core.identity import TokenKeys
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.host.delivery import Announcement, Delivery
from roskva.model import Key, Principal
from roskva.server.access.authority import ALLOWED, AllowAll, Later, Verdict
from roskva.server.authorisation import MAX_CONNECTIONS, MAX_WAITING, Authorisation
from roskva.wire.messages import PROTOCOL, ClientMessage, Operation, Sync


class Silent(Delivery):
    def notify(self, announcement: Announcement) -> None: ...


class Asks(AllowAll):
    """Names that begin with "ask" are asked for, until the gate is opened."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.denies: frozenset[Key] = frozenset()

    def may_register(  # type: ignore[override]  # others may have to be asked
        self, principal: Principal, keys: Collection[Key]
    ) -> Verdict | Later[Verdict]:
        return self._ask() if any("/ask" in key for key in keys) else ALLOWED

    async def _ask(self) -> Verdict:
        await self.gate.wait()
        return Verdict(self.denies)


class Bench:
    def __init__(self) -> None:
        self.asks = Asks()
        self.taken: list[Any] = []
        self.tasks: list[asyncio.Task[None]] = []
        core = Registrar(RegistrarConfig("r", 1), TokenKeys({1: bytes(32)}, 1), 0, 0.0)
        self.core = core
        self.authorisation = Authorisation(core, self.asks, self.taken.append, self._run)

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
