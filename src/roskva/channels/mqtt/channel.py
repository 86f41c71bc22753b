"""What the MQTT connections of a process share: limits, packet ids, the clock, wills, counters.

What clients ack is gathered and handed to the core as one event: before anything else that a
connection says, at the end of the loop's turn, and whenever it is much, so that whoever carries out
what the core asks for gets a turn among thousands of acks.

The clock is coarse. Connections note the turn in which they last heard something, and are visited
when their patience may be over; nothing is set per packet. A process that was stopped for a while
counts no turns, so its clients are not blamed for it.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from roskva.channels.base import Gateway, Later, ScheduledCall
from roskva.channels.connections import Connections
from roskva.channels.mqtt.connection import MOST_ACKS, MqttConnection
from roskva.channels.mqtt.publishes import Publishes
from roskva.channels.mqtt.terms import MqttLimits
from roskva.channels.peers import Addresses
from roskva.host.mqtt import Acks, PublishEncoder
from roskva.wire.mqtt.codes import V3, V5

_TURN_S: Final = 1.0
_VISITS_AT_ONCE: Final = 500


@dataclass(eq=False)
class MqttChannel:
    """A factory of connections: what `create_server` is given."""

    front: Gateway
    addresses: Addresses
    connections: Connections
    limits: MqttLimits
    later: Later
    now_us: Callable[[], int] = lambda: time.time_ns() // 1000

    def __post_init__(self) -> None:
        self.acks = Acks()
        self.encode_v3, self.encode_v5 = PublishEncoder(V3), PublishEncoder(V5)
        self.taking_acks_soon = False
        self.turn = 0
        self.counters: Counter[str] = Counter()
        self._visits: dict[int, dict[MqttConnection, None]] = {}
        self._timer: ScheduledCall | None = None
        self.publishing: set[Publishes] = set()
        """Those with something to answer."""
        self._closing: asyncio.Future[None] | None = None
        self._wills: dict[bytes, tuple[int, Callable[[], None]]] = {}

    def __call__(self) -> MqttConnection:
        return MqttConnection(self)

    # Acks.

    def acks_gathered(self) -> None:
        """Some, perhaps."""
        count = self.acks.count
        if count >= MOST_ACKS:
            self.take_acks()
        elif count and not self.taking_acks_soon:
            self.taking_acks_soon = True
            self.later(0, self._end_turn)

    def take_acks(self) -> None:
        """Before the core hears of anything else from whoever may be among them."""
        if self.acks.count:
            for event in self.acks.take():
                self.front.step(event)

    def _end_turn(self) -> None:
        self.taking_acks_soon = False
        self.take_acks()

    # Time.

    def visit_later(self, conn: MqttConnection, seconds: float) -> None:
        self.forget(conn)
        conn.visited_in = self._turn_in(seconds)
        self._visits.setdefault(conn.visited_in, {})[conn] = None

    def forget(self, conn: MqttConnection) -> None:
        visits = self._visits.get(conn.visited_in)
        if visits is not None:
            visits.pop(conn, None)
            if not visits:
                del self._visits[conn.visited_in]

    def _turn_in(self, seconds: float) -> int:
        if self._timer is None:
            self._timer = self.later(_TURN_S, self.next_turn)
        return self.turn + max(1, round(seconds / _TURN_S))

    def next_turn(self) -> None:
        self.turn += 1
        self._timer = None
        self._visit(self.turn)
        for client in [c for c, (turn, _) in self._wills.items() if turn <= self.turn]:
            self._wills.pop(client)[1]()
        if self._visits or self._wills:
            self._turn_in(0)

    def _visit(self, turn: int) -> None:
        """A slice: many may have connected in the same second."""
        for conn in list(self._visits.get(turn, ()))[:_VISITS_AT_ONCE]:
            self.forget(conn)
            conn.visit()
        if turn in self._visits:
            self.later(0, partial(self._visit, turn))

    # Publishes.

    def all_answered(self, publishing: Publishes) -> None:
        self.publishing.discard(publishing)
        if not self.publishing and self._closing is not None and not self._closing.done():
            self._closing.set_result(None)

    # Wills that wait: of this process's clients only. Another process does not know of them, and a
    # client that comes back there does not stop its will.

    def will_later(self, client: bytes, seconds: float, publish: Callable[[], None]) -> None:
        if len(self._wills) >= self.limits.max_wills and client not in self._wills:
            self.counters["early_wills"] += 1
            publish()  # rather early than never
            return
        self._wills[client] = (self._turn_in(seconds), publish)

    def client_is_back(self, client: bytes, resumed: bool) -> None:
        """Its will is void if it goes on with its session, and due if it begins a new one."""
        _, publish = self._wills.pop(client, (0, None))
        if publish is not None and not resumed:
            publish()

    async def close(self) -> None:
        """After the connections: what was received is published, wills that wait are dropped."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._wills.clear()
        self._visits.clear()
        if self.publishing:
            self._closing = asyncio.get_running_loop().create_future()
            await self._closing
