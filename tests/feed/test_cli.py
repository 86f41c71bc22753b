"""`roskva feed`, as a person at a terminal meets it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.feed.scenes import LINEAGE, contents, open_log, publish, tidy
from typer.testing import CliRunner, Result

from roskva.cli.feed import app
from roskva.cli.outcome import BAD_USAGE, FAILED, INTERRUPTED, LATER
from roskva.disk import RealDisk
from roskva.feed.base import Marker
from roskva.feed.log import Log
from roskva.feed.reader import LogReader
from roskva.feed.recovery import DISTANCE, skip_ahead
from roskva.feed.segment import FRAMES_AT


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two shards; the first has eight updates and a marker."""
    for shard in ("shard-00", "shard-01"):
        (tmp_path / shard).mkdir()
        log = open_log(RealDisk(), str(tmp_path / shard / "feed"))
        if shard == "shard-00":
            for number in range(1, 9):
                publish(log, number)
            log.set_marker("bridge", Marker(LINEAGE, 3))
            tidy(log)
        log.close()
    return tmp_path


@pytest.fixture
def feed(data: Path) -> Path:
    return data / "shard-00" / "feed"


def roskva_feed(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def segments(feed: Path) -> list[Path]:
    return sorted(feed.glob("*.log"))


def flip(path: Path, byte: int) -> None:
    content = bytearray(path.read_bytes())
    content[byte] ^= 1
    path.write_bytes(content)


def cut_off_writer(feed: Path) -> None:
    """Half a frame after the last commit, as a crash leaves it."""
    log = open_log(RealDisk(), str(feed))
    publish(log, 9)
    log.close()
    newest = segments(feed)[-1]
    frame = newest.read_bytes()[FRAMES_AT:]
    with newest.open("ab") as file:
        file.write(frame[: len(frame) // 2])


def test_ls_shows_segments_markers_and_whether_a_writer_is_alive(data: Path) -> None:
    result = roskva_feed("ls", data)
    assert result.exit_code == 0
    assert "shard-01" in result.output
    assert "bridge: 3" in result.output
    assert "no writer" in result.output


def test_ls_shows_where_a_restored_feed_will_go_on(feed: Path) -> None:
    skip_ahead(RealDisk(), str(feed))
    assert f"goes on after {8 + DISTANCE}" in roskva_feed("ls", feed).output


def test_cat_begins_where_it_is_told(data: Path) -> None:
    result = roskva_feed("cat", data / "shard-00", "--from", "7")
    assert [line.split("\t")[:3] for line in result.output.splitlines()] == [
        ["7", "app/thing-1", "reset 7"],
        ["8", "app/thing-2", "8"],
    ]


def test_cat_writes_json_that_has_every_field(feed: Path) -> None:
    lines = roskva_feed("cat", feed, "--json").output.splitlines()
    assert len(lines) == 8
    assert json.loads(lines[6]) == {
        "offset": 7,
        "object": "app/thing-1",
        "version": 7,
        "source": "phone",
        "payload": "cHA=",
        "published_at": 1_000_007,
        "reset": True,
        "appended_at": 1,
    }


def test_cat_wants_one_feed_and_names_one(data: Path) -> None:
    result = roskva_feed("cat", data)
    assert result.exit_code == BAD_USAGE
    assert "shard-00" in result.output


def test_cat_says_what_it_cannot_read_and_goes_on(feed: Path) -> None:
    flip(segments(feed)[0], FRAMES_AT + 60)
    result = roskva_feed("cat", feed)
    assert result.exit_code == FAILED
    assert "cannot be read" in result.output
    assert "\n8\tapp/thing-2" in result.output


def test_cat_follows_until_ctrl_c(feed: Path) -> None:
    program = f"from roskva.cli.feed import app; app(['cat', {str(feed)!r}, '--follow'])"
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(8):
            process.stdout.readline()
        log = open_log(RealDisk(), str(feed))
        publish(log, 9)
        assert process.stdout.readline().startswith(b"9\t")
        process.send_signal(signal.SIGINT)
        try:
            _, complaints = process.communicate(timeout=30)
        finally:
            process.kill()
    log.close()
    assert (process.returncode, complaints) == (INTERRUPTED, b"")


@pytest.mark.parametrize("command", ["ls", "cat", "verify", "repair"])
def test_a_directory_without_a_feed_is_named(command: str, tmp_path: Path) -> None:
    result = roskva_feed(command, tmp_path / "nothing")
    assert result.exit_code == BAD_USAGE
    assert "there is no feed in" in result.output


def test_verify_is_content_with_a_sound_feed(data: Path) -> None:
    assert roskva_feed("verify", data).exit_code == 0


def test_verify_names_the_damaged_range(data: Path, feed: Path) -> None:
    flip(segments(feed)[0], FRAMES_AT + 60)
    result = roskva_feed("verify", data)
    assert result.exit_code == FAILED
    assert "offsets 1 to" in result.output


def test_verify_tells_a_torn_tail_from_damage(feed: Path) -> None:
    cut_off_writer(feed)
    assert roskva_feed("verify", feed).exit_code == LATER
    flip(feed / "meta", 3)
    assert roskva_feed("verify", feed).exit_code == FAILED


def test_repair_cuts_a_torn_tail_and_says_so(feed: Path) -> None:
    cut_off_writer(feed)
    result = roskva_feed("repair", feed)
    assert result.exit_code == 0
    assert "torn" in result.output
    assert len(contents(LogReader(RealDisk(), str(feed)))) == 9
    assert roskva_feed("verify", feed).exit_code == 0


def test_repair_restores_what_is_kept_twice(feed: Path) -> None:
    before = contents(LogReader(RealDisk(), str(feed)))
    flip(feed / "meta", 3)
    flip(segments(feed)[0], 20)
    assert roskva_feed("repair", feed).exit_code == 0
    assert contents(LogReader(RealDisk(), str(feed))) == before


def test_repair_leaves_a_damaged_frame_where_it_is(feed: Path) -> None:
    flip(segments(feed)[0], FRAMES_AT + 60)
    damaged = segments(feed)[0].read_bytes()
    assert roskva_feed("repair", feed).exit_code == FAILED
    assert segments(feed)[0].read_bytes() == damaged


def test_repair_refuses_while_a_writer_is_alive(feed: Path) -> None:
    log: Log = open_log(RealDisk(), str(feed))
    result = roskva_feed("repair", feed)
    log.close()
    assert result.exit_code == LATER
    assert "a writer is alive" in result.output


@pytest.mark.parametrize("command", ["ls", "cat", "verify", "repair"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    result = roskva_feed(command, "--help")
    assert f"roskva feed {command} " in result.output
