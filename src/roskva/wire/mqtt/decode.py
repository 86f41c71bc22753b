"""Bytes from a client to packets. Nothing here does I/O, and nothing but `BadPacket` comes out.

A packet's length is checked as soon as its first bytes are there, so no more than one packet of the
permitted size is ever held; what it holds is checked before it is handed on.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Final

import msgspec

from roskva.wire.mqtt import codes, fields
from roskva.wire.mqtt.codes import V3, V5, BadPacket, Reason
from roskva.wire.mqtt.fields import NONE, Properties, Reader

_PLAIN_PUBLISH: Final = codes.PUBLISH << 4 | 1 << 1
_SHORTEST_PUBLISH: Final = 5


class Will(msgspec.Struct, frozen=True):
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    properties: Properties = NONE

    @property
    def delay(self) -> int:
        """In seconds, before it is published."""
        return fields.number(self.properties, fields.WILL_DELAY, 0)


class ConnectPacket(msgspec.Struct, frozen=True):
    version: int
    client: str
    clean: bool
    keep_alive: int
    will: Will | None = None
    user: str | None = None
    password: bytes | None = None
    properties: Properties = NONE


class PublishPacket(msgspec.Struct, frozen=True):
    topic: str
    payload: bytes
    qos: int = 0
    id: int = 0
    retain: bool = False
    dup: bool = False
    properties: Properties = NONE


class PubAck(msgspec.Struct, frozen=True):
    id: int
    reason: int = Reason.SUCCESS


class PubRel(msgspec.Struct, frozen=True):
    id: int
    reason: int = Reason.SUCCESS


class Filter(msgspec.Struct, frozen=True):
    topic: str
    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(msgspec.Struct, frozen=True):
    id: int
    filters: list[Filter]
    properties: Properties = NONE


class Unsubscribe(msgspec.Struct, frozen=True):
    id: int
    topics: list[str]


class PingReq(msgspec.Struct, frozen=True):
    pass


class DisconnectPacket(msgspec.Struct, frozen=True):
    reason: int = Reason.SUCCESS
    properties: Properties = NONE


Packet = (
    ConnectPacket
    | PublishPacket
    | PubAck
    | PubRel
    | Subscribe
    | Unsubscribe
    | PingReq
    | DisconnectPacket
)


class UnsupportedVersion(BadPacket):
    """Not a version we speak; `level` is what the client asked for."""

    def __init__(self, level: int) -> None:
        super().__init__(Reason.UNSUPPORTED_VERSION, f"protocol level {level}")
        self.level = level


class Decoder:
    """Fed with what arrives; `next` takes the packets off. The first of them sets the version."""

    __slots__ = ("_at", "_data", "max_packet_bytes", "version")

    def __init__(self, max_packet_bytes: int) -> None:
        self.max_packet_bytes = max_packet_bytes
        self.version = V3
        self._data: bytes | bytearray = b""
        """What arrived, as it arrived; a bytearray once a packet came in pieces. That one grows in
        place: a packet sent byte by byte is not copied anew for each of them."""
        self._at = 0

    def feed(self, data: bytes) -> None:
        if self.idle():
            self._data, self._at = data, 0
            return
        if isinstance(self._data, bytes):
            self._data, self._at = bytearray(self._data[self._at :]), 0
        elif self._at:
            del self._data[: self._at]
            self._at = 0
        self._data += data

    def idle(self) -> bool:
        """Nothing is left over."""
        return self._at >= len(self._data)

    def next(self) -> Packet | None:
        header = self._header()
        if header is None:
            return None
        start, end = header
        if end > len(self._data):
            return None
        first, self._at = self._data[self._at], end
        body = bytes(self._data[start:end])
        if end == len(self._data):
            self._data, self._at = b"", 0
        if first == _PLAIN_PUBLISH and self.version == V3:
            packet = _plain_publish(body)
            if packet is not None:
                return packet
        return self._packet(first >> 4, first & 0x0F, body)

    def _header(self) -> tuple[int, int] | None:
        """Where the body begins and ends; None if that is not known yet."""
        data, at = self._data, self._at
        length = 0
        for i in range(4):
            if at + 1 + i >= len(data):
                return None
            byte = data[at + 1 + i]
            length |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                break
        else:
            raise BadPacket(Reason.MALFORMED, "a remaining length of more than four bytes")
        if i and not byte and self.version == V5:
            raise BadPacket(Reason.MALFORMED, "a remaining length longer than needed")
        start = at + 2 + i
        if start - at + length > self.max_packet_bytes:
            raise BadPacket(
                Reason.PACKET_TOO_LARGE, f"more than {self.max_packet_bytes} bytes in a packet"
            )
        return start, start + length

    def _packet(self, kind: int, flags: int, body: bytes) -> Packet:
        reader = Reader(body)
        if kind == codes.PUBLISH:
            return self._publish(flags, reader)
        wanted, read = _KINDS.get(kind, (None, None))
        if read is None or flags != wanted:
            reason = Reason.MALFORMED if kind in _KINDS else Reason.PROTOCOL_ERROR
            raise BadPacket(reason, f"packet type {kind} with flags {flags}")
        packet = read(self, reader)
        reader.done()
        return packet

    def _properties(self, packet: int, reader: Reader) -> Properties:
        return fields.read_properties(reader, packet) if self.version == V5 else NONE

    def _connect(self, reader: Reader) -> ConnectPacket:
        if reader.string() != "MQTT":
            raise UnsupportedVersion(0)
        level = reader.u8()
        if level not in (V3, V5):
            raise UnsupportedVersion(level)
        self.version = level
        flags = reader.u8()
        will_flag, will_qos = flags & 0x04, flags >> 3 & 3
        if flags & 0x01 or will_qos == 3 or (not will_flag and flags & 0x38):
            raise BadPacket(Reason.MALFORMED, f"connect flags 0x{flags:02x}")
        if level == V3 and flags & 0xC0 == 0x40:
            raise BadPacket(Reason.MALFORMED, "a password without a user name")
        keep_alive = reader.u16()
        found = self._properties(codes.CONNECT, reader)
        if fields.AUTHENTICATION_DATA in found and (fields.AUTHENTICATION_METHOD not in found):
            raise BadPacket(Reason.PROTOCOL_ERROR, "authentication data without a method")
        client = reader.string()
        will = self._will(reader, will_qos, bool(flags & 0x20)) if will_flag else None
        user = reader.string() if flags & 0x80 else None
        password = reader.binary() if flags & 0x40 else None
        clean = bool(flags & 0x02)
        return ConnectPacket(level, client, clean, keep_alive, will, user, password, found)

    def _will(self, reader: Reader, qos: int, retain: bool) -> Will:
        found = self._properties(fields.WILL, reader)
        topic = _topic_name(reader)
        if not topic:
            raise BadPacket(Reason.TOPIC_NAME_INVALID, "a will without a topic")
        return Will(topic, reader.binary(), qos, retain, found)

    def _publish(self, flags: int, reader: Reader) -> PublishPacket:
        qos, dup = flags >> 1 & 3, bool(flags & 0x08)
        if qos == 3 or (dup and not qos):
            raise BadPacket(Reason.MALFORMED, f"publish flags {flags}")
        topic = _topic_name(reader)
        id = reader.packet_id() if qos else 0
        found = self._properties(codes.PUBLISH, reader)
        if fields.TOPIC_ALIAS in found:
            raise BadPacket(Reason.TOPIC_ALIAS_INVALID, "topic aliases are not used here")
        if not topic:
            raise BadPacket(Reason.PROTOCOL_ERROR, "a publish without a topic")
        return PublishPacket(topic, reader.rest(), qos, id, bool(flags & 1), dup, found)

    def _acknowledged(self, packet: int, reader: Reader) -> tuple[int, int]:
        id, reason = reader.packet_id(), int(Reason.SUCCESS)
        if self.version == V5 and reader.left():
            reason = reader.u8()
            if reader.left():
                fields.read_properties(reader, packet)
        return id, reason

    def _subscribe(self, reader: Reader) -> Subscribe:
        id = reader.packet_id()
        found = self._properties(codes.SUBSCRIBE, reader)
        if fields.SUBSCRIPTION_ID in found:
            raise BadPacket(
                Reason.SUBSCRIPTION_IDS_NOT_SUPPORTED, "subscription ids are not used here"
            )
        filters: list[Filter] = []
        while reader.left():
            filters.append(self._filter(reader))
        if not filters:
            raise BadPacket(Reason.PROTOCOL_ERROR, "a subscribe without filters")
        return Subscribe(id, filters, found)

    def _filter(self, reader: Reader) -> Filter:
        topic, options = _topic_filter(reader), reader.u8()
        if options & (0xFC if self.version == V3 else 0xC0):
            raise BadPacket(Reason.MALFORMED, f"subscription options 0x{options:02x}")
        qos, no_local, handling = options & 3, bool(options & 0x04), options >> 4
        if qos == 3 or handling == 3 or (no_local and topic.startswith("$share/")):
            raise BadPacket(Reason.PROTOCOL_ERROR, f"subscription options 0x{options:02x}")
        return Filter(topic, qos, no_local, bool(options & 0x08), handling)

    def _unsubscribe(self, reader: Reader) -> Unsubscribe:
        id = reader.packet_id()
        self._properties(codes.UNSUBSCRIBE, reader)
        topics: list[str] = []
        while reader.left():
            topics.append(_topic_filter(reader))
        if not topics:
            raise BadPacket(Reason.PROTOCOL_ERROR, "an unsubscribe without filters")
        return Unsubscribe(id, topics)

    def _disconnect(self, reader: Reader) -> DisconnectPacket:
        if self.version == V3 or not reader.left():
            return DisconnectPacket()
        reason = reader.u8()
        found = fields.read_properties(reader, codes.DISCONNECT) if reader.left() else NONE
        return DisconnectPacket(reason, found)


_KINDS: Final[dict[int, tuple[int, Callable[[Decoder, Reader], Packet]]]] = {
    codes.CONNECT: (0, Decoder._connect),
    codes.PUBACK: (0, lambda decoder, reader: PubAck(*decoder._acknowledged(codes.PUBACK, reader))),
    codes.PUBREL: (2, lambda decoder, reader: PubRel(*decoder._acknowledged(codes.PUBREL, reader))),
    codes.SUBSCRIBE: (2, Decoder._subscribe),
    codes.UNSUBSCRIBE: (2, Decoder._unsubscribe),
    codes.PINGREQ: (0, lambda decoder, reader: PingReq()),
    codes.DISCONNECT: (0, Decoder._disconnect),
}
"""With what flags they come, and how they are read; PUBLISH has flags of its own."""


def _plain_publish(body: bytes) -> PublishPacket | None:
    """Of QoS 1 and without properties, if nothing is wrong with it: the second busiest."""
    if len(body) < _SHORTEST_PUBLISH:
        return None
    end = 2 + (body[0] << 8 | body[1])
    id = int.from_bytes(body[end : end + 2])
    topic = _known_topic(body[2:end])
    if not topic or not id or end + 2 > len(body):
        return None
    return PublishPacket(topic, body[end + 2 :], 1, id)


@lru_cache(maxsize=4096)
def _known_topic(name: bytes) -> str | None:
    """None if it is no name. One and the same string for a topic each time: whoever looks it up
    later need not hash it again."""
    try:
        return _topic_name(Reader(fields.binary(name)))
    except BadPacket:
        return None


def _topic_name(reader: Reader) -> str:
    topic = reader.string()
    if "+" in topic or "#" in topic:
        raise BadPacket(Reason.TOPIC_NAME_INVALID, "a topic name with wildcards")
    return topic


def _topic_filter(reader: Reader) -> str:
    topic = reader.string()
    if not topic:
        raise BadPacket(Reason.PROTOCOL_ERROR, "an empty topic filter")
    return topic
