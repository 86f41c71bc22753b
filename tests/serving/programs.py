"""Programs from elsewhere, as they are: whoever does not have one is told how to get it."""

import os
import queue
import shutil
import signal
import subprocess
import threading
from types import TracebackType
from typing import Self

import pytest

PATIENCE_S = 60.0


def needs(program: str, package: str) -> pytest.MarkDecorator:
    reason = f"there is no {program} here: apt-get install {package}"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


class Program:
    """A running program, its lines one by one; used as a context, which ends it and its children.

    It is asked to stop with SIGTERM unless it is to be killed.
    """

    def __init__(self, *words: str, end: signal.Signals = signal.SIGTERM) -> None:
        self._end = end
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line.rstrip("\n"))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.killpg(self._process.pid, self._end)
        self._process.wait(PATIENCE_S)
        self._reading.join(PATIENCE_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def line(self) -> str:
        return self._lines.get(timeout=PATIENCE_S)

    def is_silent(self) -> bool:
        return self._lines.empty()


def run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=PATIENCE_S)
