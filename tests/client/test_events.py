"""What waits for the application: at most the newest of each kind."""

import asyncio

from tests.loops import in_loop

from roskva.client.events import Inbox
from roskva.core.effects import (
    ClientEvent,
    Notify,
    NotifyUnknown,
    RegistrationFailure,
    RegistrationStatus,
    ReissueRegistrations,
    Trouble,
)


async def kept(*events: ClientEvent) -> list[ClientEvent]:
    inbox = Inbox()
    for event in events:
        inbox.put(event)
    taken = [await inbox.take() for _ in list(inbox.waiting)]
    return [event for event in taken if event is not None]


@in_loop
async def test_newest_of_each_object_is_kept_in_the_place_of_the_first() -> None:
    a, b = Notify("app/a", 1, 9), Notify("app/b", 1, 9)
    newer = Notify("app/a", 2, 9)
    unknown = NotifyUnknown("app/b", 10)
    assert await kept(a, b, newer, unknown) == [newer, unknown]
    assert await kept(unknown, b) == [b]


@in_loop
async def test_newest_word_on_a_registration_is_kept() -> None:
    told = Notify("app/a", 1, 9)
    registered = RegistrationStatus("app/a", True)
    left = RegistrationStatus("app/a", False)
    failed = RegistrationFailure("app/a", True, "unavailable")
    assert await kept(told, registered) == [told, registered]
    assert await kept(registered, left) == [left]
    assert await kept(told, registered, failed) == [failed]


@in_loop
async def test_trouble_is_kept_once_of_each_kind() -> None:
    many = [Trouble("unavailable", f"try {number}") for number in range(100)]
    again = ReissueRegistrations()
    assert await kept(*many, again, Trouble("fenced", ""), again) == [
        many[-1],
        again,
        Trouble("fenced", ""),
    ]


@in_loop
async def test_closing_wakes_everybody_and_keeps_nothing() -> None:
    inbox = Inbox()
    waiting = [asyncio.create_task(inbox.take()) for _ in range(3)]
    await asyncio.sleep(0)
    inbox.close()
    inbox.put(ReissueRegistrations())
    assert await asyncio.gather(*waiting, inbox.take()) == [None] * 4


@in_loop
async def test_each_event_goes_to_one_of_those_who_wait() -> None:
    inbox = Inbox()
    waiting = [asyncio.create_task(inbox.take()) for _ in range(3)]
    await asyncio.sleep(0)
    events = [Notify(f"app/{name}", 1, 9) for name in "abc"]
    for event in events:
        inbox.put(event)
    assert await asyncio.gather(*waiting) == events
