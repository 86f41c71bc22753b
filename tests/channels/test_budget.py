"""The events of one principal in a second: who waits, and what for."""

import asyncio
from typing import Any

from roskva.channels.budget import Budgets, StreamBudget
from roskva.channels.events import EventStream
from roskva.host.delivery import Announcement
from roskva.model import NOBODY, Principal
from roskva.wire.messages import PROTOCOL, Notification, ServerMessage

ALICE, BOB = Principal("alice", "app"), Principal("bob", "app")
SLOW = 1
"""Event per second: who has to wait does so longer than any test."""


def announced(name: str, version: int) -> Announcement:
    told = Notification(f"app/{name}", version, 7 << 20)
    return Announcement(ServerMessage(PROTOCOL, notifications=[told]), 1)


def stream(budget: StreamBudget, *names: str) -> EventStream:
    return EventStream([f"app/{name}" for name in names], [None] * len(names), budget)


def scope(address: str) -> Any:
    return {"client": (address, 0)}


def test_whoever_is_told_too_much_waits_and_others_do_not() -> None:
    async def scenario() -> None:
        budgets = Budgets(SLOW)
        first, second = (stream(budgets.of(ALICE, scope("::1")), "x") for _ in range(2))
        other = stream(budgets.of(BOB, scope("::1")), "x")
        for each in (first, second, other):
            each.notify(announced("x", 1))
        assert b'"version":"1"' in await first.next(60)
        assert b'"version":"1"' in await other.next(60)
        assert await second.next(0.01) == b": still here\n\n"

    asyncio.run(scenario())


def test_whoever_has_waited_is_told_the_newest_of_each_object_once() -> None:
    async def scenario() -> None:
        budget = StreamBudget(10)
        first, second = stream(budget, "x", "y"), stream(budget, "x", "y")
        for version in range(3):
            for each in (first, second):
                each.notify(announced("x", version))
                each.notify(announced("y", version))
        await first.next(60)
        second.notify(announced("y", 7))
        told = (await second.next(60)).decode()
        assert told.count("data:") == 2
        assert '"version":"2"' in told
        assert '"version":"7"' in told

    asyncio.run(scenario())


def test_nobody_in_particular_is_counted_by_address_and_a_principal_wherever_it_is() -> None:
    budgets = Budgets(SLOW)
    here, next_door, elsewhere = scope("2001:db8::1"), scope("2001:db8::2"), scope("2001:db8:1::1")
    given = [
        budgets.of(principal, where)
        for principal in (NOBODY, ALICE)
        for where in (here, next_door, elsewhere)
    ]
    assert given[0] is given[1]  # of one customer, who has all of a /64
    assert given[0] is not given[2]
    assert given[3] is given[5]
    assert given[0] is not given[3]


def test_nothing_is_kept_of_who_has_left() -> None:
    budgets = Budgets(SLOW)
    budgets.of(ALICE, scope("::1"))
    assert not budgets._budgets
