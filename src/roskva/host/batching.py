"""Pushes that wait for newer ones of the same object: batching, at either end of a link.

A push says what the latest version is, so of two that wait together only the later one goes on.
Whoever comes next has less to do, and clients are told later, by a *window* at most: a fixed one
per app, or with `"auto"` one that follows the load (`Pace`).

What is held of a link goes ahead of anything else that is said of objects on it, and is dropped
when the link breaks: so the order of the link stays as it was.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

import msgspec

from roskva.core.effects import Handle
from roskva.model import Key
from roskva.wire.links import Push

AUTO: Final = "auto"
BatchMs = Callable[[str], int | Literal["auto"]]
"""An app's window. None in its place: nothing waits."""

_FASTEST: Final = 1000.0
_SLOWEST: Final = 10.0
SLOWEST_MS: Final = 1000 / _SLOWEST
_STEP: Final = 50.0


class Pace:
    """Windows per second: halved while there is a backlog, some more whenever there is none. At the
    fastest nothing waits."""

    def __init__(self) -> None:
        self.per_s = _FASTEST

    def next_window_s(self, backlog: bool) -> float:
        self.per_s = max(_SLOWEST, self.per_s / 2) if backlog else self.per_s + _STEP
        if self.per_s >= _FASTEST:
            self.per_s = _FASTEST
            return 0.0
        return 1 / self.per_s


class Window(msgspec.Struct):
    """Of an app: what is held until it closes."""

    closes_at: float
    held: dict[Handle, dict[Key, Push]]


class Batching:
    def __init__(self, batch_ms: BatchMs | None) -> None:
        self.batch_ms = batch_ms
        self.windows: dict[str, Window] = {}
        self.pace = Pace()
        self.replaced = 0
        """Pushes that were held, and overtaken."""

    def next_deadline(self) -> float:
        return min((window.closes_at for window in self.windows.values()), default=math.inf)

    def hold(self, link: Handle, pushes: Sequence[Push], now: float, backlog: bool) -> list[Push]:
        """What need not wait. `backlog`: whoever passes it on is behind."""
        assert self.batch_ms is not None
        at_once: list[Push] = []
        for push in pushes:
            app = push.object.partition("/")[0]
            window = self.windows.get(app)
            if window is None:
                seconds = self._window_s(self.batch_ms(app), backlog)
                if not seconds:
                    at_once.append(push)
                    continue
                window = self.windows[app] = Window(now + seconds, {})
            held = window.held.setdefault(link, {})
            self.replaced += push.object in held
            held[push.object] = push
        return at_once

    def _window_s(self, batch_ms: int | Literal["auto"], backlog: bool) -> float:
        return self.pace.next_window_s(backlog) if batch_ms == AUTO else batch_ms / 1000

    def closed(self, now: float) -> Iterator[tuple[Handle, list[Push]]]:
        """What has waited long enough."""
        for app in [app for app, window in self.windows.items() if now >= window.closes_at]:
            for link, held in self.windows.pop(app).held.items():
                yield link, list(held.values())

    def take(self, link: Handle) -> list[Push]:
        """All that is held of a link."""
        held: list[Push] = []
        for window in self.windows.values():
            held += window.held.pop(link, {}).values()
        return held
