"""Sessions that the channel identifies (MQTT), and sessions without a row (HTTP)."""

from typing import Any

from tests.core.pair import Pair

from roskva.core.effects import (
    Attached,
    Closed,
    Dismissed,
    Drained,
    FromConnection,
    Lagging,
    Watching,
)
from roskva.model import NO_EPOCH, NO_VERSION
from roskva.wire import codec
from roskva.wire.links import Registered
from roskva.wire.messages import (
    PROTOCOL,
    Ack,
    ClientMessage,
    Notification,
    Operation,
    ServerMessage,
)

X, Y = "app/x", "app/y"
CLIENT = b"d" * 16


class Device:
    """The far end of a connection whose client the channel has identified."""

    def __init__(self, pair: Pair, event: type = Attached, **options: Any) -> None:
        self.pair = pair
        self.id = pair.next_id()
        self.told: list[ServerMessage] = []
        self.lagging = False
        self.number = 0
        self.down = self  # what the registrar's side writes to
        pair.registrar.conns[self.id] = self  # type: ignore[assignment]
        if event is Attached:
            pair.registrar.step(Attached(self.id, CLIENT, "", **options))
        else:
            pair.registrar.step(Watching(self.id, CLIENT, **options))
        pair.settle()

    def put_frame(self, frame: bytes) -> None:
        self.told.append(codec.decode_from_server(frame))

    def backlog(self) -> int:
        return 0

    def end(self) -> None:
        pass

    @property
    def session(self) -> int:
        return next((m.session for m in self.told if m.session is not None), 0)

    @property
    def notified(self) -> list[Notification]:
        return [n for message in self.told for n in message.notifications]

    def versions(self) -> list[int | None]:
        return [notification.version for notification in self.notified]

    def say(self, *operations: Operation, acks: list[Ack] | None = None) -> None:
        self.number += 1
        message = ClientMessage(
            PROTOCOL, self.session, self.number, None, list(operations), acks or []
        )
        self.pair.registrar.step(FromConnection(self.id, message))
        self.pair.settle()

    def ack_all(self) -> None:
        self.say(acks=[Ack(n.object, n.version, n.epoch) for n in self.notified])

    def leave(self) -> None:
        del self.pair.registrar.conns[self.id]
        self.pair.registrar.step(Closed(self.id))
        self.pair.settle()


def subscribed(pair: Pair, **options: Any) -> Device:
    device = Device(pair, **options)
    device.say(Operation(X))
    device.ack_all()
    return device


def test_a_session_that_is_kept_wakes_to_what_it_missed() -> None:
    pair = Pair()
    pair.publish(X, 1)
    subscribed(pair).leave()
    pair.publish(X, 2)
    pair.publish(X, 3)
    again = Device(pair)
    assert again.versions() == [3]


def test_a_session_that_does_not_resume_starts_with_nothing_and_keeps_what_it_registers() -> None:
    pair = Pair()
    pair.publish(X, 1)
    subscribed(pair).leave()
    fresh = Device(pair, resume=False)
    pair.publish(X, 2)
    pair.settle()
    assert fresh.versions() == []
    fresh.say(Operation(X))
    fresh.ack_all()
    fresh.leave()
    pair.publish(X, 3)
    assert Device(pair).versions() == [3]


def test_a_session_that_is_not_kept_leaves_no_row() -> None:
    pair = Pair()
    pair.publish(X, 1)
    subscribed(pair).leave()
    subscribed(pair, resume=False, keep=False).leave()
    pair.publish(X, 2)
    assert Device(pair).versions() == []


def test_a_session_that_is_not_kept_may_resume_once_more() -> None:
    pair = Pair()
    pair.publish(X, 1)
    subscribed(pair).leave()
    pair.publish(X, 2)
    last = Device(pair, keep=False)
    assert last.versions() == [2]
    pair.publish(X, 3)
    pair.settle()
    assert last.versions() == [2, 3]
    last.leave()
    assert Device(pair).versions() == []


def test_a_session_that_is_not_kept_lives_through_a_crash_of_its_shard() -> None:
    pair = Pair()
    pair.publish(X, 1)
    device = subscribed(pair, resume=False, keep=False)
    pair.shard.crash()
    pair.run(5.0)
    pair.publish(X, 2)
    pair.run(5.0)
    assert device.versions()[-1] == 2


def test_c67_a_newer_session_fences_one_that_has_no_row() -> None:
    pair = Pair()
    older = subscribed(pair, resume=False, keep=False)
    Device(pair, resume=False, keep=False)
    assert older.told[-1].error is not None
    assert older.told[-1].error.code == "fenced"


def test_a_watcher_is_told_at_once_and_on_every_change_and_leaves_nothing() -> None:
    pair = Pair()
    pair.publish(X, 1)
    unread = [Registered(key, NO_VERSION, NO_EPOCH) for key in (X, Y)]
    watcher = Device(pair, Watching, registered=unread)
    assert sorted((n.object, n.version) for n in watcher.notified) == [(X, 1), (Y, None)]
    pair.publish(X, 2)
    pair.settle()
    assert watcher.versions()[-1] == 2
    watcher.leave()
    pair.run(120.0)
    core = pair.registrar.core
    assert (core.conns, core.watched, core.sessions) == ({}, {}, {})
    assert pair.shard.rows.holders == {}


def test_what_was_left_out_since_a_step_is_told_after_draining() -> None:
    pair = Pair()
    pair.publish(X, 1)
    pair.publish(Y, 1)
    device = Device(pair)
    device.say(Operation(X), Operation(Y))
    device.ack_all()
    pair.publish(X, 2)
    pair.settle()
    step = pair.registrar.core.interests.step + 1
    pair.publish(Y, 2)
    pair.settle()
    del device.told[:]
    # The channel could not take Y at 2 and says so late, when other steps have been done.
    pair.run(3.0)
    pair.registrar.step(Lagging(device.id, step))
    pair.registrar.step(Drained(device.id))
    pair.settle()
    assert [(n.object, n.version) for n in device.notified] == [(Y, 2)]


def test_who_is_dismissed_is_told_when_to_come_back() -> None:
    pair = Pair()
    device = subscribed(pair)
    pair.registrar.step(Dismissed(device.id, 1500))
    assert device.told[-1].not_before_ms == 1500
    assert device.id not in pair.registrar.conns
    pair.publish(X, 2)
    pair.settle()
    assert pair.registrar.core.conns == {}
