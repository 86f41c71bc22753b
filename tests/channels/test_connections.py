"""How many connections a process holds, and who gives way."""

import pytest

from roskva.channels.connections import MOST_KEPT, STAYS, Connections, stay
from roskva.errors import Overloaded


class Conn:
    def __init__(self) -> None:
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def admitted(connections: Connections, count: int) -> list[Conn]:
    conns = [Conn() for _ in range(count)]
    assert all(map(connections.admit, conns))
    return conns


def test_whoever_has_waited_longest_gives_way() -> None:
    connections = Connections(3)
    served, idle, new = admitted(connections, 3)
    connections.is_served(served)
    (newer,) = admitted(connections, 1)
    assert [conn.aborted for conn in (served, idle, new, newer)] == [False, True, False, False]
    connections.waits(served)  # answered, and now behind those who have waited longer
    admitted(connections, 1)
    assert (served.aborted, new.aborted) == (False, True)
    assert (connections.count, connections.gave_way) == (3, 2)


def test_nobody_who_is_served_or_stays_gives_way() -> None:
    connections = Connections(2)
    served, stays = admitted(connections, 2)
    connections.is_served(served)
    assert connections.stays(stays)
    connections.is_held_up(stays)
    late = Conn()
    assert not connections.admit(late)
    assert (connections.count, connections.refused) == (2, 1)
    connections.is_held_up(served)
    assert connections.admit(late)
    assert (served.aborted, stays.aborted) == (True, False)


def test_some_places_are_not_for_those_who_stay() -> None:
    for limit, most in ((8, 7), (80, 70), (10_000, 10_000 - MOST_KEPT), (1, 1)):
        connections = Connections(limit)
        stayed = [conn for conn in admitted(connections, limit) if connections.stays(conn)]
        assert len(stayed) == most
        assert connections.full
        assert connections.stays(stayed[0])  # it does already
        connections.waits(stayed[0])
        assert not connections.full


def test_who_has_left_is_counted_nowhere() -> None:
    connections = Connections(2)
    first, second = admitted(connections, 2)
    assert connections.stays(first)
    connections.leave(first)
    connections.leave(second)
    connections.waits(first)  # its last words come late
    assert not connections.stays(second)
    assert (connections.count, connections.full) == (0, False)
    admitted(connections, 2)


def test_a_request_that_may_not_stay_is_told_to_come_back() -> None:
    stay({})  # of a port that counts nobody
    stay({STAYS: lambda: True})
    with pytest.raises(Overloaded):
        stay({STAYS: lambda: False})
