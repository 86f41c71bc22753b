"""What a client publishes, in order: PUBLISH in, an update to the node, then its PUBACK or PUBREC.

Updates of one read go together, and those that arrive while others are being made durable go
together next, so a connection has one call under way and its answers keep their order. What was
received is published also if the connection ends meanwhile.

Of QoS 2 the handshake is kept on a connection: an id that was received is not published again until
it is released. Across connections it is QoS 1.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from roskva.channels.mqtt.terms import FOR_PUBLISHES, reason_of, update_of
from roskva.errors import RoskvaError, Unavailable
from roskva.model import Update
from roskva.wire.mqtt import encode
from roskva.wire.mqtt.codes import PUBACK, PUBCOMP, PUBREC, V5, BadPacket, Reason
from roskva.wire.mqtt.decode import PublishPacket, PubRel, Will

if TYPE_CHECKING:
    from roskva.channels.mqtt.connection import MqttConnection

log = logging.getLogger(__name__)


class ReceivedPublish(msgspec.Struct, eq=False):
    """A PUBLISH to be answered, once its outcome is known: a version, or what is wrong with it."""

    qos: int
    id: int
    update: Update | None = None
    outcome: int | RoskvaError | None = None


class Publishes:
    __slots__ = (
        *("_address", "_arrived", "_conn", "_in_flight", "_logged", "_passing_on"),
        *("_publishing", "_unanswered"),
    )

    def __init__(self, conn: "MqttConnection") -> None:
        self._conn = conn
        self._address = conn.mqtt.addresses.customer(conn.transport)
        self._unanswered: deque[ReceivedPublish] = deque()
        self._in_flight: dict[int, bool] = {}
        """Ids the client may not use anew; whether a PUBREC was sent under them."""
        self._arrived: list[ReceivedPublish] = []
        """And not passed on yet."""
        self._publishing = self._passing_on = False
        self._logged = False

    def receive(self, packet: PublishPacket) -> None:
        if packet.qos == 2 and packet.id in self._in_flight:
            if self._in_flight[packet.id]:
                self._conn.answer(encode.acknowledge(PUBREC, self._conn.version, packet.id))
            return
        if packet.qos:
            self._in_flight[packet.id] = False
            most = self._conn.limits.receive_maximum
            if len(self._in_flight) > most and self._conn.version == V5:
                # On 3.1.1 a client does not know better, and is only read from more slowly.
                text = f"more than {most} publishes in flight"
                raise BadPacket(Reason.RECEIVE_MAXIMUM_EXCEEDED, text)
        self._add(packet.qos, packet.id, packet)

    def will(self, will: Will) -> None:
        self._add(0, 0, will)
        self.pass_on()

    def release(self, packet: PubRel) -> None:
        known = self._in_flight.pop(packet.id, None) is not None
        reason = Reason.SUCCESS if known else Reason.PACKET_ID_NOT_FOUND
        self._conn.answer(encode.acknowledge(PUBCOMP, self._conn.version, packet.id, reason))

    def _add(self, qos: int, id: int, packet: PublishPacket | Will) -> None:
        conn, received = self._conn, ReceivedPublish(qos, id)
        if not self._unanswered:
            conn.mqtt.publishing.add(self)
        self._unanswered.append(received)
        if len(self._unanswered) >= conn.limits.receive_maximum:
            conn.hold(FOR_PUBLISHES)
        self._arrived.append(received)
        try:
            received.update = update_of(packet, conn.front, conn.mqtt.now_us())
        except RoskvaError as error:
            received.outcome = error

    def pass_on(self) -> None:
        """What has arrived, unless others are being published."""
        if self._passing_on:
            return  # the loop below goes on
        self._passing_on = True
        try:
            while self._arrived and not self._publishing:
                arrived, self._arrived = self._arrived, []
                self._publish([received for received in arrived if received.update is not None])
        finally:
            self._passing_on = False

    def _publish(self, batch: list[ReceivedPublish]) -> None:
        updates = [received.update for received in batch if received.update is not None]
        if not updates:
            self._answer()
            return
        self._publishing = True
        front, principal = self._conn.front, self._conn.principal.at(self._address)
        try:
            front.publish(principal, updates, partial(self._settle, batch))
        except Exception:
            log.exception("publishing failed")
            self._settle(batch, Unavailable("try again later"))

    def _settle(
        self, batch: list[ReceivedPublish], outcome: Sequence[int | RoskvaError] | RoskvaError
    ) -> None:
        for i, received in enumerate(batch):
            received.outcome = outcome if isinstance(outcome, RoskvaError) else outcome[i]
        self._answer()
        self._publishing = False
        if self._arrived:
            # Not at once: what has just been told makes a publisher that waits for it go on, and
            # with what it says by the next turn there is one group to commit instead of two.
            asyncio.get_running_loop().call_soon(self.pass_on)

    def _answer(self) -> None:
        """Up to the first that is still open. In one piece: a system call for each would cost more
        than all the rest."""
        conn, unanswered = self._conn, self._unanswered
        packets, come_back = list[bytes](), False
        while unanswered and (outcome := unanswered[0].outcome) is not None:
            received = unanswered.popleft()
            if come_back:
                continue
            if isinstance(outcome, RoskvaError):
                self._count(outcome)
                come_back = conn.version != V5 and received.qos > 0 and outcome.retriable
            if received.qos and not come_back:
                packets.append(self._packet(received, outcome))
        if packets:
            conn.answer(*packets)
        if come_back:
            # It cannot be said, but must not be taken for done: the client comes back with it.
            conn.hang_up(Reason.SERVER_UNAVAILABLE)
        if not unanswered:
            conn.mqtt.all_answered(self)
        if len(unanswered) < conn.limits.receive_maximum:
            conn.release(FOR_PUBLISHES)

    def _packet(self, received: ReceivedPublish, result: int | RoskvaError) -> bytes:
        conn, id = self._conn, received.id
        reason, text = Reason.SUCCESS, ""
        if isinstance(result, RoskvaError):
            reason, text = reason_of(type(result)), conn.explain(str(result))
        if received.qos == 2 and (reason == Reason.SUCCESS or conn.version != V5):
            self._in_flight[id] = True
        else:
            self._in_flight.pop(id, None)
        kind = PUBACK if received.qos == 1 else PUBREC
        return encode.acknowledge(kind, conn.version, id, reason, text)

    def _count(self, error: RoskvaError) -> None:
        """On 3.1.1, and under QoS 0, nobody else hears of it; one line per connection is enough."""
        self._conn.mqtt.counters["ignored_publishes"] += 1
        if not self._logged:
            self._logged = True
            log.info("publish ignored: %s", error.code)
