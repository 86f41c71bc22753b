"""One frame to many connections, a slice per turn of the loop.

While a large fan-out is under way, its object may change again. Whoever is still to be served then
gets the newer frame instead, and comes first: under a stream of updates nobody is left behind, and
nobody is told an older version after a newer one.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Final

from roskva.channels.base import Connection, Frame
from roskva.channels.writing import MOST_AT_ONCE, writer
from roskva.core.effects import Broadcast
from roskva.model import Key

SLICE: Final = 1000


class _Wave:
    __slots__ = ("conns", "frame")

    def __init__(self, frame: Frame, conns: deque[Connection]) -> None:
        self.frame = frame
        self.conns = conns


class Fanout:
    def __init__(self, work: Callable[[Callable[[], None]], None]) -> None:
        """`work` does what it is given, and keeps the core from saying anything meanwhile: it could
        be to somebody who has a part of a packet, or would be told an older version after it."""
        self._loop = asyncio.get_running_loop()
        self._undisturbed = work
        self._write = writer()
        self._waves: OrderedDict[Key, list[_Wave]] = OrderedDict()
        """By object, the oldest first. Rarely more than one of an object: a version for some, and
        *unknown* for others."""

    def broadcast(self, effect: Broadcast) -> None:
        frame = Frame(effect.message, effect.step)
        conns: Sequence[Connection] = effect.conns  # type: ignore[assignment]  # here, they are
        if self._waves or len(conns) > SLICE:
            self._add(effect.message.notifications[0].object, frame, conns)
            return
        for i in range(0, len(conns), MOST_AT_ONCE):
            for conn in conns[i : i + MOST_AT_ONCE]:
                conn.broadcast(frame)
            frame.flush(self._write)

    def _add(self, key: Key, frame: Frame, conns: Sequence[Connection]) -> None:
        if not self._waves:
            self._loop.call_soon(self._work)
        waiting = self._waves.setdefault(key, [])
        served = set(conns)
        first: list[Connection] = []
        for wave in waiting:
            first += [conn for conn in wave.conns if conn in served]
            wave.conns = deque(conn for conn in wave.conns if conn not in served)
        early = set(first)
        rest = [conn for conn in conns if conn not in early] if early else conns
        waiting.append(_Wave(frame, deque([*first, *rest])))

    def _work(self) -> None:
        self._undisturbed(self._slice)
        if self._waves:
            self._loop.call_soon(self._work)

    def _slice(self) -> None:
        room = SLICE
        while self._waves and room > 0:
            key, waves = next(iter(self._waves.items()))
            wave = waves[0]
            while wave.conns and room > 0:
                wave.conns.popleft().broadcast(wave.frame)
                room -= 1
                if room % MOST_AT_ONCE == 0:
                    wave.frame.flush(self._write)
            wave.frame.flush(self._write)
            if not wave.conns:
                waves.remove(wave)
            if waves:
                self._waves.move_to_end(key)  # every object gets its turn
            else:
                del self._waves[key]
