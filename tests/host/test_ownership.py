"""Who owns a shard, over a changelog in a Kafka that is in memory: members that are paused, killed
and cut off, a group that proposes late and twice, and transactions that nobody answers."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest

from roskva.core.effects import Tick
from roskva.host import ownership as o
from roskva.simulation.kafka import FencedProducer, Fetched, Position, Producer, SimulatedKafka
from roskva.simulation.process import Clock

CLAIM = b"owner"
ROW = b"row"
REGISTRARS = 2
PING_S = 1.0


class Shard:
    """One shard of a cluster: its changelog, its group, its registrars, and what must hold."""

    def __init__(self, seed: int, members: int) -> None:
        self.dice = Random(seed)
        self.clock = Clock()
        self.kafka = SimulatedKafka()
        self.kafka.create("rows", 1)
        self.rows = self.kafka.partition("rows", 0)
        self.down_until = 0.0
        """All brokers."""
        self.healed = False
        """Whatever is asked for is answered, and nobody lags,"""
        self.lags = False
        """unless everybody does."""
        self.seen: Counter[str] = Counter()
        self.leases: dict[int, tuple[int, float]] = {}
        """Of registrars: whom they believe, and until when."""
        self.refused_below = [0] * REGISTRARS
        self.members = [Member(self, number) for number in range(members)]
        for registrar in range(REGISTRARS):
            self.clock.after(self.dice.random(), partial(self._ping, registrar))

    def words(self) -> list[o.LastWord]:
        """As whoever reads what is committed finds them."""
        read = self.rows.read(Position(self.rows.topic, 0), 1 << 30)
        assert isinstance(read, Fetched)
        said = [record.value or b"" for record in read.records if record.key == CLAIM]
        numbers = [list(map(int, value.split()[:2])) for value in said]
        return [
            o.LastWord(owner, beat, left=value.endswith(b"left"))
            for (owner, beat), value in zip(numbers, said, strict=True)
        ]

    def last(self) -> o.LastWord:
        return (self.words() or [o.LastWord(0, 0, True)])[-1]

    def served_by(self) -> list["Member"]:
        return [member for member in self.members if member.serves]

    # Registrars.

    def _ping(self, registrar: int) -> None:
        """Asks everybody, as one whose links are late would."""
        sent = self.clock.now
        for member in self.members:
            asked = partial(self._pinged, registrar, member, sent)
            member.later(self.dice.uniform(0, 0.5), asked)
        self.clock.after(PING_S, partial(self._ping, registrar))

    def _pinged(self, registrar: int, member: "Member", sent: float) -> None:
        if not member.answers():
            return
        owner = member.machine.owner
        delay = self.dice.uniform(0, 0.5)
        self.clock.after(delay, partial(self._answered, registrar, owner, sent))

    def _answered(self, registrar: int, owner: int, sent: float) -> None:
        if owner < self.refused_below[registrar]:
            self.seen["lower number refused"] += 1
            return
        self.refused_below[registrar] = owner
        self.leases[registrar] = owner, sent + o.LEASE_S
        self.seen["lease"] += 1

    def check_leases(self, owner: int) -> None:
        """When this one begins to serve."""
        for believed, until in self.leases.values():
            assert believed == owner or until <= self.clock.now, (
                f"{owner} serves, and {believed} is believed for {until - self.clock.now:.2f} s"
            )


class Member:
    def __init__(self, shard: Shard, number: int) -> None:
        self.shard, self.number = shard, number
        self.life = 0
        self.paused_until = 0.0
        self.cut_until = 0.0
        """From the brokers."""
        self.start()

    def start(self) -> None:
        self.life += 1
        self.alive, self.serves = True, False
        self.beaten = -10.0
        self.machine = o.Ownership()
        self.producer: Producer | None = None
        self.producers = 0
        self.timer_at = float("inf")

    def kill(self) -> None:
        self.life += 1
        self.alive = self.serves = False

    def later(self, delay: float, do: Callable[[], None]) -> None:
        life, shard = self.life, self.shard

        def when_due() -> None:
            if self.life != life:
                return
            if shard.clock.now < self.paused_until:
                shard.clock.after(self.paused_until - shard.clock.now, when_due)
            else:
                do()

        shard.clock.after(delay, when_due)

    def answers(self) -> bool:
        return self.serves and self.shard.clock.now < self.beaten + o.LEASE_S

    def step(self, event: Any) -> None:
        now = self.shard.clock.now
        if isinstance(event, o.Beaten) and self.serves:
            self.beaten = event.started
        for effect in self.machine.step(event, now):
            self._carry_out(effect)
        deadline = self.machine.next_deadline()
        if deadline is not None and deadline < self.timer_at:
            self.timer_at = deadline
            self.later(deadline - now, lambda: self._fire(deadline))

    def _fire(self, at: float) -> None:
        if at == self.timer_at:
            self.timer_at = float("inf")
            self.step(Tick())

    def _carry_out(self, effect: o.Effect) -> None:
        match effect:
            case o.ReadLastWord():
                self._ask(lambda: o.Seen(self.shard.last()))
            case o.Fence():
                self._ask(self._fence)
            case o.Restore():
                self._ask(lambda: o.Restored(self.shard.last().owner, least=1), slow=True)
            case o.ClaimShard(owner=owner):
                self._commit(o.LastWord(owner, 0, False), o.Begun())
            case o.Serve(owner=owner):
                assert owner > max((word.owner for word in self.shard.words()[:-1]), default=0)
                self.shard.check_leases(owner)
                self.serves, self.beaten = True, -10.0
                self.shard.seen["served"] += 1
                self._write()
            case o.FetchEnd(started=started):
                shard = self.shard
                little = not shard.lags and (shard.healed or shard.dice.random() < 0.9)
                self._ask(lambda: o.EndFetched(started, little))
            case o.Beat(word=word, started=started):
                self._commit(word, o.Beaten(started))
            case o.Retire():
                self.serves = False
            case o.Leave(word=word):
                self.shard.seen["left"] += 1
                self._commit(word, o.Left())
            case o.DropProducer():
                self.producer = None
                self.producers += 1

    # Asking brokers.

    def _reaches(self) -> bool:
        now = self.shard.clock.now
        return now >= self.cut_until and now >= self.shard.down_until

    def _ask(self, ask: Callable[[], Any], slow: bool = False) -> None:
        dice, producers = self.shard.dice, self.producers

        def asked() -> None:
            if producers != self.producers:
                return
            if not self._reaches():
                if slow:  # a restore goes on when it can
                    self.later(1.0, asked)
                return
            try:
                answer = ask()
            except FencedProducer:
                answer = o.Overtaken()
            self.later(dice.uniform(0, 0.1), lambda: self._answered(producers, answer))

        self.later(dice.uniform(0, 12.0 if slow else 0.1), asked)

    def _answered(self, producers: int, answer: Any) -> None:
        if producers == self.producers:
            self.step(answer)

    def _fence(self) -> o.OthersFenced:
        shard = self.shard
        self.producer = shard.kafka.begin("shard", shard.clock.now)
        return o.OthersFenced(shard.last())

    def _commit(self, word: o.LastWord, done: Any) -> None:
        text = f"{word.owner} {word.beat} {'left' if word.left else ''}".encode()
        self._transact([(CLAIM, text.strip())], done)

    def _write(self) -> None:
        """Rows, as the host of the shard would, for as long as it believes that it is one."""
        if self.serves:
            word = f"{self.machine.owner}".encode()
            self._transact([(ROW, word), (ROW, word)], None)
            self.later(self.shard.dice.uniform(0.1, 2.0), self._write)

    def _transact(self, records: list[tuple[bytes | None, bytes | None]], done: Any) -> None:
        """In two steps, as it is: between them, and after them, it may be in doubt."""
        shard, dice, producer = self.shard, self.shard.dice, self.producer
        producers = self.producers
        doubtful = dice.random() < 0.01 and not shard.healed

        def write() -> None:
            if producers != self.producers or producer is None:
                return
            if not self._reaches():
                self.later(5.0, lambda: self._answered(producers, o.InDoubt()))
                return
            try:
                shard.kafka.write(producer, shard.rows, records, shard.clock.now)
            except FencedProducer:
                shard.seen["zombie refused"] += 1
                self._answered(producers, o.Overtaken())
                return
            if doubtful:
                shard.seen["in doubt"] += 1
                shard.clock.after(dice.uniform(0, 20.0), end_late)
                self.later(5.0, lambda: self._answered(producers, o.InDoubt()))
            else:
                self.later(dice.uniform(0, 0.1), end)

        def end_late() -> None:
            try:
                shard.kafka.end(producer, "commit", shard.clock.now)  # type: ignore[arg-type]
            except FencedProducer:
                shard.seen["late commit refused"] += 1

        def end() -> None:
            if producers != self.producers or producer is None:
                return
            try:
                shard.kafka.end(producer, "commit", shard.clock.now)
            except FencedProducer:
                shard.seen["zombie refused"] += 1
                self._answered(producers, o.Overtaken())
                return
            if done is not None:
                self.later(dice.uniform(0, 0.1), lambda: self._answered(producers, done))

        self.later(dice.uniform(0, 0.1), write)


def disturb(shard: Shard, until: float) -> None:
    """What befalls members, brokers and the group."""
    dice, clock = shard.dice, shard.clock

    def one() -> None:
        member = dice.choice(shard.members)
        match dice.choice(
            ("propose", "propose", "withdraw", "stop", "pause", "kill", "cut", "down")
        ):
            case "propose":
                member.later(dice.uniform(0, 5.0), lambda: member.step(o.Proposed()))
            case "withdraw":
                member.later(dice.uniform(0, 5.0), lambda: member.step(o.ProposalWithdrawn()))
            case "stop":
                member.later(0.0, lambda: member.step(o.MemberStops()))
            case "pause":
                member.paused_until = clock.now + dice.uniform(0, 30.0)
            case "kill":
                member.kill()
                clock.after(dice.uniform(0, 20.0), member.start)
            case "cut":
                member.cut_until = clock.now + dice.uniform(0, 30.0)
            case "down":
                shard.down_until = clock.now + dice.uniform(0, 8.0)
        if clock.now < until:
            clock.after(dice.expovariate(1 / 12.0), one)

    clock.after(dice.random() * 5, one)


def check_changelog(shard: Shard) -> None:
    """Owners follow each other, and each writes whole transactions, all of them before the next
    has begun."""
    read = shard.rows.read(Position(shard.rows.topic, 0), 1 << 30)
    assert isinstance(read, Fetched)
    current = 0
    halves: Counter[tuple[bytes, int]] = Counter()
    for record in read.records:
        assert record.value is not None
        owner = int(record.value.split()[0])
        assert owner >= current, f"{owner} wrote after {current} had begun"
        current = owner
    for record in read.records:
        if record.key == ROW:
            assert record.value is not None
            halves[record.value, record.producer.epoch if record.producer else -1] += 1
    assert all(count % 2 == 0 for count in halves.values())


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 300), marks=pytest.mark.verify)])
def test_one_owner_at_a_time_whatever_happens(seeds: range) -> None:
    seen: Counter[str] = Counter()
    for seed in seeds:
        seen.update(owned_by_one(seed))
    for what in ("zombie refused", "late commit refused", "in doubt", "left", "lease"):
        assert seen[what] > 0, seen


def owned_by_one(seed: int) -> Counter[str]:
    """What happened on the way."""
    shard = Shard(seed, members=3)
    disturb(shard, until=600.0)
    shard.clock.run(650.0)
    shard.down_until, shard.healed = 0.0, True
    for member in shard.members:
        member.paused_until = member.cut_until = 0.0
        if not member.alive:
            member.start()
    chosen = shard.members[seed % 3]
    for member in shard.members:
        member.step(o.Proposed() if member is chosen else o.ProposalWithdrawn())
    patience = o.LEAVING_PATIENCE_S + 2 * o.LEASE_S + 12.0 + 30.0
    shard.clock.run(shard.clock.now + patience)
    assert shard.served_by() == [chosen], seed
    check_changelog(shard)
    believed = {owner for owner, until in shard.leases.values() if until > shard.clock.now}
    assert believed <= {chosen.machine.owner}, seed
    return shard.seen


def alone() -> Shard:
    shard = Shard(0, members=2)
    shard.healed = True
    shard.members[0].step(o.Proposed())
    shard.clock.run(30.0)
    assert shard.served_by() == [shard.members[0]]
    return shard


def test_who_is_asked_to_leave_hands_over_without_anybody_waiting() -> None:
    shard = alone()
    first, second = shard.members
    shard.clock.run(first.machine.leaves_at)
    first.step(o.ProposalWithdrawn())
    second.step(o.Proposed())
    asked_at = shard.clock.now
    while not second.serves:
        shard.clock.run(shard.clock.now + 0.1)
    restoring_s = 12.0
    assert shard.clock.now - asked_at < o.LEASE_S + 2 * o.BEAT_S + restoring_s
    assert first.machine.state == "away"
    assert o.LastWord(1, first.machine.beats + 1, left=True) in shard.words()


def test_a_group_that_changes_its_mind_does_not_starve_everybody() -> None:
    shard = alone()
    first, second = shard.members
    for _ in range(5):
        first.step(o.ProposalWithdrawn())
        second.step(o.Proposed())
        shard.clock.run(shard.clock.now + 4.0)
        second.step(o.ProposalWithdrawn())
        first.step(o.Proposed())
        shard.clock.run(shard.clock.now + 2.0)
    assert [word.owner for word in shard.words() if word.beat == 0] == [1]
    assert first.answers()


def test_who_stops_leaves_at_once() -> None:
    shard = alone()
    shard.members[0].step(o.MemberStops())
    assert not shard.served_by()
    shard.clock.run(shard.clock.now + o.LEASE_S + 1.0)
    assert shard.last().left


def test_an_owner_that_lags_is_believed_by_nobody_and_goes_on() -> None:
    shard = alone()
    owner = shard.members[0]
    shard.lags = True
    shard.clock.run(shard.clock.now + 2 * o.LEASE_S + 1.0)
    assert owner.serves
    assert not owner.answers()
    assert not [1 for _, until in shard.leases.values() if until > shard.clock.now]
