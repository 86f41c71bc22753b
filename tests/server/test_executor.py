"""The loop of events and effects: in which order events reach a host."""

import asyncio
import time

import pytest
from tests.loops import in_loop
from tests.server.fronts import broken

from roskva.core.effects import Closed, Event, Tick
from roskva.feed.commit import Handover
from roskva.server.executor import Executor


class Do:
    """An effect: whatever a test wants done while effects are carried out."""


class Gathering:
    """Beside it, a thread hands over an event that comes before all others."""

    def __init__(self, handover: Handover | None = None) -> None:
        self.events: list[Event] = []
        self.due: float | None = None
        self.handover = handover or Handover()
        self.executor = Executor(self, broken, self.handover)
        self.executor._carry_out[Do] = lambda _: self.doing()
        self.does = False

    def doing(self) -> None:
        raise NotImplementedError

    def step(self, event: Event, now: float) -> list[Do]:
        self.events.append(event)
        self.due = None
        does, self.does = self.does, False
        return [Do()] if does else []

    def next_deadline(self) -> float | None:
        return self.due

    def hand_over(self, event: Event) -> None:
        self.handover.put(lambda: self.executor.step(event))


@in_loop
async def test_what_was_handed_over_comes_before_any_other_event() -> None:
    host = Gathering()
    host.hand_over(Closed("first"))
    host.hand_over(Closed("second"))
    host.executor.step(Closed("third"))
    assert host.events == [Closed("first"), Closed("second"), Closed("third")]
    await asyncio.sleep(0)
    assert len(host.events) == 3


@in_loop
async def test_events_wait_until_the_effects_are_carried_out_that_led_to_them() -> None:
    class Host(Gathering):
        def doing(self) -> None:
            self.hand_over(Closed("fourth"))
            self.executor.step(Closed("second"))
            self.executor.step(Closed("third"))
            assert self.events == [Closed("first")]

    host = Host()
    host.does = True
    host.executor.step(Closed("first"))
    assert host.events == [Closed("first"), Closed("second"), Closed("third")]
    host.executor.step(Closed("fifth"))
    assert host.events[3:] == [Closed("fourth"), Closed("fifth")]


@in_loop
async def test_what_was_handed_over_waits_for_the_step_of_another_host() -> None:
    class One(Gathering):
        def doing(self) -> None:
            self.hand_over(Closed("third"))
            other.executor.step(Closed("first"))
            assert other.events == [Closed("first")]
            assert self.events == [Closed("begin")]

    one = One()
    other = Gathering(one.handover)
    one.does = True
    one.executor.step(Closed("begin"))
    other.executor.step(Closed("second"))
    assert one.events == [Closed("begin"), Closed("third")]
    assert other.events == [Closed("first"), Closed("second")]


@in_loop
async def test_what_was_handed_over_comes_before_a_timer() -> None:
    host = Gathering()
    host.executor.step(Closed("first"))
    host.due = time.monotonic()
    host.executor._fire()
    host.hand_over(Closed("second"))
    host.due = time.monotonic()
    host.executor._fire()
    assert host.events == [Closed("first"), Tick(), Closed("second"), Tick()]


@in_loop
async def test_a_deadline_that_comes_earlier_moves_the_timer_forward() -> None:
    host = Gathering()
    host.executor._set_timer(time.monotonic() + 3600, time.monotonic())
    host.executor._set_timer(time.monotonic(), time.monotonic())
    while Tick() not in host.events:
        host.due = 0.0
        await asyncio.sleep(0)


@in_loop
async def test_a_host_that_raises_is_stopped_for_good() -> None:
    class Host(Gathering):
        def doing(self) -> None:
            raise RuntimeError("this one is broken")

    host = Host()
    host.does = True
    with pytest.raises(RuntimeError, match="broken"):
        host.executor.step(Closed("first"))
    host.executor.step(Closed("second"))
    assert host.events == [Closed("first")]
