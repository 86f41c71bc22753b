"""What the tests of the feed share: a feed to act on, and all that a reader can get out of it."""

from collections.abc import Iterator
from typing import Literal

from roskva.disk import Disk
from roskva.feed.base import START, Batch, Foreign, Idle, Marker, Missing
from roskva.feed.log import Log, LogConfig
from roskva.feed.reader import LogReader
from roskva.feed.upkeep import Retention
from roskva.model import Update

LINEAGE = 0xC0FFEE_0DDBA11
SMALL = LogConfig(segment_bytes=400, retention=Retention(max_age_us=None))
"""A segment is full after two or three commits."""


def update(number: int) -> Update:
    return Update(
        object=f"app/thing-{number % 3}",
        version=number,
        source="phone" if number % 2 else None,
        payload=b"p" * (number % 5) if number % 3 else None,
        published_at=1_000_000 + number,
        reset=number % 7 == 0,
    )


def updates(*numbers: int) -> list[Update]:
    return [update(number) for number in numbers]


def open_log(
    disk: Disk, directory: str, config: LogConfig = SMALL, *, takeover: bool = False
) -> Log:
    return Log.open(disk, directory, lineage=LINEAGE, now_us=1, config=config, takeover=takeover)


def publish(log: Log, *numbers: int) -> int:
    """The offset of the first of them, once they are durable."""
    first = log.append(updates(*numbers))
    assert log.commit(now_us=1) is not None
    return first


def tidy(log: Log, now_us: int = 1) -> None:
    while log.tidy(now_us):
        pass


def answers(reader: LogReader, after: int = START) -> Iterator[Batch | Missing]:
    """Every answer from here to the end of the feed; each one goes on where the last one ended."""
    while True:
        answer = reader.read(Marker(reader.lineage, after))
        match answer:
            case Batch() | Missing():
                assert answer.first == after + 1
                assert answer.last >= answer.first
                yield answer
                after = answer.last
            case Idle(last=last):
                assert last == reader.end()
                return
            case Foreign():
                raise AssertionError(f"a marker of this feed is called foreign: {answer}")


def contents(reader: LogReader, after: int = START) -> dict[int, Update]:
    """Offset → update, as far as they can be read."""
    found: dict[int, Update] = {}
    for answer in answers(reader, after):
        if isinstance(answer, Batch):
            entries = answer.entries()
            assert [offset for offset, _ in entries] == list(range(answer.base, answer.last + 1))
            found.update(entries)
    return found


def damage(reader: LogReader, after: int = START) -> list[tuple[int, int]]:
    return missing(reader, "damage", after)


def missing(
    reader: LogReader, why: Literal["damage", "restore"], after: int = START
) -> list[tuple[int, int]]:
    return [
        (answer.first, answer.last)
        for answer in answers(reader, after)
        if isinstance(answer, Missing) and answer.why == why
    ]
