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

Nearly always a client takes the packet that others get, under the id that was proposed: then there
is little to look at. With thousands of connections, each object that is touched is a cache miss.
"""

from collections.abc import Collection, Iterator
from typing import Final

from roskva.core.effects import Acked, Drained, Event, Handle, Lagging
from roskva.host.delivery import Announcement, Copy, Delivery
from roskva.model import NO_VERSION, Key
from roskva.wire.messages import Notification, ServerMessage
from roskva.wire.mqtt import codes, encode, fields
from roskva.wire.mqtt.codes import V3, V5
from roskva.wire.mqtt.encode import DUP, QOS_1, RETAIN

MAX_ID: Final = 65535
UNKNOWN: Final = b"?"
_NO_PROPERTIES: Final = b"\0"
_VERSION: Final = b"\x26" + fields.string("version")

_AT_MOST_ONCE: Final = 0
_AT_LEAST_ONCE: Final = 1
_NOT_SUBSCRIBED: Final = -1
_THE_LONG_WAY: Final = 1 << 63
_ACK_BYTES: Final = 4
_FEW: Final = 8
"""Up to here, looking through what is in flight is cheaper than an index of it."""

Sent = tuple[Key, int, int]
"""Object, version (−1: unknown), epoch."""


class Notice(Copy):
    """A notification as packets: one under the id that was proposed, or made to measure."""

    __slots__ = ("_once", "_rest", "_topic", "ack", "key", "needs", "sent", "size")

    def __init__(self, topic: bytes, rest: bytes, id: int, sent: Sent) -> None:
        super().__init__(encode.publish(topic, rest, QOS_1, id))
        self.key: Key = sent[0]
        self.sent = sent
        self.size = self.needs = len(self.data)
        """`needs`: that much room, to go the short way."""
        self.ack = puback(id)
        self._topic = topic
        self._rest = rest
        self._once: bytes | None = None

    def packet(self, flags: int, ack: bytes = b"") -> bytes:
        """`ack`: that is to come for it, which has its id; none under QoS 0."""
        return encode.publish(self._topic, self._rest, flags, int.from_bytes(ack[2:]))

    def once(self) -> bytes:
        """For QoS 0."""
        if self._once is None:
            self._once = self.packet(0)
        return self._once

    def shortened(self) -> "Notice":
        """For a client that takes no packet of this size: go and look (MQTT 5 only)."""
        id = int.from_bytes(self.ack[2:])
        return Notice(self._topic, _NO_PROPERTIES + UNKNOWN, id, self.sent)


def puback(id: int) -> bytes:
    """As clients send it."""
    return encode.acknowledge(codes.PUBACK, V3, id)


class PublishEncoder:
    """Encodes for all connections of a process that speak the same version of MQTT. Ids that it
    proposes soon after each other differ."""

    __slots__ = ("_ids", "_last", "version")

    def __init__(self, version: int, ids: int = MAX_ID) -> None:
        self.version = version
        self._ids = ids
        self._last = 0

    def __call__(self, notification: Notification) -> Notice:
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
        self._full: dict[MqttDelivery, None] = {}
        """Those with acks since, which may have room again."""

    def add(self, sent: Sent, by: "MqttDelivery") -> None:
        self.count += 1
        gathered = self._gathered.get(sent)
        if gathered is None:
            self._gathered[sent] = [by]
        else:
            gathered.append(by)

    def hold(self, sent: Sent, by: "MqttDelivery | None" = None) -> bool:
        """Whether somebody has acked it, or this one, and the core is still to hear of it."""
        gathered = self._gathered.get(sent)
        return gathered is not None and (by is None or by in gathered)

    def may_have_room(self, delivery: "MqttDelivery") -> None:
        self.count += 1
        self._full[delivery] = None

    def take(self) -> Iterator[Event]:
        """For the core, one after the other: what it answers to the first may fill a window again,
        and then it must not be told that there is room."""
        gathered, self._gathered = self._gathered, {}
        full, self._full = self._full, {}
        self.count = 0
        if gathered:
            yield Acked(gathered)
        for delivery in full:
            drained = delivery.make_room()
            if drained is not None:
                yield drained


class PacketIds:
    """The acks of a channel that knows neither versions nor epochs. A PUBACK names nothing but the
    id of the packet it answers, so each session remembers what it sent, by the PUBACK that is to
    come for it."""

    __slots__ = ("_lately", "in_flight", "last", "receive_maximum")

    def __init__(self, receive_maximum: int) -> None:
        self.in_flight: dict[bytes, Sent | None] = {}
        """None: taken back, and only the id is still in use."""
        self._lately: set[Sent | None] | None = None
        """While much is in flight: all of it, and perhaps what was before."""
        self.last = 0
        self.receive_maximum = receive_maximum

    def full(self) -> bool:
        return len(self.in_flight) >= self.receive_maximum

    def take(self, proposed: bytes, sent: Sent) -> bytes | None:
        """The ack that is to come for it; None if it is in flight already. Not to be asked when
        full."""
        if self._is_in_flight(sent):
            return None
        ack = proposed if proposed not in self.in_flight else self._free()
        self.in_flight[ack] = sent
        return ack

    def disown(self, keys: Collection[Key]) -> None:
        """Subscribed to anew: what is in flight of these may be sent again, and its acks are void.

        An ack of before would hide that the current version is due again.
        """
        for ack, sent in self.in_flight.items():
            if sent is not None and sent[0] in keys:
                self.in_flight[ack] = None

    def _is_in_flight(self, sent: Sent) -> bool:
        in_flight, lately = self.in_flight, self._lately
        if len(in_flight) <= _FEW:
            self._lately = None
            return sent in in_flight.values()
        if lately is None or len(lately) > 2 * len(in_flight):
            lately = self._lately = set(in_flight.values())
        if sent in lately:
            return sent in in_flight.values()
        lately.add(sent)
        return False

    def _free(self) -> bytes:
        while True:
            self.last = self.last % MAX_ID + 1
            ack = puback(self.last)
            if ack not in self.in_flight:
                return ack


class MqttDelivery(Delivery):
    """Nothing goes out before `begin` and after `end`."""

    __slots__ = (
        *("_acks", "_awaited", "_congested", "_few", "_full", "_ids", "_in_flight", "_looks_up"),
        *("_max_packet", "_resumed", "_room", "_since", "_told", "encode", "granted"),
    )
    channel = "mqtt"

    def __init__(self, encode: PublishEncoder, acks: Acks) -> None:
        super().__init__()
        self.encode = encode
        self._acks = acks
        self._ids = PacketIds(0)
        self._in_flight = self._ids.in_flight
        self._few = 0
        """With fewer in flight, a window has room, and it is cheap to look through them."""
        self._room = 0
        """The size of a packet that may go out on the short way; 0: none may."""
        self.granted: dict[Key, int] = {}
        """QoS by topic. Of a resumed session it fills as topics are told: which they are is in the
        row, but not their QoS, and 1 is the one that loses nothing."""
        self._told: dict[Key, Sent] = {}
        """The last that was sent under QoS 0."""
        self._awaited: dict[Key, bool] = {}
        """Subscriptions to be answered with the current version, or without sending it."""
        self._max_packet = 0
        self._resumed = self._full = False
        self._looks_up = False
        """A topic has QoS 0, or was given up or refused: so topics are looked up, and the short
        way, on which none is, stays closed."""
        self._congested = False
        self._since: int | None = None
        """The first step that the core was told this connection was left out of."""

    def begin(self, receive_maximum: int, max_packet: int, resumed: bool) -> None:
        self._ids.receive_maximum = receive_maximum
        self._few = min(receive_maximum, _FEW)
        self._max_packet = max_packet
        self._resumed = resumed
        if resumed:
            self._set_room()

    def end(self) -> None:
        self._max_packet = self._room = 0

    # Subscriptions.

    def subscribed(self, key: Key, qos: int, send_current: bool) -> None:
        self.granted[key] = min(qos, _AT_LEAST_ONCE)
        if qos == _AT_MOST_ONCE:
            self._look_up()
        self._set_room()
        self._awaited[key] = send_current
        self._told.pop(key, None)

    def subscribed_anew(self, keys: Collection[Key]) -> None:
        """What is in flight of these may be sent again."""
        self._ids.disown(keys)

    def settled(self, key: Key, registered: bool) -> None:
        """The core confirmed or refused it, and has told what was due."""
        self._awaited.pop(key, None)
        if not registered:
            self._look_up()
            self.granted.pop(key, None)

    def unsubscribed(self, key: Key) -> bool:
        """Whether it was subscribed, for all we know."""
        self._look_up()
        self._told.pop(key, None)
        return self.granted.pop(key, None) is not None or self._resumed

    def _look_up(self) -> None:
        self._looks_up = True
        self._set_room()

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
            in_flight = self._in_flight
            if not in_flight or (
                len(in_flight) < self._few
                and notice.ack not in in_flight
                and notice.sent not in in_flight.values()
            ):
                in_flight[notice.ack] = notice.sent
                notice.to.append(self.address)
                return None
        return self._notify(notice, announcement) if self._max_packet else None

    def _copy(self, announcement: Announcement) -> Notice:
        (notification,) = announcement.message.notifications
        notice = announcement.copies[self.encode] = self.encode(notification)
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
        if self._ids.full():
            return self._leave_out(announcement.step)
        ack = self._ids.take(notice.ack, notice.sent)
        if ack == notice.ack and fitting is notice:
            notice.to.append(self.address)
        elif ack is not None:
            announcement.own.append((self.address, fitting.packet(QOS_1, ack)))
        return None

    def tell(
        self, message: ServerMessage
    ) -> tuple[list[tuple[Notification, bytes]], Lagging | None]:
        """To this session alone, the answer to a SUBSCRIBE, or what it had missed: what is to be
        sent, with its packet, and whether something had to be left out."""
        packets, left_out = list[tuple[Notification, bytes]](), None
        for notification in message.notifications:
            packet = self._packet(self.encode(notification))
            if isinstance(packet, Lagging):
                left_out = packet
            elif packet:
                packets.append((notification, packet))
        return packets, left_out

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
        if self._ids.full():
            if send_current:
                self._awaited[key] = True
            return self._leave_out(0)
        ack = self._ids.take(notice.ack, notice.sent)
        return None if ack is None else fitting.packet(QOS_1 | flags, ack)

    def _fitting(self, notice: Notice) -> Notice | None:
        """In the size that the client takes, if there is one."""
        if notice.size > self._max_packet:
            notice = notice.shortened()
        return notice if notice.size <= self._max_packet else None

    def _once(self, notice: Notice, flags: int) -> bytes:
        if self._told.get(notice.key) == notice.sent:
            return b""  # QoS 0 is never acked, so the core says it again and again
        self._told[notice.key] = notice.sent
        return notice.packet(flags) if flags else notice.once()

    def _pass_over(self, notice: Notice) -> None:
        """The client asked not to be sent what there was before it subscribed."""
        if self.granted.get(notice.key) == _AT_LEAST_ONCE:
            self._acks.add(notice.sent, self)
        else:
            self._told[notice.key] = notice.sent

    # What is in flight.

    def acked(self, data: bytes) -> bytes:
        """What arrived, from the beginning of a packet: the PUBACKs at its beginning are taken off,
        as far as they are awaited. What is left of it."""
        sent = self._in_flight.pop(data, None)
        if sent is not None:  # as nearly always
            self._acks.add(sent, self)
            data = b""
        else:
            data = self._acked_several(data)
        if self._full:
            self._acks.may_have_room(self)
        return data

    def _acked_several(self, data: bytes) -> bytes:
        at = 0
        while sent := self._in_flight.pop(data[at : at + _ACK_BYTES], None):
            self._acks.add(sent, self)
            at += _ACK_BYTES
        return data[at:]

    def acked_id(self, id: int) -> None:
        """By a PUBACK of any form."""
        self.acked(puback(id))

    def _set_room(self) -> None:
        self._room = 0 if self._congested or self._looks_up else self._max_packet

    # Lagging.

    def make_room(self) -> Drained | None:
        """After acks: is there room enough again?"""
        if self._full and len(self._in_flight) <= self._ids.receive_maximum // 2:
            self._full = False
            return self._drained()
        return None

    def pause(self) -> Lagging | None:
        """The socket does not drain; what was written still goes out."""
        self._congested = True
        if not self._max_packet:
            return None
        self._set_room()
        return None if self._full else Lagging(self)

    def resume(self) -> Drained | None:
        self._congested = False
        if not self._max_packet:
            return None
        self._set_room()
        return self._drained()

    def _leave_out(self, step: int) -> Lagging | None:
        self._full = self._ids.full()
        if self._since is not None and step >= self._since:
            return None
        self._since = step
        return Lagging(self, step)

    def _drained(self) -> Drained | None:
        if self._full or self._congested:
            return None
        self._since = None
        return Drained(self)
