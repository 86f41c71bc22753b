"""Both disks do the same, and the simulated one breaks exactly as it is told."""

import errno
from pathlib import Path

import pytest

from roskva.disk import Disk, RealDisk, storage_errors, write_whole
from roskva.errors import StorageUnavailable
from roskva.simulation.disk import Fate, PowerCut, SimulatedDisk


@pytest.fixture(params=["real", "simulated"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    monkeypatch.chdir(tmp_path)
    return RealDisk() if request.param == "real" else SimulatedDisk()


@pytest.fixture
def simulated() -> SimulatedDisk:
    return SimulatedDisk()


def content(disk: Disk, path: str) -> bytes:
    return disk.read(path, 0, 1000)


def test_what_is_written_can_be_read_and_mapped(disk: Disk) -> None:
    file = disk.create("a")
    file.write_at(b"hello", 0)
    file.write_at(b"world", 10)
    file.close()
    assert content(disk, "a") == bytes(disk.map("a")[:]) == b"hello\0\0\0\0\0world"
    assert disk.read("a", 12, 2) == b"rl"
    assert disk.size("a") == 15


def test_an_empty_file_can_be_mapped(disk: Disk) -> None:
    disk.create("a").close()
    assert bytes(disk.map("a")[:]) == b""


def test_a_file_is_created_once_and_can_be_opened_again(disk: Disk) -> None:
    disk.create("a").close()
    with pytest.raises(FileExistsError):
        disk.create("a")
    file = disk.open("a")
    file.write_at(b"x", 0)
    file.close()
    assert content(disk, "a") == b"x"


def test_directories_list_files_and_directories(disk: Disk) -> None:
    disk.make_directory("d/e")
    disk.make_directory("d/e")
    disk.create("d/f").close()
    disk.create("d/e/g").close()
    assert disk.list("d") == ["e", "f"]
    assert disk.exists("d/e")
    with pytest.raises(FileNotFoundError):
        disk.list("nothing")


def test_a_rename_replaces_its_target(disk: Disk) -> None:
    write_whole(disk, "a", b"old")
    write_whole(disk, "b", b"new")
    disk.rename("b", "a")
    assert content(disk, "a") == b"new"
    assert not disk.exists("b")


def test_a_mapping_outlives_the_name_of_its_file(disk: Disk) -> None:
    write_whole(disk, "a", b"old")
    mapped = disk.map("a")
    write_whole(disk, "a", b"new")
    disk.remove("a")
    assert bytes(mapped[:]) == b"old"


def test_a_lock_is_held_by_one_and_freed_by_closing(disk: Disk) -> None:
    first = disk.create("a")
    first.lock()
    second = disk.open("a")
    with pytest.raises(BlockingIOError):
        second.lock()
    first.close()
    second.lock()
    second.close()


@pytest.mark.parametrize("path", ["a", "d/a"])
def test_missing_files_are_reported_as_such(disk: Disk, path: str) -> None:
    for call in (disk.open, disk.map, disk.size, disk.remove):
        with pytest.raises(FileNotFoundError):
            call(path)
    assert not disk.exists(path)


@pytest.mark.parametrize(
    ("fate", "found"),
    [
        ("lost", b"synced"),
        ("torn", b"synced--AAAABB"),
        ("zeroed", b"synced--AAAABB\0\0"),
        ("kept", b"synced--AAAABBBB"),
        ("reordered", b"synced\0\0\0\0\0\0BBBB"),
    ],
)
def test_a_power_cut_decides_about_bytes_that_were_not_synced(
    simulated: SimulatedDisk, fate: Fate, found: bytes
) -> None:
    file = simulated.create("a")
    file.write_at(b"synced", 0)
    file.sync()
    simulated.sync_directory("")
    file.write_at(b"--AAAA", 6)
    file.write_at(b"BBBB", 12)
    simulated.crash(fate)
    assert content(simulated, "a") == found


@pytest.mark.parametrize(
    ("fate", "names"),
    [("lost", ["a"]), ("torn", ["b"]), ("kept", ["b", "c"]), ("reordered", ["a", "c"])],
)
def test_a_power_cut_decides_about_names_that_were_not_synced(
    simulated: SimulatedDisk, fate: Fate, names: list[str]
) -> None:
    simulated.create("a")
    simulated.sync_directory("")
    simulated.rename("a", "b")
    simulated.create("c")
    simulated.crash("lost", fate)
    assert simulated.list("") == names


def test_a_renamed_file_may_turn_out_empty(simulated: SimulatedDisk) -> None:
    """The classic: a rename that is durable before the bytes it names."""
    file = simulated.create("a.tmp")
    file.write_at(b"content", 0)
    simulated.rename("a.tmp", "a")
    simulated.crash("lost", "kept")
    assert content(simulated, "a") == b""


def test_the_power_can_be_cut_before_any_step(simulated: SimulatedDisk) -> None:
    write_whole(simulated, "a", b"content")
    assert simulated.steps == len(["create", "write", "sync", "rename", "sync_directory"])
    for step in range(simulated.steps):
        disk = SimulatedDisk()
        disk.cut_before_step = step
        with pytest.raises(PowerCut):
            write_whole(disk, "a", b"content")
        disk.crash()
        assert not disk.exists("a")


def test_files_from_before_the_power_cut_are_dead(simulated: SimulatedDisk) -> None:
    file = simulated.create("a")
    file.lock()
    simulated.crash("kept", "kept")
    with pytest.raises(PowerCut):
        file.write_at(b"x", 0)
    simulated.open("a").lock()


def test_errors_come_as_often_as_they_were_ordered(simulated: SimulatedDisk) -> None:
    file = simulated.create("a")
    simulated.fail("write", errno.EIO, times=2, after=1)
    outcomes = []
    for _ in range(4):
        try:
            file.write_at(b"x", 0)
            outcomes.append(0)
        except OSError as error:
            outcomes.append(error.errno or 0)
    assert outcomes == [0, errno.EIO, errno.EIO, 0]


def test_after_a_failed_sync_the_next_one_stores_nothing_of_it(simulated: SimulatedDisk) -> None:
    file = simulated.create("a")
    simulated.sync_directory("")
    file.write_at(b"x", 0)
    simulated.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync()
    file.sync()
    assert content(simulated, "a") == b"x"
    simulated.crash("kept", "kept")
    assert content(simulated, "a") == b""


def test_a_full_disk_takes_what_fits(simulated: SimulatedDisk) -> None:
    file = simulated.create("a")
    simulated.capacity = 3
    with pytest.raises(OSError, match="No space") as caught:
        file.write_at(b"hello", 0)
    assert caught.value.errno == errno.ENOSPC
    assert content(simulated, "a") == b"hel"
    file.write_at(b"HEL", 0)  # takes no more room
    simulated.heal()
    file.write_at(b"hello", 0)


def test_a_flipped_bit_stays_flipped(simulated: SimulatedDisk) -> None:
    write_whole(simulated, "a", b"\x00\x00")
    simulated.flip("a", 9)
    simulated.crash()
    assert content(simulated, "a") == b"\x00\x02"


def test_a_copy_leads_its_own_life(simulated: SimulatedDisk) -> None:
    write_whole(simulated, "a", b"one")
    copy = simulated.copy()
    write_whole(copy, "a", b"two")
    assert (content(simulated, "a"), content(copy, "a")) == (b"one", b"two")


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EMFILE])
def test_errors_that_may_pass_are_retriable(number: int) -> None:
    with pytest.raises(StorageUnavailable) as caught, storage_errors("writing"):
        raise OSError(number, "no")
    assert caught.value.retriable


def test_errors_that_are_mistakes_are_not_hidden() -> None:
    with pytest.raises(PermissionError), storage_errors("writing"):
        raise PermissionError(errno.EACCES, "no")
