"""Kafka in memory, as far as a cluster relies on it: what is durable, in which order, and who may
still write.

It loses, elects, compacts, expires and forgets exactly when it is told to. It is plain,
single-threaded and draws no random numbers: whoever tests with it decides when something is
answered, and whether it is answered at all. A request that is *in doubt* is one that was carried
out here, or will be later, and was not answered.

**Positions.** A record is at an offset, written under the leader epoch of its partition, in a topic
that has an id. An offset alone names nothing: after a truncation other records stand there, under
a higher leader epoch. Whoever reads says under which epoch it has read what is before.

**Transactions.** Records of a transaction are in the log from the start, and readers that want
what is committed stop before the first that is open. Its end is a record of its own, which takes
an offset. A producer's number is its transactional id with an epoch: whoever begins under the same
id has a higher one, aborts what was open, and fences all before. What ends a transaction ends
whatever is open under that number when it arrives, however late that is.

**Compaction** keeps the last record of a key, whoever wrote it, and drops tombstones when they are
old; offsets stay as they were, with holes.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from roskva.errors import RoskvaError

NO_EPOCH: Final = -1
"""Of a reader that has read nothing yet."""
Mark = Literal["commit", "abort"]


class FencedProducer(RoskvaError):
    """Somebody has begun under the same transactional id since."""


class Record(msgspec.Struct, frozen=True):
    offset: int
    leader_epoch: int
    key: bytes | None
    value: bytes | None
    """None: a tombstone."""
    at: float
    """When it was written."""
    producer: "Producer | None" = None
    """Of a transaction."""
    mark: Mark | None = None
    """It ends a transaction of its producer, and holds nothing."""


class Producer(msgspec.Struct, frozen=True):
    """Whoever has begun under a transactional id."""

    id: str
    epoch: int


class Position(msgspec.Struct, frozen=True):
    """Everything before `offset` has been read, the last of it under `leader_epoch`."""

    topic: int
    """Its id."""
    offset: int
    leader_epoch: int = NO_EPOCH


# What a fetch is answered.


class Fetched(msgspec.Struct, frozen=True):
    records: Sequence[Record]
    next: Position
    """Behind them, and behind what is compacted away, aborted or a mark."""
    end: int
    """How far anybody may read now, as the leader knows."""


class Truncated(msgspec.Struct, frozen=True):
    """What the reader had read is not all in this log: it ends, for that leader epoch, before."""

    diverges_at: int


class OutOfRange(msgspec.Struct, frozen=True):
    """Retention has passed it."""

    start: int


class UnknownTopic(msgspec.Struct, frozen=True):
    """There is another topic of this name now."""

    id: int


Fetch = Fetched | Truncated | OutOfRange | UnknownTopic


class Partition:
    def __init__(self, topic: int) -> None:
        self.topic = topic
        self.start = 0
        """Before this offset retention has dropped everything."""
        self.end = 0
        self.leader_epoch = 0
        self.began: list[tuple[int, int]] = [(0, 0)]
        """At which offset each leader epoch began to write, in order."""
        self.records: list[Record] = []
        """With holes, where it was compacted."""
        self.open: dict[Producer, int] = {}
        """Where the open transaction of each producer begins."""
        self.aborted: set[int] = set()
        """Offsets of records of aborted transactions."""

    # Writing.

    def append(
        self,
        records: Iterable[tuple[bytes | None, bytes | None]],
        now: float,
        producer: Producer | None = None,
    ) -> int:
        """Durable at once, unless somebody truncates; the offset of the first."""
        first = self.end
        if producer is not None:
            self.open.setdefault(producer, first)
        for key, value in records:
            self._put(key, value, now, producer)
        return first

    def mark(self, producer: Producer, mark: Mark, now: float) -> None:
        first = self.open.pop(producer, None)
        if first is None:
            return
        if mark == "abort":
            mine = (each for each in self._from(first) if each.producer == producer)
            self.aborted.update(each.offset for each in mine)
        self._put(None, None, now, producer, mark)

    def _put(
        self,
        key: bytes | None,
        value: bytes | None,
        now: float,
        producer: Producer | None,
        mark: Mark | None = None,
    ) -> None:
        if self.began[-1][0] != self.leader_epoch:
            self.began.append((self.leader_epoch, self.end))
        self.records.append(Record(self.end, self.leader_epoch, key, value, now, producer, mark))
        self.end += 1

    # Reading.

    @property
    def stable_end(self) -> int:
        """Before this nothing is open."""
        return min(self.open.values(), default=self.end)

    def read(self, after: Position, most: int, *, committed: bool = True) -> Fetch:
        if after.topic != self.topic:
            return UnknownTopic(self.topic)
        if after.leader_epoch != NO_EPOCH:
            diverges_at = self.end_of(after.leader_epoch)
            if diverges_at < after.offset:
                return Truncated(diverges_at)
        if not self.start <= after.offset <= self.end:
            return OutOfRange(self.start)
        end = self.stable_end if committed else self.end
        found: list[Record] = []
        offset, epoch = after.offset, after.leader_epoch
        for record in self._from(after.offset):
            if record.offset >= end or len(found) == most:
                break
            offset, epoch = record.offset + 1, record.leader_epoch
            if record.mark is None and record.offset not in self.aborted:
                found.append(record)
        if len(found) < most:
            offset = max(offset, end)  # up to there is nothing more
        return Fetched(found, Position(self.topic, max(offset, after.offset), epoch), end)

    def end_of(self, leader_epoch: int) -> int:
        """Where the last leader epoch up to this one has ended, as far as this log knows."""
        following = bisect_right(self.began, leader_epoch, key=lambda began: began[0])
        return self.began[following][1] if following < len(self.began) else self.end

    def _from(self, offset: int) -> Sequence[Record]:
        return self.records[bisect_left(self.records, offset, key=lambda record: record.offset) :]

    # What befalls it.

    def elect(self, keeps: int | None = None) -> int:
        """Another leader. `keeps`: it has only what is before that offset, and what it lacks is
        gone for good, whoever was told that it is durable. How many records are gone."""
        self.leader_epoch += 1
        if keeps is None or keeps >= self.end:
            return 0
        gone = len(self._from(keeps))
        self.records = [record for record in self.records if record.offset < keeps]
        self.began = [began for began in self.began if began[1] < keeps] or [(0, self.start)]
        self.end = keeps
        self._open_again()
        return gone

    def _open_again(self) -> None:
        """Which transactions are open, by what is left of the log."""
        self.open, self.aborted = {}, set()
        begun: dict[Producer, list[int]] = {}
        for record in self.records:
            if record.producer is None:
                continue
            if record.mark is None:
                begun.setdefault(record.producer, []).append(record.offset)
            else:
                offsets = begun.pop(record.producer, [])
                if record.mark == "abort":
                    self.aborted.update(offsets)
        self.open = {producer: offsets[0] for producer, offsets in begun.items()}

    def expire(self, before: int) -> None:
        """Retention."""
        self.start = max(self.start, min(before, self.stable_end))
        self.records = [record for record in self.records if record.offset >= self.start]

    def compact(self, now: float, *, spared_s: float, tombstones_s: float) -> None:
        """`spared_s`: what is younger stays; `tombstones_s`: and tombstones for so long."""
        last = {
            record.key: record.offset
            for record in self.records
            if record.offset < self.stable_end
            and record.mark is None
            and record.offset not in self.aborted
        }

        def stays(record: Record) -> bool:
            if record.offset >= self.stable_end or now < record.at + spared_s:
                return True
            if record.mark is not None or record.offset in self.aborted:
                return False
            if record.value is None and now >= record.at + tombstones_s:
                return False
            return last[record.key] == record.offset

        self.records = list(filter(stays, self.records))


class SimulatedKafka:
    """Topics by name, and who may write transactions."""

    def __init__(self) -> None:
        self.topics: dict[str, list[Partition]] = {}
        self._ids = 0
        self._epochs: dict[str, int] = {}
        """Of transactional ids."""

    def create(self, topic: str, partitions: int) -> None:
        """Also in place of one of that name, of which nothing is left."""
        self._ids += 1
        self.topics[topic] = [Partition(self._ids) for _ in range(partitions)]

    def partition(self, topic: str, number: int) -> Partition:
        return self.topics[topic][number]

    # Transactions.

    def begin(self, transactional_id: str, now: float) -> Producer:
        """Fences whoever began before, and aborts what it has open."""
        epoch = self._epochs[transactional_id] = self._epochs.get(transactional_id, -1) + 1
        for partition in self._everywhere():
            for producer in list(partition.open):
                if producer.id == transactional_id:
                    partition.mark(producer, "abort", now)
        return Producer(transactional_id, epoch)

    def write(
        self,
        producer: Producer,
        partition: Partition,
        records: Iterable[tuple[bytes | None, bytes | None]],
        now: float,
    ) -> int:
        self._check(producer)
        return partition.append(records, now, producer)

    def end(self, producer: Producer, mark: Mark, now: float) -> None:
        """Of whatever it has open by now."""
        self._check(producer)
        for partition in self._everywhere():
            partition.mark(producer, mark, now)

    def _check(self, producer: Producer) -> None:
        if producer.epoch != self._epochs.get(producer.id):
            raise FencedProducer(f"{producer.id} has begun anew since")

    def _everywhere(self) -> Iterable[Partition]:
        return (partition for topic in self.topics.values() for partition in topic)


def proposed(
    partitions: int, members: Sequence[str], had: dict[str, Sequence[int]]
) -> dict[str, list[int]]:
    """Which member a group would give which partition: as even as can be, and as few as possible
    move. `had`: what each has, or says that it has."""
    most, rest = divmod(partitions, len(members))
    given: dict[str, list[int]] = {member: [] for member in members}
    taken: set[int] = set()
    by_size = sorted(members, key=lambda member: -len(had.get(member, ())))
    for place, member in enumerate(by_size):
        room = most + (place < rest)
        kept = [each for each in had.get(member, ()) if each < partitions and each not in taken]
        given[member] = kept[:room]
        taken.update(given[member])
    left = [each for each in range(partitions) if each not in taken]
    for place, member in enumerate(by_size):
        room = most + (place < rest) - len(given[member])
        given[member] += left[:room]
        left = left[room:]
    return given
