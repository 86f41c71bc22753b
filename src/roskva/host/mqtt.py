"""What goes to one MQTT client: notifications as PUBLISH packets, each once per connection.

One packet serves many. A notification is encoded once per protocol version, with a packet id that
goes round (`PublishEncoder`); each session takes it under that id, or, where the id is still in
flight, gets a copy with another. What is in flight is never sent again on the same connection, as
the standard demands; of a QoS 0 topic the last thing sent is remembered for the same end. What was
never acked is due again, by the table, after a reconnect.

A client that has as many packets in flight as it takes (Receive Maximum), or whose socket does not
drain, lags: it is left out, and the core tells it the newest versions when it has drained. Being
full is said only when something had to be left out, so that a small window costs nothing as long
as acks keep up.

Nearly always a client has nothing in flight when the next notification comes, or one that it is
about to ack. That way is short, and all it touches is in one object: with thousands of connections,
each object is a cache miss.
"""

from collections.abc import Collection, Iterator
from typing import Final

from roskva.core.effects import Acked, Drained, Event, Handle, Lagging
from roskva.host.delivery import Announcement, Copy, Delivery
from roskva.model import NO_VERSION, Key
from roskva.wire.messages import Notification, ServerMessage
from roskva.wire.mqtt import codes, encode, fields
from roskva.wire.mqtt.codes import V3, V5
from roskva.wire.mqtt.decode import pubacks
from roskva.wire.mqtt.encode import DUP, QOS_1, RETAIN

MAX_ID: Final = 65535
UNKNOWN: Final = b"?"
_NO_PROPERTIES: Final = b"\0"
_VERSION: Final = b"\x26" + fields.string("version")

_AT_MOST_ONCE: Final = 0
_AT_LEAST_ONCE: Final = 1
_NOT_SUBSCRIBED: Final = -1
_THE_LONG_WAY: Final = 1 << 63
_PUBACK: Final = codes.PUBACK << 4
_FEW: Final = 8
"""Up to here, looking through what is in flight is cheaper than an index of it."""

Sent = tuple[Key, int, int]
"""Object, version (−1: unknown), epoch."""


class Notice(Copy):
    """A notification as packets: one under the id that was proposed, or made to measure."""

    __slots__ = ("_once", "_rest", "_topic", "ack", "acked", "id", "key", "needs", "sent", "size")

    def __init__(self, topic: bytes, rest: bytes, id: int, sent: Sent) -> None:
        super().__init__(encode.publish(topic, rest, QOS_1, id))
        self.key: Key = sent[0]
        self.id = id
        self.sent = sent
        self.size = self.needs = len(self.data)
        """`needs`: that much room, to go the short way."""
        self.ack = encode.puback(V3, id)
        """As clients send it."""
        self.acked: list[Handle] | None = None
        """Who has, since the core last heard of acks (`Acks.of_notice`)."""
        self._topic = topic
        self._rest = rest
        self._once: bytes | None = None

    def packet(self, flags: int, id: int) -> bytes:
        return encode.publish(self._topic, self._rest, flags, id)

    def once(self) -> bytes:
        """For QoS 0."""
        if self._once is None:
            self._once = encode.publish(self._topic, self._rest, 0)
        return self._once

    def shortened(self) -> "Notice":
        """For a client that takes no packet of this size: go and look (MQTT 5 only)."""
        return Notice(self._topic, _NO_PROPERTIES + UNKNOWN, self.id, self.sent)


class PublishEncoder:
    """Encodes for all connections of a process that speak the same version of MQTT. Ids that it
    proposes soon after each other differ."""

    __slots__ = ("_ids", "_last", "version")

    def __init__(self, version: int, ids: int = MAX_ID) -> None:
        self.version = version
        self._ids = ids
        self._last = 0

    def __call__(self, message: ServerMessage) -> list[Notice]:
        return [self._notice(notification) for notification in message.notifications]

    def _notice(self, notification: Notification) -> Notice:
        key, version = notification.object, notification.version
        sent = (key, NO_VERSION if version is None else version, notification.epoch)
        self._last = self._last % self._ids + 1
        rest = _payload(notification)
        if self.version == V5:
            rest = _properties(notification) + rest
        return Notice(fields.string(key), rest, self._last, sent)


def _payload(notification: Notification) -> bytes:
    if notification.version is None:
        return UNKNOWN
    if notification.payload is not None:
        return notification.payload
    return b"%d" % notification.version


def _properties(notification: Notification) -> bytes:
    """Beside a payload, the version."""
    if notification.version is None or notification.payload is None:
        return _NO_PROPERTIES
    pair = _VERSION + fields.string(str(notification.version))
    return fields.varint(len(pair)) + pair


class Acks:
    """What clients have acked since the core last heard of acks: of all connections of a process.

    Many of them together are one step of the core, which is what makes them cheap. What has been
    acked is no longer in flight, and until the core hears of it, it may want it told again: so
    deliveries ask whether it is held here.
    """

    __slots__ = ("_full", "_gathered", "_noticed", "count")

    def __init__(self) -> None:
        self.count = 0
        self._gathered: dict[Sent, list[Handle]] = {}
        self._noticed: list[Notice] = []
        """Those among them that have their list at hand."""
        self._full: dict[MqttDelivery, None] = {}
        """Those with acks since, which may have room again."""

    def of(self, sent: Sent) -> list[Handle]:
        """To add a delivery to."""
        return self._gathered.setdefault(sent, [])

    def of_notice(self, notice: Notice) -> list[Handle]:
        acked = notice.acked = self.of(notice.sent)
        self._noticed.append(notice)
        return acked

    def hold(self, sent: Sent, by: "MqttDelivery | None" = None) -> bool:
        """Whether somebody has acked it, or this one, and the core is still to hear of it."""
        gathered = self._gathered.get(sent)
        return gathered is not None and (by is None or by in gathered)

    def may_have_room(self, delivery: "MqttDelivery") -> None:
        self._full[delivery] = None

    def take(self) -> Iterator[Event]:
        """For the core, one after the other: what it answers to the first may fill a window again,
        and then it must not be told that there is room."""
        gathered, self._gathered = self._gathered, {}
        full, self._full = self._full, {}
        self.count = 0
        for notice in self._noticed:
            notice.acked = None
        self._noticed.clear()
        if gathered:
            yield Acked(gathered)
        for delivery in full:
            drained = delivery.make_room()
            if drained is not None:
                yield drained


class PacketIds:
    """The acks of a channel that knows neither versions nor epochs. A PUBACK names nothing but the
    id of the packet it answers, so each session remembers what it sent under each id until that is
    acked."""

    __slots__ = ("_index", "in_flight", "last", "receive_maximum")

    def __init__(self, receive_maximum: int) -> None:
        self.in_flight: dict[int, Sent | None] = {}
        """None: taken back, and only the id is still in use."""
        self._index: set[Sent | None] | None = None
        """What is in flight, while that is much."""
        self.last = 0
        self.receive_maximum = receive_maximum

    def full(self) -> bool:
        return len(self.in_flight) >= self.receive_maximum

    def take(self, proposed: int, sent: Sent) -> int | None:
        """The id to send this under; None if it is in flight already. Not to be asked when full."""
        if self.in_flight and self._is_in_flight(sent):
            return None
        id = proposed if proposed not in self.in_flight else self._free_id()
        self.in_flight[id] = sent
        if self._index is not None:
            self._index.add(sent)
        return id

    def acked(self, id: int) -> Sent | None:
        sent = self.in_flight.pop(id, None)
        if self._index is not None:
            self._index.discard(sent)
            if len(self.in_flight) <= _FEW:
                self._index = None
        return sent

    def disown(self, keys: Collection[Key]) -> None:
        """Subscribed to anew: what is in flight of these may be sent again, and its acks are void.

        An ack of before would hide that the current version is due again.
        """
        for id, sent in self.in_flight.items():
            if sent is not None and sent[0] in keys:
                self.in_flight[id] = None
        self._index = None

    def _is_in_flight(self, sent: Sent) -> bool:
        if self._index is None:
            if len(self.in_flight) <= _FEW:
                return sent in self.in_flight.values()
            self._index = set(self.in_flight.values())
        return sent in self._index

    def _free_id(self) -> int:
        while True:
            self.last = self.last % MAX_ID + 1
            if self.last not in self.in_flight:
                return self.last


class MqttDelivery(Delivery):
    """Nothing goes out before `begin` and after `end`."""

    __slots__ = (
        *("_acks", "_awaited", "_congested", "_full", "_ids", "_looks_up", "_max_packet", "_newer"),
        *("_older", "_receive_maximum", "_resumed", "_room", "_since", "_told", "encode"),
        "granted",
    )
    channel = "mqtt"

    def __init__(self, encode: PublishEncoder, acks: Acks) -> None:
        super().__init__()
        self.encode = encode
        self._acks = acks
        self._older: Notice | None = None
        self._newer: Notice | None = None
        """What is in flight on the short way: nothing, one, or two in the order they were sent."""
        self._ids: PacketIds | None = None
        """What is in flight otherwise."""
        self._room = 0
        """The size of a packet that may go out on the short way; 0: none may."""
        self.granted: dict[Key, int] = {}
        """QoS by topic. Of a resumed session it fills as topics are told: which they are is in the
        row, but not their QoS, and 1 is the one that loses nothing."""
        self._told: dict[Key, Sent] = {}
        """The last that was sent under QoS 0."""
        self._awaited: dict[Key, bool] = {}
        """Subscriptions to be answered with the current version, or without sending it."""
        self._receive_maximum = self._max_packet = 0
        self._resumed = self._full = False
        self._looks_up = False
        """A topic has QoS 0, or was given up: so topics are looked up, and the short way, on which
        none is, stays closed."""
        self._congested = False
        self._since: int | None = None
        """The first step that the core was told this connection was left out of."""

    def begin(self, receive_maximum: int, max_packet: int, resumed: bool) -> None:
        self._receive_maximum = receive_maximum
        self._max_packet = max_packet
        self._resumed = resumed
        if resumed:
            self._reopen()

    def end(self) -> None:
        self._max_packet = self._room = 0

    # Subscriptions.

    def subscribed(self, key: Key, qos: int, send_current: bool) -> None:
        self.granted[key] = min(qos, _AT_LEAST_ONCE)
        if qos == _AT_MOST_ONCE:
            self._looks_up = True
            self._in_flight()
        elif self._older is None:
            self._reopen()
        self._awaited[key] = send_current
        self._told.pop(key, None)

    def subscribed_anew(self, keys: Collection[Key]) -> None:
        """What is in flight of these may be sent again."""
        if keys:
            self._in_flight().disown(keys)

    def settled(self, key: Key, registered: bool) -> None:
        """The core confirmed or refused it, and has told what was due."""
        self._awaited.pop(key, None)
        if not registered:
            self.granted.pop(key, None)

    def unsubscribed(self, key: Key) -> bool:
        """Whether it was subscribed, for all we know."""
        self._looks_up = True
        self._in_flight()
        self._told.pop(key, None)
        return self.granted.pop(key, None) is not None or self._resumed

    def _qos(self, key: Key) -> int:
        qos = self.granted.get(key)
        if qos is None:
            qos = _NOT_SUBSCRIBED
            if self._resumed:
                qos = self.granted[key] = _AT_LEAST_ONCE
        return qos

    # Notifications.

    def notify(self, announcement: Announcement) -> Lagging | None:
        notice: Notice = announcement.copies.get(self.encode) or self._copy(announcement)
        if notice.needs <= self._room:
            older = self._older
            if older is None:
                self._older = notice
                if self._receive_maximum == 1:
                    self._room = 0
                notice.to.append(self.address)
                return None
            if notice.id != older.id and notice.sent != older.sent:
                self._newer, self._room = notice, 0
                notice.to.append(self.address)
                return None
        return self._notify(notice, announcement) if self._max_packet else None

    def _copy(self, announcement: Announcement) -> Notice:
        notice = announcement.copies[self.encode] = self.encode(announcement.message)[0]
        if self._acks.hold(notice.sent):
            notice.needs = _THE_LONG_WAY
        return notice

    def _notify(self, notice: Notice, announcement: Announcement) -> Lagging | None:
        """The long way."""
        qos, fitting = self._qos(notice.key), self._fitting(notice)
        if fitting is None or qos == _NOT_SUBSCRIBED or self._acks.hold(notice.sent, self):
            return None
        if self._congested:
            return self._leave_out(announcement.step)
        if qos == _AT_MOST_ONCE:
            packet = self._once(fitting, 0)
            if packet:
                announcement.own.append((self.address, packet))
            return None
        in_flight = self._in_flight()
        if in_flight.full():
            return self._leave_out(announcement.step)
        id = in_flight.take(notice.id, notice.sent)
        if id == notice.id and fitting is notice:
            notice.to.append(self.address)
        elif id is not None:
            announcement.own.append((self.address, fitting.packet(QOS_1, id)))
        return None

    def tell(self, message: ServerMessage) -> tuple[bytes, Lagging | None]:
        """To this session alone, the answer to a SUBSCRIBE, or what it had missed: the packets, and
        whether something had to be left out."""
        packets, left_out = list[bytes](), None
        for notice in self.encode(message):
            packet = self._packet(notice)
            if isinstance(packet, bytes):
                packets.append(packet)
            else:
                left_out = packet or left_out
        return b"".join(packets), left_out

    def _packet(self, notice: Notice) -> bytes | Lagging | None:
        """To be sent now; or that it is left out; or nothing, if it need not be sent."""
        key = notice.key
        send_current = self._awaited.pop(key, None)
        if send_current is False:
            self._pass_over(notice)
            return None
        flags = RETAIN if send_current else 0
        if key not in self.granted:
            flags |= DUP  # an earlier connection may have been sent it
        qos, fitting = self._qos(key), self._fitting(notice)
        if fitting is None or qos == _NOT_SUBSCRIBED or self._acks.hold(notice.sent, self):
            return None
        if qos == _AT_MOST_ONCE:
            return self._once(fitting, flags)
        in_flight = self._in_flight()
        if in_flight.full():
            if send_current:
                self._awaited[key] = True
            return self._leave_out(0)
        id = in_flight.take(notice.id, notice.sent)
        return None if id is None else fitting.packet(QOS_1 | flags, id)

    def _fitting(self, notice: Notice) -> Notice | None:
        """In the size that the client takes, if there is one."""
        if notice.size > self._max_packet:
            notice = notice.shortened()
        return notice if notice.size <= self._max_packet else None

    def _once(self, notice: Notice, flags: int) -> bytes:
        if self._told.get(notice.key) == notice.sent:
            return b""  # QoS 0 is never acked, so the core says it again and again
        self._told[notice.key] = notice.sent
        return notice.packet(flags, 0) if flags else notice.once()

    def _pass_over(self, notice: Notice) -> None:
        """The client asked not to be sent what there was before it subscribed."""
        if self.granted.get(notice.key) == _AT_LEAST_ONCE:
            self._acks.of(notice.sent).append(self)
            self._acks.count += 1
        else:
            self._told[notice.key] = notice.sent

    # What is in flight.

    def acked(self, data: bytes) -> int:
        """What arrived: how many acks are gathered with it; 0, and nothing was done, if it is
        anything but PUBACKs in their short form."""
        older, acks = self._older, self._acks
        if older is not None:
            newer = self._newer
            if data == older.ack:
                self._older, self._newer, self._room = newer, None, self._max_packet
                (older.acked or acks.of_notice(older)).append(self)
                acks.count += 1
                return acks.count
            if newer is not None and data == older.ack + newer.ack:
                self._older, self._newer, self._room = None, None, self._max_packet
                (older.acked or acks.of_notice(older)).append(self)
                (newer.acked or acks.of_notice(newer)).append(self)
                acks.count += 2
                return acks.count
        ids = pubacks(data) if data[0] == _PUBACK else None
        if ids is None:
            return 0
        for id in ids:
            self.acked_id(id)
        return acks.count

    def acked_id(self, id: int) -> None:
        acks = self._acks
        sent = self._in_flight().acked(id)
        self._reopen()
        if sent is not None:
            acks.of(sent).append(self)
        if self._full:
            acks.may_have_room(self)
        acks.count += 1

    def _in_flight(self) -> PacketIds:
        """The table; from now on the short way is closed, until it is empty."""
        ids = self._ids
        if ids is None:
            ids = self._ids = PacketIds(self._receive_maximum)
        for notice in (self._older, self._newer):
            if notice is not None:
                ids.take(notice.id, notice.sent)
        self._older = self._newer = None
        self._room = 0
        return ids

    def _reopen(self) -> None:
        """The short way, if nothing is in its way."""
        if self._ids is None or not self._ids.in_flight:
            self._ids = None
            self._room = 0 if self._congested or self._looks_up else self._max_packet

    # Lagging.

    def make_room(self) -> Drained | None:
        """After acks: is there room enough again?"""
        if self._full and len(self._in_flight().in_flight) <= self._receive_maximum // 2:
            self._full = False
            self._reopen()
            return self._drained()
        return None

    def pause(self) -> Lagging | None:
        """The socket does not drain; what was written still goes out."""
        self._congested = True
        if not self._max_packet:
            return None
        self._in_flight()
        return None if self._full else Lagging(self)

    def resume(self) -> Drained | None:
        self._congested = False
        if not self._max_packet:
            return None
        self._in_flight()
        self._reopen()
        return self._drained()

    def _leave_out(self, step: int) -> Lagging | None:
        self._full = self._ids is not None and self._ids.full()
        if self._since is not None and step >= self._since:
            return None
        self._since = step
        return Lagging(self, step)

    def _drained(self) -> Drained | None:
        if self._full or self._congested:
            return None
        self._since = None
        return Drained(self)
