"""Large fan-outs, overtaken while they are under way."""

import asyncio
from collections.abc import Callable

from roskva.channels.base import Connection, Frame
from roskva.core.effects import Broadcast
from roskva.server.fanout import SLICE, Fanout
from roskva.wire.messages import PROTOCOL, Notification, ServerMessage

KEY = "app/x"


class Recorder(Connection):
    def __init__(self) -> None:
        self.versions: list[int | None] = []

    def send(self, message: ServerMessage) -> None:
        raise AssertionError("only broadcasts here")

    def broadcast(self, frame: Frame) -> None:
        self.versions.append(frame.message.notifications[0].version)

    def close(self) -> None:
        pass


def conns(count: int) -> list[Recorder]:
    return [Recorder() for _ in range(count)]


def update(version: int | None, to: list[Recorder], key: str = KEY) -> Broadcast:
    message = ServerMessage(PROTOCOL, notifications=[Notification(key, version, 1)])
    return Broadcast(message, to)


def work(slice: Callable[[], None]) -> None:
    slice()


def test_few_are_told_at_once() -> None:
    async def scenario() -> None:
        all = conns(5)
        Fanout(work).broadcast(update(1, all))
        assert [conn.versions for conn in all] == [[1]] * 5

    asyncio.run(scenario())


def test_many_are_told_in_slices() -> None:
    async def scenario() -> None:
        all = conns(SLICE * 2 + 1)
        Fanout(work).broadcast(update(1, all))
        served: list[int] = []
        while not served or served[-1] < len(all):
            await asyncio.sleep(0)
            served.append(sum(len(conn.versions) for conn in all))
        assert served == [SLICE, 2 * SLICE, 2 * SLICE + 1]

    asyncio.run(scenario())


def test_who_still_waits_gets_the_newer_version_and_nobody_an_older_one() -> None:
    async def scenario() -> None:
        all = conns(SLICE * 3)
        fanout = Fanout(work)
        for version in range(1, 6):
            fanout.broadcast(update(version, all))
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        for conn in all:
            assert conn.versions[-1] == 5
            assert conn.versions == sorted(set(conn.versions), key=lambda v: v or 0)
        # Under a stream of updates everybody got something all along.
        assert max(len(conn.versions) for conn in all) <= 3

    asyncio.run(scenario())


def test_unknown_for_some_and_a_version_for_others_reach_whom_they_are_for() -> None:
    async def scenario() -> None:
        all = conns(SLICE * 2)
        astray, behind = all[:SLICE], all[SLICE:]
        fanout = Fanout(work)
        fanout.broadcast(update(0, all))
        fanout.broadcast(update(7, behind))
        fanout.broadcast(update(None, astray))
        for _ in range(5):
            await asyncio.sleep(0)
        assert {tuple(conn.versions) for conn in behind} == {(7,)}
        assert {tuple(conn.versions) for conn in astray} == {(None,)}

    asyncio.run(scenario())


def test_every_object_gets_its_turn() -> None:
    async def scenario() -> None:
        many, few = conns(SLICE * 5), conns(1)
        fanout = Fanout(work)
        fanout.broadcast(update(1, many))
        fanout.broadcast(update(1, few, "app/y"))
        for version in range(2, 5):
            await asyncio.sleep(0)
            fanout.broadcast(update(version, many))
        assert few[0].versions == [1]

    asyncio.run(scenario())
