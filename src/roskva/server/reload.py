"""What a process takes over of its settings while it runs, when it is told to (SIGHUP).

Whoever can take over something adds a hook. A hook takes what is its own from the settings as they
are now, or raises `RoskvaError` and leaves everything as it was; the others go on.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable

from roskva.config import Config, Source
from roskva.errors import RoskvaError

_log = logging.getLogger(__name__)
Hook = Callable[[Config], None]


class Reloads:
    def __init__(self, source: Source) -> None:
        self._source = source
        self._hooks: dict[str, Hook] = {}

    def add(self, what: str, hook: Hook) -> None:
        self._hooks[what] = hook

    def run(self) -> None:
        config = load_again(self._source)
        if config is None:
            return
        for what, hook in self._hooks.items():
            try:
                hook(config)
            except RoskvaError as error:
                _log.error("%s: the old one stays in use: %s", what, error)


def load_again(source: Source) -> Config | None:
    """None, said loudly, if there is anything wrong with the settings."""
    try:
        return source.load()
    except RoskvaError as error:
        _log.error("the settings are not read again, the old ones stay in use: %s", error)
        return None


def on_hangup(reload: Callable[[], None], stop: Callable[[], None]) -> None:
    """SIGHUP is how services are told to reload, and also how a terminal says that it is closed."""
    had_terminal = os.isatty(sys.stderr.fileno())

    def hung_up() -> None:
        if had_terminal and not os.isatty(sys.stderr.fileno()):
            stop()
        else:
            reload()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up)
