"""Packets from the server to bytes. The two versions differ in properties and reason codes."""

from collections.abc import Sequence
from typing import Final

from roskva.wire.mqtt import fields
from roskva.wire.mqtt.codes import (
    CONNACK,
    DISCONNECT,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    SUBACK,
    UNSUBACK,
    V3_CONNACK,
    V5,
    Reason,
)
from roskva.wire.mqtt.fields import NONE, REASON_STRING, Properties, u16, varint

PINGRESP: Final = b"\xd0\x00"

RETAIN: Final = 0x01
QOS_1: Final = 0x02
DUP: Final = 0x08


def connack(
    version: int, reason: Reason, session_present: bool = False, found: Properties = NONE
) -> bytes:
    if version == V5:
        return _packet(CONNACK, bytes([session_present, reason]) + fields.write_properties(found))
    return _packet(CONNACK, bytes([session_present, V3_CONNACK[reason]]))


def publish(topic: bytes, rest: bytes, flags: int, id: int = 0) -> bytes:
    """`topic` with its length before it; `rest` is the properties, on 5, and the payload."""
    body = topic + u16(id) + rest if flags & QOS_1 else topic + rest
    return bytes((PUBLISH << 4 | flags,)) + varint(len(body)) + body


def puback(version: int, id: int, reason: Reason = Reason.SUCCESS, text: str = "") -> bytes:
    return _answer(PUBACK, version, id, reason, text)


def pubrec(version: int, id: int, reason: Reason = Reason.SUCCESS, text: str = "") -> bytes:
    return _answer(PUBREC, version, id, reason, text)


def pubcomp(version: int, id: int, reason: Reason = Reason.SUCCESS) -> bytes:
    return _answer(PUBCOMP, version, id, reason, "")


def suback(version: int, id: int, codes: Sequence[int]) -> bytes:
    return _packet(SUBACK, u16(id) + (b"\0" if version == V5 else b"") + bytes(codes))


def unsuback(version: int, id: int, codes: Sequence[int]) -> bytes:
    return _packet(UNSUBACK, u16(id) + (b"\0" + bytes(codes) if version == V5 else b""))


def disconnect(reason: Reason, text: str = "") -> bytes:
    """Of 5; on 3.1.1 a server can only hang up."""
    return _packet(DISCONNECT, bytes([reason]) + fields.write_properties(_said(text)))


def _answer(kind: int, version: int, id: int, reason: Reason, text: str) -> bytes:
    if version != V5 or (reason == Reason.SUCCESS and not text):
        return (kind << 28 | 2 << 16 | id).to_bytes(4)
    return _packet(kind, u16(id) + bytes([reason]) + fields.write_properties(_said(text)))


def _said(text: str) -> Properties:
    return {REASON_STRING: text} if text else NONE


def _packet(kind: int, body: bytes) -> bytes:
    return bytes([kind << 4]) + varint(len(body)) + body
