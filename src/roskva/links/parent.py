"""A process and the children it starts.

A child is told what it is on its standard input, which stays open for as long as its parent lives.
When it ends, however the parent died, so does the child: nothing is left behind that holds a port
or a lock.
"""

import os
import pickle
import sys
import threading
from typing import Any, Final

NOT_AGAIN: Final = 78
"""The exit code of a child that would end the same way if it were started again."""
_LENGTH_BYTES: Final = 4


def told(value: object) -> bytes:
    """What a parent writes: plain values, and nothing of its own state."""
    pickled = pickle.dumps(value)
    return len(pickled).to_bytes(_LENGTH_BYTES) + pickled


def hear() -> Any:
    """What the parent has told; from now on this process ends with it."""
    stdin = sys.stdin.buffer
    length = int.from_bytes(stdin.read(_LENGTH_BYTES))
    pickled = stdin.read(length)
    if not pickled or len(pickled) < length:
        sys.exit(1)  # the parent was gone before it could tell
    _end_with_the_parent()
    return pickle.loads(pickled)


def _end_with_the_parent() -> None:
    """On a thread, so that it holds also while the loop is busy.

    It reads the descriptor itself: `sys.stdin` would be locked when the interpreter ends.
    """
    stdin = sys.stdin.fileno()

    def wait() -> None:
        while os.read(stdin, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()
