"""One announcement to many connections, a slice at a time, without I/O.

While a large fan-out is under way, its object may change again. Whoever is still to be served then
gets the newer announcement instead, and comes first: under a stream of updates nobody is left
behind, and nobody is told an older version after a newer one.

Whoever carries this out writes what `broadcast` and `work` answer before it does anything else, and
hands the core what they led to afterwards. In the middle of a slice the core says nothing to
anybody: it could be to somebody who is told an older version after it.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from typing import Final

from roskva.core.effects import Broadcast, Lagging
from roskva.host.delivery import Announcement, Delivery, Write
from roskva.model import Key

SLICE: Final = 1000
"""Deliveries notified before the loop gets its turn."""
MOST_TOGETHER: Final = 250
"""Addresses of one `Write`. The more, the less often Python and the kernel push each other out of
the processor's caches. But the first of them waits until all were notified."""

Outputs = list[Write | Lagging]


class _Wave:
    __slots__ = ("announcement", "deliveries")

    def __init__(self, announcement: Announcement, deliveries: deque[Delivery]) -> None:
        self.announcement = announcement
        self.deliveries = deliveries


class Fanout:
    def __init__(self) -> None:
        self._waves: OrderedDict[Key, list[_Wave]] = OrderedDict()
        """By object, the oldest first. Rarely more than one of an object: a version for some, and
        *unknown* for others."""

    @property
    def pending(self) -> bool:
        """Whether `work` is to be called, before long and again and again."""
        return bool(self._waves)

    def broadcast(self, effect: Broadcast) -> Outputs:
        """At once, if it is few and nobody else is waiting."""
        announcement = Announcement(effect.message, effect.step)
        deliveries: Sequence[Delivery] = effect.conns  # type: ignore[assignment]  # here, they are
        outputs: Outputs = []
        if self._waves or len(deliveries) > SLICE:
            self._add(effect.message.notifications[0].object, announcement, deliveries)
            return outputs
        for at in range(0, len(deliveries), MOST_TOGETHER):
            _notify(deliveries[at : at + MOST_TOGETHER], announcement, outputs)
        return outputs

    def work(self) -> Outputs:
        """The next slice."""
        outputs: Outputs = []
        room = SLICE
        while self._waves and room > 0:
            key, waves = next(iter(self._waves.items()))
            announcement, deliveries = waves[0].announcement, waves[0].deliveries
            while deliveries and room > 0:
                count = min(len(deliveries), room, MOST_TOGETHER)
                _notify([deliveries.popleft() for _ in range(count)], announcement, outputs)
                room -= count
            if not deliveries:
                del waves[0]
            if waves:
                self._waves.move_to_end(key)  # every object gets its turn
            else:
                del self._waves[key]
        return outputs

    def _add(self, key: Key, announcement: Announcement, deliveries: Sequence[Delivery]) -> None:
        waiting = self._waves.setdefault(key, [])
        served = set(deliveries)
        first: list[Delivery] = []
        for wave in waiting:
            first += [each for each in wave.deliveries if each in served]
            wave.deliveries = deque(each for each in wave.deliveries if each not in served)
        early = set(first)
        rest = [each for each in deliveries if each not in early] if early else deliveries
        waiting.append(_Wave(announcement, deque([*first, *rest])))


def _notify(deliveries: Sequence[Delivery], announcement: Announcement, outputs: Outputs) -> None:
    for delivery in deliveries:
        lagging = delivery.notify(announcement)
        if lagging is not None:
            outputs.append(lagging)
    outputs += announcement.writes()
