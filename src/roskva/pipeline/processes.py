"""The processes of a pipeline: our own, a JVM, and its Python workers."""

import os
import signal
from contextlib import suppress
from pathlib import Path


def ends_at_once(*signals: signal.Signals) -> None:
    """Spark would take seconds to be polite. Our queries lose nothing by being killed, and a node
    that stops should not wait for them."""

    def end(number: int, frame: object) -> None:
        for process in reversed(tree(os.getpid())[1:]):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        os._exit(0)

    for number in signals:
        signal.signal(number, end)


def tree(process: int) -> list[int]:
    """It, its children, theirs, and so on."""
    found = [process]
    for parent in found:
        with suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                children = Path(f"/proc/{parent}/task/{task}/children").read_text().split()
                found.extend(map(int, children))
    return found
