"""Large fan-outs, overtaken while they are under way."""

import asyncio

from roskva.channels.base import Connection, Frame
from roskva.core.effects import Broadcast
from roskva.core.session import Session
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


def sessions(count: int) -> list[Session]:
    return [Session(Recorder(), b"", 0.0) for _ in range(count)]


def heard(session: Session) -> list[int | None]:
    assert isinstance(session.conn, Recorder)
    return session.conn.versions


def update(version: int | None, to: list[Session], key: str = KEY) -> Broadcast:
    message = ServerMessage(PROTOCOL, notifications=[Notification(key, version, 1)])
    return Broadcast(message, to)


def fail(error: Exception) -> None:
    raise error


def test_few_are_told_at_once_and_who_lags_or_made_the_change_is_left_out() -> None:
    async def scenario() -> None:
        all = sessions(5)
        all[1].lagging = True
        effect = update(1, all)
        Fanout(fail).broadcast(Broadcast(effect.message, all, [all[2]]))
        assert [heard(session) for session in all] == [[1], [], [], [1], [1]]

    asyncio.run(scenario())


def test_many_are_told_in_slices() -> None:
    async def scenario() -> None:
        all = sessions(SLICE * 2 + 1)
        Fanout(fail).broadcast(update(1, all))
        served: list[int] = []
        while not served or served[-1] < len(all):
            await asyncio.sleep(0)
            served.append(sum(len(heard(session)) for session in all))
        assert served == [SLICE, 2 * SLICE, 2 * SLICE + 1]

    asyncio.run(scenario())


def test_who_still_waits_gets_the_newer_version_and_nobody_an_older_one() -> None:
    async def scenario() -> None:
        all = sessions(SLICE * 3)
        fanout = Fanout(fail)
        for version in range(1, 6):
            fanout.broadcast(update(version, all))
            await asyncio.sleep(0)
        for _ in range(5):
            await asyncio.sleep(0)
        for session in all:
            assert heard(session)[-1] == 5
            assert heard(session) == sorted(set(heard(session)), key=lambda v: v or 0)
        # Under a stream of updates everybody got something all along.
        assert max(len(heard(session)) for session in all) <= 3

    asyncio.run(scenario())


def test_unknown_for_some_and_a_version_for_others_reach_whom_they_are_for() -> None:
    async def scenario() -> None:
        all = sessions(SLICE * 2)
        astray, behind = all[:SLICE], all[SLICE:]
        fanout = Fanout(fail)
        fanout.broadcast(update(0, all))
        fanout.broadcast(update(7, behind))
        fanout.broadcast(update(None, astray))
        for _ in range(5):
            await asyncio.sleep(0)
        assert {tuple(heard(session)) for session in behind} == {(7,)}
        assert {tuple(heard(session)) for session in astray} == {(None,)}

    asyncio.run(scenario())


def test_every_object_gets_its_turn() -> None:
    async def scenario() -> None:
        many, few = sessions(SLICE * 5), sessions(1)
        fanout = Fanout(fail)
        fanout.broadcast(update(1, many))
        fanout.broadcast(update(1, few, "app/y"))
        for version in range(2, 5):
            await asyncio.sleep(0)
            fanout.broadcast(update(version, many))
        assert heard(few[0]) == [1]

    asyncio.run(scenario())
