"""What Spark prints, in a file that does not grow without end: `spark.log`, and the one before it,
`spark.log.1`.

The JVM and the workers print to a pipe, and a thread of ours writes that down: so one rule bounds
whatever is printed by whomever. It leaves out what Spark provokes at every start: having planned a
query it hangs up on the worker that did that, and the worker complains.
"""

import os
import threading
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

MAX_BYTES: Final = 1 << 20
_LONGEST_LINE: Final = 1 << 16
_LONGEST_TRACEBACK: Final = 200
_TRACEBACK: Final = b"Traceback (most recent call last):"


class SparkLog:
    def __init__(self, file: Path, max_bytes: int = MAX_BYTES) -> None:
        """`max_bytes`: of each of the two files, about."""
        self._file = file
        self._max_bytes = max_bytes
        self._output = self._open()

    def pipe(self) -> int:
        """The end to print to. What comes is written until all copies of it are closed."""
        read, write = os.pipe()
        writing = threading.Thread(target=self._write_down, args=(read,), name="spark.log")
        writing.daemon = True
        writing.start()
        return write

    def say(self, sentence: str) -> None:
        at = time.strftime("%Y-%m-%d %H:%M:%S")
        self._write(f"{at} roskva: {sentence}\n".encode())

    def _write_down(self, read: int) -> None:
        with os.fdopen(read, "rb") as printed:
            for line in worth_reading(iter(partial(printed.readline, _LONGEST_LINE), b"")):
                self._write(line)
        self._output.close()

    def _write(self, line: bytes) -> None:
        if self._output.tell() and self._output.tell() + len(line) > self._max_bytes:
            self._output.close()
            self._file.replace(self._file.with_name(f"{self._file.name}.1"))
            self._output = self._open()
        self._output.write(line)

    def _open(self) -> BinaryIO:
        return self._file.open("ab", buffering=0)


def worth_reading(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Without tracebacks of workers that Spark has hung up on."""
    held: list[bytes] = []
    for line in lines:
        held.append(line)
        in_traceback = held[0].startswith(_TRACEBACK) and len(held) < _LONGEST_TRACEBACK
        if in_traceback and (len(held) == 1 or line.startswith(b" ")):
            continue
        hung_up = line.startswith(b"BrokenPipeError") and any(b"daemon.py" in at for at in held)
        if not (in_traceback and hung_up):
            yield from held
        held.clear()
    yield from held
