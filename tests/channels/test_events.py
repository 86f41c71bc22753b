"""Event ids, and what a stream still has to tell."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roskva.channels.budget import StreamBudget
from roskva.channels.events import EventStream, format_id, parse_id
from roskva.channels.watch import Told, hash_of
from roskva.host.delivery import Announcement
from roskva.model import MAX_VERSION, NO_VERSION
from roskva.wire.messages import PROTOCOL, Notification, ServerMessage

E, F = 7 << 20, 9 << 20
told = st.none() | st.tuples(
    st.integers(NO_VERSION, MAX_VERSION), st.none() | st.integers(1, 2**60).map(hash_of)
)


@given(st.lists(told, min_size=1, max_size=64).filter(lambda parts: any(parts)))
def test_an_id_is_read_as_it_was_written(parts: list[Told | None]) -> None:
    assert parse_id(format_id(parts), len(parts)) == parts


@given(st.text(max_size=50))
def test_an_id_of_somebody_else_is_none(text: str) -> None:
    assert len(parse_id(text, 3)) == 3


def test_an_id_for_other_objects_is_none() -> None:
    assert parse_id("41.7", 3) == [None, None, None]


def stream(*parts: Told | None) -> EventStream:
    keys = [f"app/{i}" for i in range(len(parts))]
    return EventStream(keys, list(parts), StreamBudget(10_000))


def notification(i: int, version: int | None, epoch: int = E) -> ServerMessage:
    return ServerMessage(PROTOCOL, notifications=[Notification(f"app/{i}", version, epoch)])


async def written(stream: EventStream) -> list[str]:
    text = (await stream.next(0.01)).decode()
    return [line for line in text.splitlines() if line.startswith(("id", "data"))]


@pytest.mark.parametrize(
    ("before", "version", "epoch", "told"),
    [
        (None, 1, E, "1"),
        (None, None, E, "?"),
        ((41, hash_of(E)), 41, E, ""),
        ((41, hash_of(E)), 42, E, "42"),
        ((41, hash_of(E)), 42, F, "42"),
        ((41, hash_of(E)), 41, F, "?"),
        ((41, hash_of(E)), None, F, "?"),
        ((NO_VERSION, hash_of(E)), None, E, ""),
        ((NO_VERSION, hash_of(E)), None, F, "?"),
        ((NO_VERSION, hash_of(E)), 3, E, "3"),
        ((41, None), 41, F, ""),
    ],
)
def test_c86_only_what_changed_since_the_last_event_id_is_sent(
    before: Told | None, version: int | None, epoch: int, told: str
) -> None:
    async def scenario() -> None:
        events = stream(before)
        events.send(notification(0, version, epoch))
        ids = [line for line in await written(events) if line.startswith("id")]
        assert ids == ([f"id: {told}-{hash_of(epoch)}"] if told else [])

    asyncio.run(scenario())


def test_a_slow_reader_is_told_the_latest_only() -> None:
    async def scenario() -> None:
        events = stream(None, None)
        for version in range(100):
            events.notify(Announcement(notification(0, version), step=1))
        events.send(notification(1, None))
        first, id, last = await written(events)
        assert '"version":"99"' in first
        assert id == f"id: 99-{hash_of(E)}.?-{hash_of(E)}"
        assert '"version":null' in last

    asyncio.run(scenario())


def test_a_server_that_stops_says_when_to_come_back() -> None:
    async def scenario() -> None:
        events = stream(None)
        events.send(ServerMessage(PROTOCOL, not_before_ms=1234))
        events.close()
        assert await events.next(1.0) == b"retry: 1234\n\n"
        assert events.ended

    asyncio.run(scenario())
