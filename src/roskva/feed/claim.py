"""Who may write: the file `writer-N` is a lock, a number and a fence in one.

To become the writer: lock the newest claim (its owner is dead, or the lock would be refused),
create the claim with the next number, lock that, and remove the older ones. Creation is exclusive,
so two that try at once never get the same number.

To *take over* from a writer that holds its lock but does not answer, skip the first lock. The loser
finds out because **its claim is gone**, and it looks after every sync and before every answer:

    loser                               winner
    1. writes and syncs frames          a. removes the loser's claim
    2. is its claim still there?        b. reads the loser's segment to its end
    3. yes: makes them visible, answers c. puts down where that history ends

If 2 says yes, then 1 happened before a, and b has found the frames. If 2 says no, nobody is told
yes, and whatever was written at or after the end put down in c is nobody's.
"""

from contextlib import suppress

from roskva.disk import Disk, File
from roskva.errors import Fenced
from roskva.feed.base import Locked

_PREFIX = "writer-"


class Claim:
    def __init__(self, disk: Disk, path: str, file: File, number: int) -> None:
        self.number = number
        self._disk = disk
        self._path = path
        self._file = file

    def check(self) -> None:
        if not self._disk.exists(self._path):
            raise Fenced(f"another writer took over from writer {self.number}")

    def release(self) -> None:
        self._file.close()


def take_claim(disk: Disk, directory: str, above: int, takeover: bool) -> Claim:
    """Become the writer, with a number higher than every claim's and than `above`."""
    numbers = claims_in(disk, directory)
    previous = None if takeover or not numbers else _lock(disk, _path(directory, numbers[-1]))
    try:
        if claims_in(disk, directory) != numbers:
            raise Locked(f"another writer is just opening {directory}")
        number = max([above, *numbers]) + 1
        path = _path(directory, number)
        try:
            file = disk.create(path)
        except FileExistsError:
            raise Locked(f"another writer is just opening {directory}") from None
        claim = Claim(disk, path, file, number)
        try:
            file.lock()
            disk.sync_directory(directory)  # or a power cut could give the number out again
            for older in numbers:
                with suppress(FileNotFoundError):
                    disk.remove(_path(directory, older))
        except BaseException:
            claim.release()
            raise
        return claim
    finally:
        if previous is not None:
            previous.close()


def is_claimed(disk: Disk, directory: str) -> bool:
    """Whether a writer is alive."""
    numbers = claims_in(disk, directory)
    if not numbers:
        return False
    try:
        _lock(disk, _path(directory, numbers[-1])).close()
    except Locked:
        return True
    return False


def claims_in(disk: Disk, directory: str) -> list[int]:
    names = (name.removeprefix(_PREFIX) for name in disk.list(directory) if _PREFIX in name)
    return sorted(int(number) for number in names if number.isdigit())


def _lock(disk: Disk, path: str) -> File:
    try:
        file = disk.open(path)
    except FileNotFoundError:
        raise Locked(f"another writer has just removed {path}") from None
    try:
        file.lock()
    except BlockingIOError:
        file.close()
        raise Locked(f"another writer is alive: {path} is locked") from None
    return file


def _path(directory: str, number: int) -> str:
    return f"{directory}/{_PREFIX}{number:06d}"
