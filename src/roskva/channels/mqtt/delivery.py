"""What goes to one client: notifications as PUBLISH packets, each at most once while it is there.

One packet serves many. A notification is encoded once per protocol version, with a packet id that
goes round (`Notices`); each session takes it under that id, or, where the id is still in flight,
gets a copy with another. What is in flight is never sent again on the same connection
(`core/packets.py`); of a QoS 0 topic the last thing sent is remembered for the same end.

A client that has as many packets in flight as it takes (Receive Maximum), or whose socket does not
drain, lags: it is left out, and the core tells it the newest versions when it has drained. Being
full is said only when something had to be left out, so that a small window costs nothing as long
as acks keep up.
"""

from typing import TYPE_CHECKING, Final

from roskva.channels.base import Frame
from roskva.channels.mqtt import encode, fields
from roskva.channels.mqtt.encode import DUP, QOS_1, RETAIN
from roskva.core.effects import Acked, Drained, Lagging
from roskva.core.packets import MAX_ID, PacketIds, Sent
from roskva.model import NO_VERSION, Key
from roskva.wire.messages import Notification, ServerMessage

if TYPE_CHECKING:
    from roskva.channels.mqtt.connection import MqttConnection

UNKNOWN: Final = b"?"
_NO_PROPERTIES: Final = b"\0"
_VERSION: Final = b"\x26" + fields.string("version")

_AT_MOST_ONCE: Final = 0
_AT_LEAST_ONCE: Final = 1
_NOT_SUBSCRIBED: Final = -1


class Notice:
    """A notification as packets: `shared` under the id that was proposed, or made to measure."""

    __slots__ = ("_once", "_rest", "_topic", "id", "key", "sent", "shared")

    def __init__(self, topic: bytes, rest: bytes, id: int, sent: Sent) -> None:
        self.key: Key = sent[0]
        self.id = id
        self.sent = sent
        self.shared = encode.publish(topic, rest, QOS_1, id)
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


class Delivery:
    __slots__ = (
        *("_awaited", "_congested", "_max_packet", "_resumed", "_since"),
        *("_step", "_told", "_write", "conn", "full", "granted", "ids"),
    )

    def __init__(
        self, conn: "MqttConnection", receive_maximum: int, max_packet: int, resumed: bool
    ) -> None:
        self.conn = conn
        self._step = conn.front.step
        self._write = conn.transport.write
        self._max_packet = max_packet
        self._resumed = resumed
        self.ids = PacketIds(receive_maximum)
        self.granted: dict[Key, int] = {}
        """QoS by topic. Of a resumed session it fills as topics are told: which they are is in the
        row, but not their QoS, and 1 is the one that loses nothing."""
        self._told: dict[Key, Sent] = {}
        """The last that was sent under QoS 0."""
        self._awaited: dict[Key, bool] = {}
        """Subscriptions to be answered with the current version, or without sending it."""
        self.full = False
        self._congested = False
        self._since: int | None = None
        """The first step that the core was told this connection was left out of."""

    # Subscriptions.

    def subscribed(self, key: Key, qos: int, send_current: bool) -> None:
        self.granted[key] = min(qos, _AT_LEAST_ONCE)
        self._awaited[key] = send_current
        self._told.pop(key, None)

    def settled(self, key: Key, registered: bool) -> None:
        """The core confirmed or refused it, and has told what was due."""
        self._awaited.pop(key, None)
        if not registered:
            self.granted.pop(key, None)

    def unsubscribed(self, key: Key) -> bool:
        """Whether it was subscribed, for all we know."""
        self._told.pop(key, None)
        return self.granted.pop(key, None) is not None or self._resumed

    def _qos(self, key: Key) -> int:
        """Of a topic that was not subscribed on this connection."""
        if not self._resumed:
            return _NOT_SUBSCRIBED
        self.granted[key] = _AT_LEAST_ONCE
        return _AT_LEAST_ONCE

    # Notifications.

    def broadcast(self, notices: list[Notice], frame: Frame) -> None:
        for notice in notices:
            qos = self.granted.get(notice.key)
            if qos is None:
                qos = self._qos(notice.key)
            if len(notice.shared) > self._max_packet:
                notice = notice.shortened()
                if len(notice.shared) > self._max_packet:
                    continue
            if qos == _AT_LEAST_ONCE:
                if self._congested:
                    self._leave_out(frame.step)
                    return
                if self.ids.take_alone(notice.id, notice.sent):
                    frame.to_write(self._write, notice.shared)
                    continue
                if self.ids.full():
                    self._leave_out(frame.step)
                    return
                id = self.ids.take(notice.id, notice.sent)
                if id is not None:
                    shared = id == notice.id
                    frame.to_write(
                        self._write, notice.shared if shared else notice.packet(QOS_1, id)
                    )
            elif qos == _AT_MOST_ONCE:
                if self._congested:
                    self._leave_out(frame.step)
                    return
                self._tell_once(notice, 0)

    def tell(self, notice: Notice) -> None:
        """To this session alone: the answer to a SUBSCRIBE, or what it had missed."""
        key = notice.key
        send_current = self._awaited.pop(key, None)
        if send_current is False:
            self._pass_over(notice)
            return
        flags = RETAIN if send_current else 0
        qos = self.granted.get(key)
        if qos is None:
            qos = self._qos(key)
            flags |= DUP  # an earlier connection may have been sent it
        if len(notice.shared) > self._max_packet:
            notice = notice.shortened()
            if len(notice.shared) > self._max_packet:
                return
        if qos == _AT_MOST_ONCE:
            self._tell_once(notice, flags)
        elif qos == _AT_LEAST_ONCE:
            if self.ids.full():
                if send_current:
                    self._awaited[key] = True
                self._leave_out(0)
                return
            id = self.ids.take(notice.id, notice.sent)
            if id is not None:
                self._write(notice.packet(QOS_1 | flags, id))

    def _tell_once(self, notice: Notice, flags: int) -> None:
        if self._told.get(notice.key) == notice.sent:
            return  # QoS 0 is never acked, so the core says it again and again
        self._told[notice.key] = notice.sent
        self._write(notice.packet(flags, 0) if flags else notice.once())

    def _pass_over(self, notice: Notice) -> None:
        """The client asked not to be sent what there was before it subscribed."""
        if self.granted.get(notice.key) == _AT_LEAST_ONCE:
            self._step(Acked([self.conn], [notice.sent]))
        else:
            self._told[notice.key] = notice.sent

    def go_on(self) -> None:
        """After acks: is there room enough again?"""
        if self.full and self.ids.count() <= self.ids.receive_maximum // 2:
            self.full = False
            self._say_drained()

    # Lagging.

    def _leave_out(self, step: int) -> None:
        self.full = self.ids.full()
        if self._since is None or step < self._since:
            self._since = step
            self._step(Lagging(self.conn, step))

    def pause(self) -> None:
        """The socket does not drain; what was written still goes out."""
        self._congested = True
        if not self.full:
            self._step(Lagging(self.conn))

    def resume(self) -> None:
        self._congested = False
        self._say_drained()

    def _say_drained(self) -> None:
        if not self.full and not self._congested:
            self._since = None
            self._step(Drained(self.conn))
