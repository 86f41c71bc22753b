"""The events of a binary log, as a MariaDB has sent them; and what is none."""

from typing import Any

import msgspec
import pytest
from tests.sources.recorded import BEGUN, EVENTS, TABLE_MAP, sealed, transactions

from roskva.errors import BadMessage
from roskva.sources.change import Change
from roskva.sources.mysql.binlog import (
    HEADER_BYTES,
    BinlogDecoder,
    Gtid,
    Prepared,
    RowLayout,
    TableMap,
)
from roskva.sources.mysql.tables import described
from roskva.sources.position import GtidPosition
from roskva.sources.reader import Doubtful, LogIdle, Received

PLACE = r", at binlog\.00000[12]:\d+, after 0-1-\d+$"


def taken(*events: bytes) -> list[Received | Doubtful | LogIdle]:
    reading = transactions()
    found: list[Received | Doubtful | LogIdle] = []
    for event in events:
        reading.take(event, found)
    reading.note_idle(found)
    return found


def told(change: Change) -> tuple[str, str, Any]:
    return change.op, "/".join(map(str, change.key)), msgspec.json.decode(change.row)


def test_a_log_is_read_as_it_was_written() -> None:
    found = taken(*EVENTS)
    changes = [each for item in found if isinstance(item, Received) for each in item.part.changes]
    salt = {
        "id": 17,
        "name": "Salt",
        "price": 1.5,
        "kind": "new",
        "made": "2024-02-29 12:34:56.789",
        "flags": 5,
    }
    nothing = dict.fromkeys(("name", "price", "kind", "made", "flags"))
    many = salt | {"id": 20, "name": 40 * "x", "price": 1, "kind": "old", "flags": 7}
    assert [told(change) for change in changes] == [
        ("insert", "17", salt),
        ("insert", "18", nothing | {"id": 18, "price": -0.05}),
        ("delete", "18", None),
        ("insert", "19", nothing | {"id": 19, "price": -0.05, "name": "Pfeffer ü"}),
        ("delete", "17", None),
        ("insert", "20", many),
        ("update", "20", many | {"price": 2}),
        ("delete", "20", None),
        ("insert", "21", nothing | {"id": 21}),
        ("insert", "22", nothing | {"id": 22}),
    ]
    assert [item.doubt.cause for item in found if isinstance(item, Doubtful)] == ["truncated"]
    ends = [item.part.end for item in found if isinstance(item, Received) and item.part.end]
    assert [end.gtids for end in ends if isinstance(end, GtidPosition)] == [
        *("0-1-3", "0-1-4", "0-1-5", "0-1-7", "0-1-8", "0-1-9"),
        *("0-1-11", "0-1-12", "0-1-13"),
    ]


def test_a_distributed_transaction_is_told_when_it_is_committed() -> None:
    found = taken(*EVENTS)
    parts = [item.part for item in found if isinstance(item, Received)]
    [part] = [each for each in parts if [change.key for change in each.changes] == [("21",)]]
    assert part.transaction == "0-1-11"


def test_one_that_was_prepared_before_we_came_is_a_doubt() -> None:
    [commits] = [i for i, event in enumerate(EVENTS) if b"XA COMMIT" in event]
    found = taken(*EVENTS[:2], *EVENTS[commits - 1 : commits + 1])
    assert [item.doubt.cause for item in found if isinstance(item, Doubtful)] == ["unlogged"]


def test_a_transaction_that_we_have_is_passed_over() -> None:
    reading = transactions()
    found: list[Received | Doubtful | LogIdle] = []
    gtids = iter(event for event in EVENTS if event[4] == 162)
    first = next(gtids)
    begins = EVENTS.index(first)
    for event in EVENTS[:begins]:
        reading.take(event, found)
    decoded = reading.take_first(first)
    assert isinstance(decoded, Gtid)
    reading.begin_again(decoded)
    for event in EVENTS[begins + 1 : EVENTS.index(next(gtids))]:
        reading.take(event, found)
    assert found == []
    assert reading.position == BEGUN


def test_an_event_that_is_cut_off_or_goes_on_is_an_error() -> None:
    for i, event in enumerate(EVENTS):
        for wrong in (event[:-1], event[: HEADER_BYTES + 3], event[:5], b"", event + b"\0"):
            with pytest.raises(BadMessage):
                taken(*EVENTS[: max(i, 2)], wrong)


def test_a_bit_that_fell_over_is_an_error_with_table_and_place() -> None:
    for i, event in enumerate(EVENTS[2:], start=2):
        for at in range(0, len(event), 7):
            wrong = event[:at] + bytes((event[at] ^ 4,)) + event[at + 1 :]
            with pytest.raises(BadMessage, match=PLACE):
                taken(*EVENTS[:i], wrong)
    [rows, *_] = [i for i, event in enumerate(EVENTS) if event[4] == 23]
    wrong = EVENTS[rows][:-5] + b"\xff" + EVENTS[rows][-4:]
    with pytest.raises(
        BadMessage, match=r"of the table shop\.products is .*, at binlog\.000001:\d+"
    ):
        taken(*EVENTS[:rows], wrong)


def test_rows_that_do_not_fit_their_table_are_an_error_although_the_checksum_fits() -> None:
    [rows, *_] = [i for i, event in enumerate(EVENTS) if event[4] == 23]
    body = EVENTS[rows]
    for wrong in (body[:-5] + body[-4:], body[:-4] + b"\0" + body[-4:]):
        with pytest.raises(BadMessage, match=r"of the table shop\.products"):
            taken(*EVENTS[:rows], sealed(wrong))


def test_a_transaction_within_another_is_an_error() -> None:
    [first, second, *_] = [i for i, event in enumerate(EVENTS) if event[4] == 162]
    with pytest.raises(BadMessage, match="does not end"):
        taken(*EVENTS[: second - 1], EVENTS[second])
    with pytest.raises(BadMessage, match="has no GTID"):
        taken(*EVENTS[:first], *EVENTS[first + 1 : second])


def test_what_cannot_be_read_is_refused_by_name() -> None:
    decoder = BinlogDecoder(lambda table: None)
    decoder.decode(EVENTS[1])
    compressed = bytearray(EVENTS[0])
    compressed[4] = 40
    with pytest.raises(BadMessage, match="binlog_transaction_compression = OFF"):
        decoder.decode(sealed(bytes(compressed)))


def test_a_table_is_described_by_a_log_that_is_set_to() -> None:
    seen: list[TableMap] = []

    def note(table: TableMap) -> RowLayout | None:
        seen.append(table)
        return None

    decoder = BinlogDecoder(note)
    decoder.decode(EVENTS[1])
    decoder.decode(TABLE_MAP)
    found = described(seen[0], lambda collation: {8: "latin1", 45: "utf8mb4"}[collation])
    assert found is not None
    assert found.primary == ("id",)
    names = [(column.name, column.unsigned, column.words) for column in found.columns]
    assert names == [
        ("id", True, ()),
        ("name", False, ()),
        ("price", False, ()),
        ("kind", False, ("old", "new")),
        ("made", False, ()),
        ("flags", False, ()),
    ]
    assert found.columns[1].charset == "utf8mb4"
    assert found.fits(seen[0]) is False, "it does not say what SQL calls each type"


# What MySQL writes, made by hand: no server of it was there.


def mysql_event(kind: int, content: bytes, position: int = 1000) -> bytes:
    head = (1_700_000_000).to_bytes(4, "little") + bytes((kind,)) + bytes(8)
    return sealed(head + position.to_bytes(4, "little") + bytes(2) + content + bytes(4))


def test_transactions_of_mysql_are_named_by_their_server() -> None:
    decoder = BinlogDecoder(lambda table: None)
    decoder.decode(EVENTS[1])
    uuid = bytes.fromhex("3e11fa4771ca11e19e33c80aa9429562")
    number = (23).to_bytes(8, "little")
    clock = bytes(17)
    first = 1_700_000_000_123_456
    event = decoder.decode(
        mysql_event(33, b"\0" + uuid + number + clock + first.to_bytes(7, "little"))
    )
    assert isinstance(event, Gtid)
    assert (event.gtid, event.at) == ("3e11fa47-71ca-11e1-9e33-c80aa9429562:23", first)
    later = (first + 5) | 1 << 55
    times = later.to_bytes(7, "little") + first.to_bytes(7, "little")
    replicated = decoder.decode(mysql_event(33, b"\0" + uuid + number + clock + times))
    assert isinstance(replicated, Gtid)
    assert replicated.at == first


def test_the_first_phase_of_a_distributed_transaction_of_mysql() -> None:
    decoder = BinlogDecoder(lambda table: None)
    decoder.decode(EVENTS[1])
    lengths = b"".join(n.to_bytes(4, "little") for n in (1, 2, 1))
    event = decoder.decode(mysql_event(38, b"\0" + lengths + b"abc"))
    assert event == Prepared("X'6162',X'63',1", 1000)
