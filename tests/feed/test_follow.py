"""Waiting for a feed to grow."""

from tests.feed.scenes import open_log, publish

from roskva.feed.reader import poll
from roskva.simulation.disk import SimulatedDisk


class VirtualTime:
    def __init__(self) -> None:
        self.now = 0.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


def test_waiting_ends_when_the_feed_has_grown() -> None:
    log, time = open_log(SimulatedDisk(), "feed"), VirtualTime()
    reader = log.reader()

    def sleep(seconds: float) -> None:
        time.sleep(seconds)
        if len(time.pauses) == 3:
            publish(log, 1)

    assert poll(lambda: reader.end() > 0, 60, clock=time.clock, sleep=sleep)
    assert len(time.pauses) == 3


def test_waiting_ends_with_the_timeout() -> None:
    reader, time = open_log(SimulatedDisk(), "feed").reader(), VirtualTime()
    assert not poll(lambda: reader.end() > 0, 0.5, clock=time.clock, sleep=time.sleep)
    assert abs(time.now - 0.5) < 1e-9
    assert max(time.pauses) <= 0.02


def test_nothing_is_waited_for_that_is_already_there() -> None:
    log, time = open_log(SimulatedDisk(), "feed"), VirtualTime()
    reader = log.reader()
    publish(log, 1)
    assert poll(lambda: reader.end() > 0, 60, clock=time.clock, sleep=time.sleep)
    assert not time.pauses
