"""The effect loop: in which order events reach the machine."""

import asyncio
import time

from tests.host.test_fanout import Recorder, update
from tests.loops import in_loop
from tests.server.fronts import broken, front_of_one_shard

from roskva.core.effects import Closed, Effect, Event, Lagging, Shedding, Tick
from roskva.handover import Handover
from roskva.host.delivery import Announcement
from roskva.host.fanout import SLICE
from roskva.model import NOBODY
from roskva.server.stepper import Stepper


class Gathering:
    """Beside it, a thread hands over an event that comes before all others."""

    def __init__(self, handover: Handover | None = None) -> None:
        self.events: list[Event] = []
        self.due: float | None = None
        self.handover = handover or Handover()
        self.stepper = Stepper(self, lambda effect: None, lambda: self.due, broken, self.handover)

    def step(self, event: Event, now: float) -> list[Effect]:
        self.events.append(event)
        self.due = None
        return []

    def hand_over(self, event: Event) -> None:
        self.handover.put(lambda: self.stepper.step(event))


@in_loop
async def test_what_was_handed_over_comes_before_any_other_event() -> None:
    machine = Gathering()
    machine.hand_over(Closed("first"))
    machine.hand_over(Closed("second"))
    machine.stepper.step(Closed("third"))
    assert machine.events == [Closed("first"), Closed("second"), Closed("third")]
    await asyncio.sleep(0)
    assert len(machine.events) == 3


@in_loop
async def test_events_wait_until_the_work_is_done_that_led_to_them() -> None:
    machine = Gathering()
    machine.hand_over(Closed("first"))

    def work() -> None:
        machine.hand_over(Closed("fourth"))
        machine.stepper.step(Closed("second"))
        machine.stepper.step(Closed("third"))
        assert machine.events == [Closed("first")]

    machine.stepper.work(work)
    assert machine.events == [Closed("first"), Closed("second"), Closed("third")]
    machine.stepper.step(Closed("fifth"))
    assert machine.events[3:] == [Closed("fourth"), Closed("fifth")]


@in_loop
async def test_what_was_handed_over_waits_for_the_step_of_another_machine() -> None:
    one = Gathering()
    other = Gathering(one.handover)

    def work() -> None:
        one.hand_over(Closed("third"))
        other.stepper.step(Closed("first"))
        assert other.events == [Closed("first")]
        assert one.events == []

    one.stepper.work(work)
    other.stepper.step(Closed("second"))
    assert one.events == [Closed("third")]
    assert other.events == [Closed("first"), Closed("second")]


@in_loop
async def test_what_was_handed_over_comes_before_a_timer() -> None:
    machine = Gathering()
    machine.stepper.step(Closed("first"))
    machine.due = time.monotonic()
    machine.stepper._fire()
    machine.hand_over(Closed("second"))
    machine.due = time.monotonic()
    machine.stepper._fire()
    assert machine.events == [Closed("first"), Tick(), Closed("second"), Tick()]


@in_loop
async def test_what_was_handed_over_comes_before_what_is_published_next() -> None:
    front = front_of_one_shard()
    done: list[object] = []
    front._handover.put(lambda: done.append("committed"))
    front.publish(NOBODY, [], done.append)
    assert done == ["committed", []]


@in_loop
async def test_a_large_fan_out_of_a_node_is_not_disturbed_by_what_it_leads_to() -> None:
    front = front_of_one_shard()
    disturbed: list[bool] = []

    class Slow(Recorder):
        def notify(self, announcement: Announcement) -> Lagging | None:
            front.step(Shedding(True))
            disturbed.append(front.core.admitting.shedding)
            return None

    front._carry_out(update(1, [Slow() for _ in range(SLICE + 1)]))
    await asyncio.sleep(0)
    assert disturbed == [False] * SLICE
    assert front.core.admitting.shedding
    await asyncio.sleep(0)
    assert len(disturbed) == SLICE + 1
