"""What goes to one client: notifications as PUBLISH packets, each at most once while it is there.

One packet serves many. A notification is encoded once per protocol version, with a packet id that
goes round (`Notices`); each session takes it under that id, or, where the id is still in flight,
gets a copy with another. What is in flight is never sent again on the same connection
(`core/packets.py`); of a QoS 0 topic the last thing sent is remembered for the same end.

A client that has as many packets in flight as it takes (Receive Maximum), or whose socket does not
drain, lags: it is left out, and the core tells it the newest versions when it has drained. Being
full is said only when something had to be left out, so that a small window costs nothing as long
as acks keep up.

Nearly always a client has nothing in flight when the next notification comes, or one that it is
about to ack. That way is short, and all it touches is in one object: with thousands of connections,
each object is a cache miss.
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from roskva.channels.base import Copy, Frame, Front, Stream
from roskva.channels.mqtt import encode, fields
from roskva.channels.mqtt.codes import V3
from roskva.channels.mqtt.encode import DUP, QOS_1, RETAIN
from roskva.core.effects import Acked, Drained, Handle, Lagging
from roskva.core.packets import MAX_ID, PacketIds, Sent
from roskva.model import NO_VERSION, Key
from roskva.wire.messages import Notification, ServerMessage

if TYPE_CHECKING:
    from roskva.channels.mqtt.acks import Acks

UNKNOWN: Final = b"?"
_NO_PROPERTIES: Final = b"\0"
_VERSION: Final = b"\x26" + fields.string("version")

NEVER: Final = -1
_AT_MOST_ONCE: Final = 0
_AT_LEAST_ONCE: Final = 1
_NOT_SUBSCRIBED: Final = -1
_UNREAD_ACKS: Final = 2
_THE_LONG_WAY: Final = 1 << 63


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
        """Who has, in this turn of the loop (`Acks.of_notice`)."""
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


class Notices:
    """Encodes for all connections of a process: ids proposed soon after each other differ."""

    def __init__(self) -> None:
        self._last = 0

    def v3(self, message: ServerMessage) -> list[Notice]:
        return [self._notice(n, _payload(n)) for n in message.notifications]

    def v5(self, message: ServerMessage) -> list[Notice]:
        return [self._notice(n, _properties(n) + _payload(n)) for n in message.notifications]

    def _notice(self, notification: Notification, rest: bytes) -> Notice:
        key, version = notification.object, notification.version
        sent = (key, NO_VERSION if version is None else version, notification.epoch)
        self._last = self._last % MAX_ID + 1
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


class Delivery(Stream):
    """What a connection is to the core as far as notifications go; see also `MqttConnection`.

    Nothing goes out before `_begin` and after `_stop`.
    """

    __slots__ = (
        *("_acks_may_wait", "_awaited", "_congested", "_encode", "_full", "_ids", "_looks_up"),
        *("_max_packet", "_newer", "_older", "_receive_maximum", "_resumed", "_room", "_since"),
        *("_told", "acked_in", "acks", "front", "granted"),
    )
    front: Front

    def __init__(self, encode: Callable[[ServerMessage], list[Notice]], acks: "Acks") -> None:
        self.acks = acks
        self._encode = encode
        self._older: Notice | None = None
        self._newer: Notice | None = None
        """What is in flight on the short way: nothing, one, or two in the order they were sent."""
        self.acked_in = NEVER
        """The turn of `acks` in which something on the short way was."""
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
        self._acks_may_wait = False
        """In its socket, if it is busy. Not if it publishes, which would have to wait, too, and not
        if two unread acks fill its window."""
        self._looks_up = False
        """A topic has QoS 0, or was given up: so topics are looked up, and the short way, on which
        none is, stays closed."""
        self._congested = False
        self._since: int | None = None
        """The first step that the core was told this connection was left out of."""

    def _begin(self, receive_maximum: int, max_packet: int, resumed: bool) -> None:
        self._receive_maximum = receive_maximum
        self._max_packet = max_packet
        self._resumed = resumed
        self._acks_may_wait = self.may_wait and receive_maximum > _UNREAD_ACKS
        if resumed:
            self._reopen()

    def _stop(self) -> None:
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

    def _settled(self, key: Key, registered: bool) -> None:
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

    def broadcast(self, frame: Frame) -> None:
        notice: Notice = frame.copies.get(self._encode) or self._copy(frame)
        if notice.needs <= self._room:
            older = self._older
            if older is None:
                self._older = notice
                if self._receive_maximum == 1:
                    self._room = 0
                notice.to.append(self)
                return
            if notice.id != older.id and notice.sent != older.sent:
                self._newer, self._room = notice, 0
                notice.to.append(self)
                return
        older, newer = self._older, self._newer
        # If it is one of the two, the core does not know of its ack, and must not be heeded.
        if older and newer and notice.sent not in (older.sent, newer.sent) and self.hear():
            self.broadcast(frame)
        elif self._max_packet:
            self._broadcast(notice, frame)

    @abstractmethod
    def hear(self) -> bool:
        """What the client has said, straight from its socket, before the transport hears of it:
        whether it was acks of what is in flight on the short way. Anything else is taken in later,
        as this may be called while the core must not be disturbed."""

    @abstractmethod
    def hear_out(self) -> None:
        """All of it, now."""

    def _copy(self, frame: Frame) -> Notice:
        notice = frame.copies[self._encode] = self._encode(frame.message)[0]
        if self.acks.hold(notice.sent):
            notice.needs = _THE_LONG_WAY
        return notice

    def _broadcast(self, notice: Notice, frame: Frame) -> None:
        qos, fitting = self._qos(notice.key), self._fitting(notice)
        if fitting is None or qos == _NOT_SUBSCRIBED or self.acks.hold(notice.sent, self):
            return
        if self._congested:
            self._leave_out(frame.step)
        elif qos == _AT_MOST_ONCE:
            self._write(self._once(fitting, 0))
        elif self._in_flight().full():
            self._leave_out(frame.step)
        else:
            id = self._in_flight().take(notice.id, notice.sent)
            if id == notice.id and fitting is notice:
                notice.to.append(self)
            elif id is not None:
                self.transport.write(fitting.packet(QOS_1, id))

    def _tell(self, notices: Sequence[Notice]) -> None:
        """To this session alone: the answer to a SUBSCRIBE, or what it had missed."""
        self._write(b"".join(map(self._packet, notices)))

    def _packet(self, notice: Notice) -> bytes:
        """To be sent now; or nothing."""
        key = notice.key
        send_current = self._awaited.pop(key, None)
        if send_current is False:
            self._pass_over(notice)
            return b""
        flags = RETAIN if send_current else 0
        if key not in self.granted:
            flags |= DUP  # an earlier connection may have been sent it
        qos, fitting = self._qos(key), self._fitting(notice)
        if fitting is None or qos == _NOT_SUBSCRIBED or self.acks.hold(notice.sent, self):
            return b""
        if qos == _AT_MOST_ONCE:
            return self._once(fitting, flags)
        in_flight = self._in_flight()
        if in_flight.full():
            if send_current:
                self._awaited[key] = True
            self._leave_out(0)
            return b""
        id = in_flight.take(notice.id, notice.sent)
        return b"" if id is None else fitting.packet(QOS_1 | flags, id)

    def _write(self, packets: bytes) -> None:
        if packets:
            self.transport.write(packets)

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
            self.front.step(Acked({notice.sent: [self]}))
        else:
            self._told[notice.key] = notice.sent

    # What is in flight.

    def _take_acks(self, data: bytes) -> bool:
        """Whether they are of what is in flight on the short way, and nothing else."""
        older, newer, acks = self._older, self._newer, self.acks
        if older is None:
            return False
        if data == older.ack:
            self._older, self._newer, self._room = newer, None, self._max_packet
            (older.acked or acks.of_notice(older)).append(self)
            if self.acked_in == acks.turn and self._acks_may_wait:
                acks.in_pairs(self)
            self.acked_in = acks.turn
            return True
        if newer is not None and data == older.ack + newer.ack:
            self._older, self._newer, self._room = None, None, self._max_packet
            (older.acked or acks.of_notice(older)).append(self)
            (newer.acked or acks.of_notice(newer)).append(self)
            self.acked_in = acks.turn
            return True
        return False

    def _in_flight(self) -> PacketIds:
        """The table; from now on the short way is closed, until it is empty."""
        self.acks.one_by_one(self)
        ids = self._ids
        if ids is None:
            ids = self._ids = PacketIds(self._receive_maximum)
        for notice in (self._older, self._newer):
            if notice is not None:
                ids.take(notice.id, notice.sent)
        self._older = self._newer = None
        self._room = 0
        return ids

    def _acked(self, id: int) -> Sent | None:
        sent = self._in_flight().acked(id)
        self._reopen()
        return sent

    def _reopen(self) -> None:
        """The short way, if nothing is in its way."""
        if self._ids is None or not self._ids.in_flight:
            self._ids = None
            self._room = 0 if self._congested or self._looks_up else self._max_packet

    # Lagging.

    def go_on(self) -> None:
        """After acks: is there room enough again?"""
        if self._full and len(self._in_flight().in_flight) <= self._receive_maximum // 2:
            self._full = False
            self._reopen()
            self._say_drained()

    def _leave_out(self, step: int) -> None:
        self._full = self._ids is not None and self._ids.full()
        if self._since is None or step < self._since:
            self._since = step
            self.front.step(Lagging(self, step))

    def pause_writing(self) -> None:
        """The socket does not drain; what was written still goes out."""
        self._congested = True
        if self._max_packet:
            self._in_flight()
            if not self._full:
                self.front.step(Lagging(self))

    def resume_writing(self) -> None:
        self._congested = False
        if self._max_packet:
            self._in_flight()
            self._reopen()
            self._say_drained()

    def _say_drained(self) -> None:
        if not self._full and not self._congested:
            self._since = None
            self.front.step(Drained(self))
