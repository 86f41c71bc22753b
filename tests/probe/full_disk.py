"""`roskva` with a disk under its feeds that is full as long as the file FULL_WHILE exists.

python -m tests.probe.full_disk serve …
"""

import errno
import os

from roskva import disk
from roskva.cli.main import main


class FullFile(disk.RealFile):
    __slots__ = ()

    def write_at(self, data: bytes, position: int) -> None:
        if os.path.exists(os.environ["FULL_WHILE"]):
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_at(data, position)


if __name__ == "__main__":
    disk.RealFile = FullFile  # type: ignore[misc]
    main()
