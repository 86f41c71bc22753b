"""What a process takes over of its settings while it runs, when it is told to (SIGHUP).

Apps and their keys, certificates and the admin key are taken over; everything else waits for a
restart. Settings with anything wrong in them are refused as a whole, and so is a change that would
leave something open: a node that had keys or TLS when it started has them until it ends. Whoever
can take over something adds a hook; it may still raise `RoskvaError` and leave all as it was.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable

import msgspec

from roskva.config import Config, Source, exposed, has_keys, read_secret
from roskva.errors import BadConfig, RoskvaError
from roskva.server.tls import check_renewal

_log = logging.getLogger(__name__)
Hook = Callable[[Config], None]


class Reloads:
    def __init__(self, source: Source, running: Config) -> None:
        self._source = source
        self._running = running
        self._hooks: dict[str, Hook] = {}

    def add(self, what: str, hook: Hook) -> None:
        self._hooks[what] = hook

    def run(self) -> None:
        config = load_again(self._source, self._running)
        if config is None:
            return
        self._running = config
        for what, hook in self._hooks.items():
            try:
                hook(config)
            except RoskvaError as error:
                _log.error("%s: the old one stays in use: %s", what, error)


def load_again(source: Source, running: Config) -> Config | None:
    """None, said loudly, if there is anything wrong with the settings."""
    try:
        return _taken_over(running, source.load())
    except RoskvaError as error:
        _log.error("the settings are not read again, the old ones stay in use: %s", error)
        return None


def _taken_over(running: Config, read: Config) -> Config:
    """What holds from now on, or `BadConfig`."""
    if has_keys(running) != has_keys(read):
        raise BadConfig("whether apps have keys at all changes with a restart only")
    check_renewal(running.tls, read.tls)
    if read.admin.key is not None:
        read_secret("key under [admin]", read.admin.key)
    config = msgspec.structs.replace(
        running,
        defaults=read.defaults,
        apps=read.apps,
        tls=read.tls,
        admin=msgspec.structs.replace(running.admin, key=read.admin.key),
    )
    if not exposed(running) and (problems := exposed(config)):
        raise BadConfig("; ".join(problems))
    return config


def on_hangup(reload: Callable[[], None], stop: Callable[[], None]) -> None:
    """SIGHUP is how services are told to reload, and also how a terminal says that it is closed."""
    had_terminal = os.isatty(sys.stderr.fileno())

    def hung_up() -> None:
        if had_terminal and not os.isatty(sys.stderr.fileno()):
            stop()
        else:
            reload()

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hung_up)
