"""What a process takes over of its settings while it runs, when it is told to (SIGHUP).

Apps and their keys, certificates and the admin key are taken over; everything else waits for a
restart, and the log says which of what was changed. Settings with anything wrong in them are
refused as a whole, and so is a change that would leave something open: a node that had keys or TLS
when it started has them until it ends. Whoever can take over something adds a hook; it may still
raise `RoskvaError` and leave all as it was.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from roskva.config import NAMED, Config, Source, exposed, has_keys, read_secret
from roskva.errors import BadConfig, RoskvaError
from roskva.server.tls import check_renewal

_log = logging.getLogger(__name__)
_NAMED: Final = 10
"""So many settings are named in a line."""
Hook = Callable[[Config], None]


class Reloads:
    def __init__(self, source: Source, running: Config) -> None:
        self._source = source
        self._running = running
        self._hooks: dict[str, Hook] = {}

    def add(self, what: str, hook: Hook) -> None:
        self._hooks[what] = hook

    def run(self) -> None:
        found = load_again(self._source, self._running)
        if found is None:
            return
        before, self._running = self._running, found.config
        for what, hook in self._hooks.items():
            try:
                hook(found.config)
            except RoskvaError as error:
                _log.error("%s: the old one stays in use: %s", what, error)
        _log.log(
            logging.WARNING if found.waiting else logging.INFO,
            "the settings were read again: %s",
            "; ".join(_story(_differing(before, found.config), found.waiting)),
        )


class ReadAgain(NamedTuple):
    config: Config
    """That holds from now on."""
    waiting: list[str]
    """Settings that are other ones in the file, and wait for a restart."""


def load_again(source: Source, running: Config) -> ReadAgain | None:
    """None, said loudly, if there is anything wrong with the settings."""
    try:
        read = source.load()
        config = _taken_over(running, read)
    except RoskvaError as error:
        _log.error("the settings are not read again, the old ones stay in use: %s", error)
        return None
    return ReadAgain(config, list(_differing(config, read)))


def _story(taken_over: Iterable[str], waiting: list[str]) -> Iterator[str]:
    changed = list(taken_over)
    if changed or not waiting:
        yield f"in use now: {_some(changed)}" if changed else "none of them has changed"
    if waiting:
        yield f"only after a restart: {_some(waiting)}"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _differing(before: object, after: object, name: str = "") -> Iterator[str]:
    """The names of settings, never their values: some are secrets."""
    if before == after:
        return
    if isinstance(before, msgspec.Struct) and type(before) is type(after):
        for key in before.__struct_fields__:
            yield from _differing(getattr(before, key), getattr(after, key), f"{name}{key}.")
    elif name.removesuffix(".") in NAMED and isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from _differing(before.get(key), after.get(key), f"{name}{key}.")
    else:
        yield name.removesuffix(".")


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
