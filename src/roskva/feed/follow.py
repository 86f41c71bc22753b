"""Waiting until a feed has grown, in whatever process its writer lives."""

import time
from collections.abc import Callable

from roskva.feed.base import FeedReader

_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.02


def wait_for_growth(
    reader: FeedReader,
    after: int,
    timeout_s: float,
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether there is something beyond `after`. Looks at the end word, ever less often."""
    deadline = clock() + timeout_s
    pause = _FIRST_PAUSE_S
    while reader.end() <= after:
        left = deadline - clock()
        if left <= 0:
            return False
        sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return True
