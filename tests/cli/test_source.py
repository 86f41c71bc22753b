"""`roskva source`: what it says without a database."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from roskva.cli.main import application
from roskva.disk import RealDisk
from roskva.feed.log import Log
from roskva.sources.change import NULL, Change
from roskva.sources.changes import DIRECTORY, LOG, ChangesLog, Slice
from roskva.sources.position import Doubt, PostgresPosition

app = application(["source"])
AT = PostgresPosition("4711", 1, 100)


def said(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["source", *words])
    return result.exit_code, result.output


@pytest.fixture
def data(tmp_path: Path) -> Path:
    where = tmp_path / "data" / DIRECTORY
    where.mkdir(parents=True)
    log = ChangesLog.open(RealDisk(), str(where / "shop"), "shop", lineage=7, now_us=1)
    log.doubt(Doubt("attached", "the source begins"), 5, AT, 1)
    change = Change("products", "delete", ("17",), NULL, NULL, 1)
    log.append([Slice("99", [change], AT)], 1)
    log.set_marker("direct", 1)
    log.close(1)
    return tmp_path / "data"


def test_a_log_of_changes_is_listed_and_shown(data: Path) -> None:
    code, listed = said("ls", "--data", str(data), "--json")
    assert (code, listed) == (0, '{"source":"shop","first":1,"last":2,"flows":{"direct":1}}\n')
    code, shown = said("cat", "shop", "--data", str(data))
    assert shown.splitlines() == ["1  doubt  the source begins", "2  delete  shop/products/17"]
    code, shown = said("cat", "shop", "--data", str(data), "--after", "1", "--json")
    assert (code, len(shown.splitlines())) == (0, 1)
    assert f'"version":"{5 << 43 | 2}"' in shown


def test_it_is_only_read(data: Path) -> None:
    """Its reader may be at work."""
    path = str(data / DIRECTORY / "shop" / LOG)
    log = Log.open(RealDisk(), path, lineage=7, now_us=1)
    assert said("cat", "shop", "--data", str(data))[0] == 0
    log.close()


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    assert "no log of changes of shop" in said("cat", "shop", "--data", str(tmp_path))[1]
    assert "no logs of changes" in said("ls", "--data", str(tmp_path))[1]
    code, text = said("check", "shop")
    assert code == 2
    assert "there is no table [source.shop]" in " ".join(text.split())


def test_a_row_has_a_name() -> None:
    assert said("name", "sales.orders", "ber/lin", "17") == (0, "sales.orders/ber%2flin/17\n")
