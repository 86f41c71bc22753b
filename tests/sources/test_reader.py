"""The duties of a reader: visible before durable, durable before confirmed, whatever happens."""

import random
from collections.abc import Sequence

import pytest

from roskva.core.effects import Tick
from roskva.sources.change import NULL, Change
from roskva.sources.changes import Slice
from roskva.sources.position import Doubt, PostgresPosition
from roskva.sources.reader import (
    ALARM_S,
    MAX_WAITING,
    MAX_WAITING_BYTES,
    Alarm,
    AppendChanges,
    AppendDoubt,
    AskVisible,
    ChangesDurable,
    Confirm,
    Doubtful,
    DoubtRaised,
    Effect,
    LogIdle,
    LogLost,
    LogOpened,
    Received,
    SourceReader,
    Visible,
)

EMPTIED = Doubt("truncated", "products was emptied")


def at(lsn: int) -> PostgresPosition:
    return PostgresPosition("7", 1, lsn)


def change(key: int) -> Change:
    return Change("products", "update", (str(key),), NULL, NULL, 0)


def received(xid: int, *keys: int, end: int | None = None) -> Received:
    return Received(xid, Slice(str(xid), [*map(change, keys)], None if end is None else at(end)))


def test_a_transaction_is_appended_when_it_is_visible_and_confirmed_when_it_is_durable() -> None:
    reader = SourceReader()
    assert reader.step(LogOpened(at(10)), 0.0) == []
    transaction = received(5, 1, 2, end=20)
    assert reader.step(transaction, 0.0) == [AskVisible(frozenset({5}))]
    assert reader.step(Visible(frozenset({5})), 0.0) == [AppendChanges([transaction.part])]
    assert reader.step(ChangesDurable(), 0.0) == [Confirm(at(20))]


def test_what_is_not_visible_is_asked_about_again_and_becomes_an_alarm_and_is_never_skipped() -> (
    None
):
    reader = SourceReader()
    reader.step(LogOpened(at(10)), 0.0)
    reader.step(received(5, 1, end=20), 0.0)
    now, said = 0.0, list[Effect]()
    while now < 2 * ALARM_S:
        said += reader.step(Visible(frozenset()), now)
        now = reader.next_deadline() or now
        assert reader.step(Tick(), now) == [AskVisible(frozenset({5}))]
    assert said == [Alarm(True)]
    assert [type(each) for each in reader.step(Visible(frozenset({5})), now)] == [
        Alarm,
        AppendChanges,
    ]


def test_the_first_that_is_not_visible_is_waited_for_although_later_ones_are() -> None:
    reader = SourceReader()
    reader.step(LogOpened(at(10)), 0.0)
    reader.step(received(5, 1, end=20), 0.0)
    for event in (received(6, 2, end=30), received(7, 3, end=40)):
        reader.step(event, 0.0)
    assert reader.step(Visible(frozenset()), 0.0) == []
    now, said = 0.0, list[Effect]()
    while now < 2 * ALARM_S:
        now = reader.next_deadline() or now
        [ask] = reader.step(Tick(), now)
        assert isinstance(ask, AskVisible)
        assert 5 in ask.xids
        said += reader.step(Visible(ask.xids & {6, 7}), now)
    assert said == [Alarm(True)]
    assert reader.step(Tick(), reader.next_deadline() or now) == [AskVisible(frozenset({5}))]


def test_what_arrives_meanwhile_goes_together_up_to_what_is_not_visible() -> None:
    reader = SourceReader()
    reader.step(LogOpened(at(10)), 0.0)
    reader.step(received(5, 1, end=20), 0.0)
    for event in (received(6, 2, end=30), received(7, 3, end=40), received(8, 4, end=50)):
        assert reader.step(event, 0.0) == []
    [append] = reader.step(Visible(frozenset({5})), 0.0)
    assert isinstance(append, AppendChanges)
    assert [part.transaction for part in append.parts] == ["5"]
    confirm, ask = reader.step(ChangesDurable(), 0.0)
    assert (confirm, ask) == (Confirm(at(20)), AskVisible(frozenset({6, 7, 8})))
    [append] = reader.step(Visible(frozenset({6, 7})), 0.0)
    assert isinstance(append, AppendChanges)
    assert [part.transaction for part in append.parts] == ["6", "7"]


def test_a_large_transaction_goes_on_in_slices_and_is_confirmed_at_its_end() -> None:
    reader = SourceReader()
    reader.step(LogOpened(at(10)), 0.0)
    reader.step(received(5, 1), 0.0)
    reader.step(Visible(frozenset({5})), 0.0)
    assert reader.step(received(5, 2), 0.0) == []
    [append] = reader.step(ChangesDurable(), 0.0)
    assert isinstance(append, AppendChanges)
    reader.step(received(5, 3, end=20), 0.0)
    reader.step(ChangesDurable(), 0.0)
    assert reader.step(ChangesDurable(), 0.0) == [Confirm(at(20))]
    assert not reader.visible


def test_a_doubt_keeps_its_place_in_the_order() -> None:
    reader = SourceReader()
    attached = Doubt("attached", "the source begins")
    assert reader.step(LogOpened(at(10), attached), 0.0) == [AppendDoubt(attached, at(10))]
    reader.step(received(5, 1, end=20), 0.0)
    reader.step(Doubtful(EMPTIED, at(30), frozenset({6})), 0.0)
    assert reader.step(ChangesDurable(), 0.0) == [Confirm(at(10)), AskVisible(frozenset({5, 6}))]
    [append] = reader.step(Visible(frozenset({5, 6})), 0.0)
    assert isinstance(append, AppendChanges)
    assert reader.step(ChangesDurable(), 0.0) == [Confirm(at(20)), AppendDoubt(EMPTIED, at(30))]
    assert reader.step(ChangesDurable(), 0.0) == [Confirm(at(30))]


def test_a_doubt_at_the_start_waits_for_what_was_committed_before_and_nobody_sees() -> None:
    reader = SourceReader()
    attached = Doubt("attached", "the source begins")
    opened = LogOpened(at(10), attached, unseen=frozenset({3, 4}))
    assert reader.step(opened, 0.0) == [AskVisible(frozenset({3, 4}))]
    assert reader.step(Visible(frozenset({3})), 0.0) == []
    assert reader.step(Tick(), 1.0) == [AskVisible(frozenset({4}))]
    assert reader.step(Visible(frozenset()), ALARM_S) == [Alarm(True)]
    reader.step(Tick(), 2 * ALARM_S)
    seen = reader.step(Visible(frozenset({4})), 2 * ALARM_S)
    assert seen == [Alarm(False), AppendDoubt(attached, at(10))]


def test_an_idle_database_is_confirmed_but_not_past_what_waits() -> None:
    reader = SourceReader()
    reader.step(LogOpened(at(10)), 0.0)
    assert reader.step(LogIdle(at(15)), 0.0) == [Confirm(at(15))]
    reader.step(received(5, 1, end=20), 0.0)
    assert reader.step(LogIdle(at(25)), 0.0) == []
    assert reader.step(LogIdle(at(35)), 0.0) == []
    reader.step(Visible(frozenset({5})), 0.0)
    assert reader.step(ChangesDurable(), 0.0) == [Confirm(at(20)), Confirm(at(35))]


def test_a_connection_that_breaks_takes_only_what_was_not_being_appended() -> None:
    reader = SourceReader()
    reader.step(LogOpened(at(10)), 0.0)
    reader.step(received(5, 1, end=20), 0.0)
    reader.step(Visible(frozenset({5})), 0.0)
    reader.step(received(6, 2, end=30), 0.0)
    assert reader.step(LogLost(), 0.0) == []
    assert reader.step(ChangesDurable(), 0.0) == [Confirm(at(20))]
    assert reader.step(LogOpened(at(20)), 0.0) == []
    assert reader.step(received(6, 2, end=30), 0.0) == [AskVisible(frozenset({6}))]


def test_few_large_rows_are_enough() -> None:
    reader = SourceReader()
    reader.step(LogOpened(at(10)), 0.0)
    transaction = received(5, 1, end=20)
    reader.step(Received(5, transaction.part, MAX_WAITING_BYTES), 0.0)
    assert reader.full
    reader.step(Visible(frozenset({5})), 0.0)
    assert not reader.full


def test_a_doubt_of_those_who_read_the_log_goes_first_and_outlives_the_connection() -> None:
    reader, lost = SourceReader(), Doubt("log lost", "a hole")
    reader.step(LogOpened(at(10)), 0.0)
    reader.step(received(5, 1, end=20), 0.0)
    assert reader.step(DoubtRaised(lost), 0.0) == []
    assert reader.step(LogLost(), 0.0) == [AppendDoubt(lost, None)]
    assert reader.step(LogOpened(at(10)), 0.0) == []
    assert reader.step(received(5, 1, end=20), 0.0) == []
    assert reader.step(ChangesDurable(), 0.0) == [AskVisible(frozenset({5}))]


def test_the_alarm_ends_with_the_connection() -> None:
    reader = SourceReader()
    reader.step(LogOpened(at(10)), 0.0)
    reader.step(received(5, 1, end=20), 0.0)
    reader.step(Visible(frozenset()), 0.0)
    reader.step(Tick(), 2 * ALARM_S)
    assert reader.step(Visible(frozenset()), 2 * ALARM_S) == [Alarm(True)]
    assert reader.step(LogLost(), 2 * ALARM_S) == [Alarm(False)]


def test_it_says_when_it_has_enough() -> None:
    reader = SourceReader()
    reader.step(LogOpened(at(10)), 0.0)
    reader.step(received(5, *range(MAX_WAITING - 1)), 0.0)
    assert not reader.full
    reader.step(received(5, 0, end=20), 0.0)
    assert reader.full
    reader.step(Visible(frozenset({5})), 0.0)
    assert not reader.full


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_confirmed_that_is_not_durable_nor_durable_that_nobody_sees(seed: int) -> None:
    dice = random.Random(seed)
    transactions = [received(xid, xid, end=10 * xid) for xid in range(1, 40)]
    log: list[int] = []
    seen: set[int] = set()
    confirmed = 0
    while confirmed < 10 * len(transactions):
        reader, coming = SourceReader(), iter(transactions[confirmed // 10 :])
        pending = reader.step(LogOpened(at(confirmed)), 0.0)
        now, life = 0.0, dice.randrange(5, 60)
        while life and confirmed < 10 * len(transactions):
            life, now = life - 1, now + 0.1
            events: Sequence[object] = ()
            if pending and dice.random() < 0.6:
                confirmed, events = _carried_out(pending.pop(0), dice, log, seen, confirmed)
            elif (one := next(coming, None)) is not None:
                events = [one]
            for event in events or [Tick()]:
                pending += reader.step(event, now)  # type: ignore[arg-type]
    assert list(dict.fromkeys(log)) == [t.xid for t in transactions]


def _carried_out(
    effect: Effect, dice: random.Random, log: list[int], seen: set[int], confirmed: int
) -> tuple[int, list[object]]:
    match effect:
        case AskVisible(xids=xids):
            seen |= {xid for xid in xids if dice.random() < 0.5}
            return confirmed, [Visible(frozenset(xids & seen))]
        case AppendChanges(parts=parts):
            appended = [int(part.transaction) for part in parts]
            assert seen.issuperset(appended)
            log += appended
            return confirmed, [ChangesDurable()]
        case Confirm(position=PostgresPosition(lsn=lsn)):
            assert lsn // 10 in log
            return max(confirmed, lsn), []
    raise AssertionError(effect)
