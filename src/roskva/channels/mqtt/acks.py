"""Acks: how they reach the core, and when those of busy clients are read.

All that are read in one turn of the loop are one step of the core. What has been acked is no longer
in flight, so the core must not go on telling before it has heard of it.

A client that acks twice within 40 ms is busy. From then on its acks no longer wake us: they are
read in pairs, straight before it is told the next but one. When it is left in peace for a while, or
does not ack in time, each wakes us as before.
"""

import asyncio
from typing import Final

from roskva.channels.base import Front
from roskva.channels.mqtt.delivery import Delivery, Notice
from roskva.core.effects import Acked, Handle
from roskva.core.packets import Sent

ONE_BYTE: Final = 1
MORE_THAN_TWO_ACKS: Final = 9
"""In bytes. What else is shorter waits with them: a PINGREQ, and a PUBREL or a PUBLISH of a few
letters, which is why clients that publish are never busy."""
TURN_S: Final = 0.04
_TURNS_IN_PEACE: Final = 2
_LOOKS_AT_ONCE: Final = 500


class Acks:
    """Of all MQTT connections of a process."""

    def __init__(self, front: Front) -> None:
        self._front = front
        self._gathered: dict[Sent, list[Handle]] = {}
        """What was acked in this turn of the loop, and by whom."""
        self._noticed: list[Notice] = []
        """Those among them that hold their list."""
        self._full: dict[Delivery, None] = {}
        """Those with acks since, which may have room again."""
        self._busy: dict[Delivery, None] = {}
        self.turn = 0
        """Goes up while acks come."""
        self._timer: asyncio.Handle | None = None
        front.call_first(self.take)

    def of(self, sent: Sent) -> list[Handle]:
        """To add a connection to."""
        self._take_soon()
        return self._gathered.setdefault(sent, [])

    def of_notice(self, notice: Notice) -> list[Handle]:
        acked = notice.acked = self.of(notice.sent)
        self._noticed.append(notice)
        return acked

    def hold(self, sent: Sent, conn: Delivery | None = None) -> bool:
        """Whether somebody has acked it, or this one, and the core is still to hear of it."""
        gathered = self._gathered.get(sent)
        return gathered is not None and (conn is None or conn in gathered)

    def may_have_room(self, conn: Delivery) -> None:
        """Again: it has acked something since it was full."""
        self._take_soon()
        self._full[conn] = None

    def _take_soon(self) -> None:
        if not self._gathered and not self._full:
            loop = asyncio.get_running_loop()
            loop.call_soon(self.take)
            if self._timer is None:
                self._timer = loop.call_later(TURN_S, self._next_turn)

    def take(self) -> None:
        if not self._gathered and not self._full:
            return
        acks, self._gathered = self._gathered, {}
        full, self._full = self._full, {}  # both now: a step asks for what was gathered meanwhile
        for notice in self._noticed:
            notice.acked = None
        self._noticed.clear()
        if acks:
            self._front.step(Acked(acks))
        for conn in full:
            conn.go_on()

    # Busy clients.

    def hear_all(self) -> None:
        """Before they are sent away."""
        for conn in list(self._busy):
            conn.hear_out()
        self.take()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def in_pairs(self, conn: Delivery) -> None:
        """From now on."""
        if conn not in self._busy:
            self._busy[conn] = None
            conn.wake_for(MORE_THAN_TWO_ACKS)

    def one_by_one(self, conn: Delivery) -> None:
        """Again."""
        if conn in self._busy:
            del self._busy[conn]
            conn.wake_for(ONE_BYTE)

    def _next_turn(self) -> None:
        self.turn += 1
        self._look(list(self._busy))

    def _look(self, at: list[Delivery]) -> None:
        """A slice: it may be many at once."""
        for conn in at[-_LOOKS_AT_ONCE:]:
            if conn.acked_in < self.turn - _TURNS_IN_PEACE:
                self.one_by_one(conn)
        del at[-_LOOKS_AT_ONCE:]
        loop = asyncio.get_running_loop()
        if at:
            self._timer = loop.call_soon(self._look, at)
        elif self._busy:
            self._timer = loop.call_later(TURN_S, self._next_turn)
        else:
            self._timer = None
