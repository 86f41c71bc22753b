"""Large fan-outs, overtaken while they are under way."""

import pickle
from collections.abc import Sequence

from roskva.core.effects import Broadcast, Lagging
from roskva.host.delivery import Announcement, Delivery, MessageDelivery, Write
from roskva.host.observer import Observer
from roskva.host.registrar import MOST_TOGETHER, SLICE, Fanout
from roskva.wire import codec
from roskva.wire.messages import PROTOCOL, Notification, ServerMessage

KEY = "app/x"


class Recorder(Delivery):
    def __init__(self) -> None:
        super().__init__()
        self.versions: list[int | None] = []

    def notify(self, announcement: Announcement) -> Lagging | None:
        self.versions.append(announcement.message.notifications[0].version)
        return None


def recorders(count: int) -> list[Recorder]:
    return [Recorder() for _ in range(count)]


def update(version: int | None, to: list[Recorder], key: str = KEY, step: int = 0) -> Broadcast:
    message = ServerMessage(PROTOCOL, notifications=[Notification(key, version, 1)])
    return Broadcast(message, to, step)


def finish(fanout: Fanout) -> None:
    while fanout.pending:
        fanout.work()


def test_few_are_told_at_once() -> None:
    all, fanout = recorders(5), Fanout()
    fanout.broadcast(update(1, all))
    assert [each.versions for each in all] == [[1]] * 5
    assert not fanout.pending


def test_many_are_told_in_slices() -> None:
    all, fanout = recorders(SLICE * 2 + 1), Fanout()
    assert fanout.broadcast(update(1, all)) == []
    served: list[int] = []
    while fanout.pending:
        fanout.work()
        served.append(sum(len(each.versions) for each in all))
    assert served == [SLICE, 2 * SLICE, 2 * SLICE + 1]


def test_who_still_waits_gets_the_newer_version_and_nobody_an_older_one() -> None:
    all, fanout = recorders(SLICE * 3), Fanout()
    for version in range(1, 6):
        fanout.broadcast(update(version, all))
        fanout.work()
    finish(fanout)
    for each in all:
        assert each.versions[-1] == 5
        assert each.versions == sorted(set(each.versions), key=lambda v: v or 0)
    # Under a stream of updates everybody got something all along.
    assert max(len(each.versions) for each in all) <= 3


def test_unknown_for_some_and_a_version_for_others_reach_whom_they_are_for() -> None:
    all, fanout = recorders(SLICE * 2), Fanout()
    astray, behind = all[:SLICE], all[SLICE:]
    fanout.broadcast(update(0, all))
    fanout.broadcast(update(7, behind))
    fanout.broadcast(update(None, astray))
    finish(fanout)
    assert {tuple(each.versions) for each in behind} == {(7,)}
    assert {tuple(each.versions) for each in astray} == {(None,)}


def test_every_object_gets_its_turn() -> None:
    many, few, fanout = recorders(SLICE * 5), recorders(1), Fanout()
    fanout.broadcast(update(1, many))
    fanout.broadcast(update(1, few, "app/y"))
    for version in range(2, 5):
        fanout.work()
        fanout.broadcast(update(version, many))
    assert few[0].versions == [1]


# What is written.


def messages(count: int) -> list[MessageDelivery]:
    made = [MessageDelivery(codec.encode) for _ in range(count)]
    for address, delivery in enumerate(made):
        delivery.address = address
    return made


def test_a_copy_is_encoded_once_and_written_to_some_at_a_time() -> None:
    some = messages(MOST_TOGETHER + 10)
    effect = Broadcast(update(1, []).message, some)
    first, second = Fanout().broadcast(effect)
    assert isinstance(first, Write)
    assert isinstance(second, Write)
    assert [*first.addresses, *second.addresses] == list(range(len(some)))
    assert len(first.addresses) == MOST_TOGETHER
    assert first.data is second.data


def test_who_lags_is_left_out_and_says_since_when() -> None:
    some = messages(3)
    assert some[1].pause() == Lagging(some[1])
    some[2].end()
    outputs = Fanout().broadcast(Broadcast(update(1, []).message, some, 7))
    assert outputs[0] == Lagging(some[1], 7)
    assert isinstance(outputs[1], Write)
    assert outputs[1].addresses == [0]
    some[1].resume()
    (write,) = Fanout().broadcast(Broadcast(update(2, []).message, some, 8))
    assert isinstance(write, Write)
    assert write.addresses == [0, 1]


class Counting(Observer):
    def __init__(self) -> None:
        self.connections = 0

    def handed(self, notifications: Sequence[Notification], connections: int) -> None:
        self.connections += connections


def test_who_is_overtaken_or_left_out_was_not_told() -> None:
    all, counting = messages(SLICE + 10), Counting()
    fanout = Fanout(observer=counting)
    all[1].pause()
    fanout.broadcast(Broadcast(update(1, []).message, all, 1))
    fanout.work()
    assert counting.connections == SLICE - 1
    fanout.broadcast(Broadcast(update(2, []).message, all, 2))
    finish(fanout)
    assert counting.connections == SLICE - 1 + len(all) - 1, "ten were never told the first"


def test_a_fan_out_under_way_can_be_put_away_and_taken_up_again() -> None:
    all, fanout = recorders(SLICE + 5), Fanout()
    fanout.broadcast(update(1, all))
    fanout.work()
    again, those = pickle.loads(pickle.dumps((fanout, all)))
    finish(again)
    assert [each.versions for each in those] == [[1]] * len(all)
