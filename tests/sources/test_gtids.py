"""Which transactions a server has, and whether one can go on there."""

import pytest

from roskva.errors import BadConfig
from roskva.sources.mysql.gtids import GtidServer, MariaDbGtids, MysqlGtids, judge_gtids
from roskva.sources.mysql.servers import packed_gtids
from roskva.sources.position import BROKEN, GtidPosition, position_text, read_position

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "5e11fa47-71ca-11e1-9e33-c80aa9429562"
OURS = GtidPosition("0-1-17", "1/1700000000", "0-1-16", 1_700_000_000_000_000, "tables")


def found(knows: str, server: str = OURS.server, tables: str = OURS.tables) -> GtidServer:
    return GtidServer(server, "0-1-9", knows, tables)  # type: ignore[arg-type]


def test_mariadb_has_the_last_of_each_domain() -> None:
    gtids = MariaDbGtids("1-2-5, 0-1-16")
    gtids.add("0-3-17")
    assert str(gtids) == "0-3-17,1-2-5"
    assert str(MariaDbGtids("")) == ""
    assert gtids.known_in("0-1-16,0-3-20,1-2-5")
    assert not gtids.known_in("0-1-99,1-2-5"), "another server has made those"
    assert not gtids.known_in("0-3-16,1-2-5")
    assert gtids.shared_with("0-3-16")
    assert not gtids.shared_with("0-4-99")
    assert MariaDbGtids("").known_in("")


def test_mysql_has_ranges_of_each_server() -> None:
    gtids = MysqlGtids(f"{A.upper()}:1-3:7,\n{B}:1")
    for number in (4, 9, 5, 6, 8):
        gtids.add(f"{A}:{number}")
    assert str(gtids) == f"{A}:1-9,{B}:1"
    assert f"{A}:9" in gtids
    assert f"{A}:10" not in gtids
    assert gtids.known_in(MysqlGtids(f"{A}:1-20,{B}:1-2"))
    assert not gtids.known_in(MysqlGtids(f"{A}:1-8:10-20,{B}:1-2"))
    assert gtids.shared_with(MysqlGtids(f"{A}:9-20"))
    assert not gtids.shared_with(MysqlGtids(f"{A}:10-20"))
    assert str(MysqlGtids("")) == ""


def test_mysql_is_told_what_we_have_in_bytes() -> None:
    packed = packed_gtids(MysqlGtids(f"{A}:1-3:7"))
    numbers = b"".join(n.to_bytes(8, "little") for n in (2, 1, 4, 7, 8))
    assert packed == b"\1" + bytes(7) + bytes.fromhex(A.replace("-", "")) + numbers


def test_a_server_that_has_what_we_have_read_is_followed_whichever_it_is() -> None:
    assert judge_gtids(OURS, found("all")) is None
    assert judge_gtids(OURS, found("all", "2/1800000000")) is None
    assert judge_gtids(OURS, found("all", tables=BROKEN)) is None


def test_one_that_has_not_is_a_doubt_or_another_database() -> None:
    causes = [
        judge_gtids(None, found("none")),
        judge_gtids(OURS, found("none")),
        judge_gtids(OURS, found("some", "2/1800000000")),
        judge_gtids(OURS, found("none", "2/1800000000"), adopt=True),
        judge_gtids(OURS, found("all", tables="others")),
    ]
    assert [doubt and doubt.cause for doubt in causes] == [
        *("attached", "reset", "fork", "adopted", "tables changed"),
    ]
    with pytest.raises(BadConfig, match="--adopt"):
        judge_gtids(OURS, found("none", "2/1800000000"))


def test_a_position_is_kept_as_text() -> None:
    assert read_position(position_text(OURS)) == OURS
    assert str(OURS) == "0-1-17"
