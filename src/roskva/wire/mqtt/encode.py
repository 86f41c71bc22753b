"""Packets from the server to bytes. The two versions differ in properties and reason codes."""

from collections.abc import Sequence
from typing import Final

from roskva.wire.mqtt import codes, fields
from roskva.wire.mqtt.codes import V5, Reason
from roskva.wire.mqtt.fields import NONE, REASON_STRING, Properties, u16, varint

PINGRESP: Final = b"\xd0\x00"

RETAIN: Final = 0x01
QOS_1: Final = 0x02
DUP: Final = 0x08


def connack(
    version: int, reason: Reason, session_present: bool = False, found: Properties = NONE
) -> bytes:
    answer = reason if version == V5 else codes.V3_CONNACK[reason]
    more = fields.write_properties(found) if version == V5 else b""
    return _packet(codes.CONNACK, bytes([session_present, answer]) + more)


def publish(topic: bytes, rest: bytes, flags: int, id: int = 0) -> bytes:
    """`topic` with its length before it; `rest` is the properties, on 5, and the payload."""
    body = topic + id.to_bytes(2) + rest if flags & QOS_1 else topic + rest
    return bytes((codes.PUBLISH << 4 | flags,)) + varint(len(body)) + body


def suback(version: int, id: int, reasons: Sequence[int]) -> bytes:
    return _packet(codes.SUBACK, u16(id) + (b"\0" if version == V5 else b"") + bytes(reasons))


def unsuback(version: int, id: int, reasons: Sequence[int]) -> bytes:
    return _packet(codes.UNSUBACK, u16(id) + (b"\0" + bytes(reasons) if version == V5 else b""))


def disconnect(reason: Reason, text: str = "") -> bytes:
    """Of 5; on 3.1.1 a server can only hang up."""
    return _packet(codes.DISCONNECT, bytes([reason]) + fields.write_properties(_said(text)))


def acknowledge(
    kind: int, version: int, id: int, reason: Reason = Reason.SUCCESS, text: str = ""
) -> bytes:
    """PUBACK, PUBREC or PUBCOMP."""
    if version != V5 or (reason == Reason.SUCCESS and not text):
        return (kind << 28 | 2 << 16 | id).to_bytes(4)
    return _packet(kind, u16(id) + bytes([reason]) + fields.write_properties(_said(text)))


def _said(text: str) -> Properties:
    return {REASON_STRING: text} if text else NONE


def _packet(kind: int, body: bytes) -> bytes:
    return bytes([kind << 4]) + varint(len(body)) + body
