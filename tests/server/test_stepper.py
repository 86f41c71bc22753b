"""The effect loop: in which order events reach the machine."""

import asyncio
import time

from tests.loops import in_loop
from tests.server.fronts import broken, front_of_one_shard
from tests.server.test_fanout import Recorder, update

from roskva.channels.base import Frame
from roskva.core.effects import Closed, Effect, Event, Shedding, Tick
from roskva.server.fanout import SLICE
from roskva.server.stepper import Stepper


class Gathering:
    """Beside it, something gathers an event that came before all others."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.due: float | None = None
        self.gathered: list[Event] = []
        self.stepper = Stepper(self, lambda effect: None, lambda: self.due, broken, self.take)

    def step(self, event: Event, now: float) -> list[Effect]:
        self.events.append(event)
        self.due = None
        return []

    def take(self) -> None:
        gathered, self.gathered = self.gathered, []
        for event in gathered:
            self.stepper.step(event)


@in_loop
async def test_what_was_gathered_comes_before_any_other_event() -> None:
    machine = Gathering()
    machine.gathered = [Closed("first"), Closed("second")]
    machine.stepper.step(Closed("third"))
    assert machine.events == [Closed("first"), Closed("second"), Closed("third")]


@in_loop
async def test_events_wait_until_the_work_is_done_that_led_to_them() -> None:
    machine = Gathering()
    machine.gathered = [Closed("first")]

    def work() -> None:
        machine.stepper.step(Closed("second"))
        machine.stepper.step(Closed("third"))
        assert machine.events == [Closed("first")]

    machine.stepper.work(work)
    assert machine.events == [Closed("first"), Closed("second"), Closed("third")]


@in_loop
async def test_what_was_gathered_comes_before_a_timer() -> None:
    machine = Gathering()
    machine.stepper.step(Closed("first"))
    machine.due = time.monotonic()
    machine.stepper._fire()
    machine.gathered = [Closed("second")]
    machine.due = time.monotonic()
    machine.stepper._fire()
    assert machine.events == [Closed("first"), Tick(), Closed("second"), Tick()]


@in_loop
async def test_a_channel_of_a_node_hands_over_first() -> None:
    front = front_of_one_shard()
    heard: list[bool] = []
    front.call_first(lambda: heard.append(front.core.admission.shedding))
    front.step(Shedding(True))
    assert heard == [False]


@in_loop
async def test_a_large_fan_out_of_a_node_is_not_disturbed_by_what_it_leads_to() -> None:
    front = front_of_one_shard()
    disturbed: list[bool] = []

    class Slow(Recorder):
        def broadcast(self, frame: Frame) -> None:
            front.step(Shedding(True))
            disturbed.append(front.core.admission.shedding)

    front._fanout.broadcast(update(1, [Slow() for _ in range(SLICE + 1)]))
    await asyncio.sleep(0)
    assert disturbed == [False] * SLICE
    assert front.core.admission.shedding
