"""The data types of the standard (integers, strings, binary data), and the properties of MQTT 5.

A packet's properties are a dictionary from id to value. User properties may come more than once
and are a list of pairs; anything else that comes twice is a protocol error.
"""

from collections.abc import Callable, Mapping
from typing import Final

from roskva.wire.mqtt import codes
from roskva.wire.mqtt.codes import BadPacket, Reason


class Reader:
    """Takes fields off the front of a packet's body; whatever is wrong is a `BadPacket`."""

    __slots__ = ("_at", "_body", "_end")

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0
        self._end = len(body)

    def left(self) -> int:
        return self._end - self._at

    def take(self, count: int) -> bytes:
        at, end = self._at, self._at + count
        if end > self._end:
            raise BadPacket(Reason.MALFORMED, "the packet ends in the middle of a field")
        self._at = end
        return self._body[at:end]

    def rest(self) -> bytes:
        return self.take(self.left())

    def u8(self) -> int:
        return self.take(1)[0]

    def u16(self) -> int:
        return int.from_bytes(self.take(2))

    def u32(self) -> int:
        return int.from_bytes(self.take(4))

    def varint(self) -> int:
        value = 0
        for i in range(4):
            byte = self.u8()
            value |= (byte & 0x7F) << 7 * i
            if byte < 0x80:
                if i and not byte:
                    raise BadPacket(Reason.MALFORMED, "a variable integer longer than needed")
                return value
        raise BadPacket(Reason.MALFORMED, "a variable integer of more than four bytes")

    def binary(self) -> bytes:
        return self.take(self.u16())

    def string(self) -> str:
        try:
            text = self.binary().decode()
        except UnicodeDecodeError:
            raise BadPacket(Reason.MALFORMED, "a string that is not UTF-8") from None
        if "\0" in text:
            raise BadPacket(Reason.MALFORMED, "a string with U+0000 in it")
        return text

    def packet_id(self) -> int:
        id = self.u16()
        if not id:
            raise BadPacket(Reason.PROTOCOL_ERROR, "packet id 0")
        return id

    def part(self, count: int) -> "Reader":
        return Reader(self.take(count))

    def done(self) -> None:
        if self.left():
            raise BadPacket(Reason.MALFORMED, "more bytes than the packet has fields")


def u8(value: int) -> bytes:
    return bytes((value,))


def u16(value: int) -> bytes:
    return value.to_bytes(2)


def u32(value: int) -> bytes:
    return value.to_bytes(4)


def varint(value: int) -> bytes:
    if value <= 0x7F:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2) + data


def binary(data: bytes) -> bytes:
    return len(data).to_bytes(2) + data


# Properties: which there are, where they may stand, what they hold.

Value = int | str | bytes | list[tuple[str, str]]
Properties = Mapping[int, Value]
NONE: Final[Properties] = {}

PAYLOAD_FORMAT: Final = 0x01
MESSAGE_EXPIRY: Final = 0x02
CONTENT_TYPE: Final = 0x03
RESPONSE_TOPIC: Final = 0x08
CORRELATION_DATA: Final = 0x09
SUBSCRIPTION_ID: Final = 0x0B
SESSION_EXPIRY: Final = 0x11
ASSIGNED_CLIENT_ID: Final = 0x12
SERVER_KEEP_ALIVE: Final = 0x13
AUTHENTICATION_METHOD: Final = 0x15
AUTHENTICATION_DATA: Final = 0x16
REQUEST_PROBLEM_INFORMATION: Final = 0x17
WILL_DELAY: Final = 0x18
REQUEST_RESPONSE_INFORMATION: Final = 0x19
REASON_STRING: Final = 0x1F
RECEIVE_MAXIMUM: Final = 0x21
TOPIC_ALIAS_MAXIMUM: Final = 0x22
TOPIC_ALIAS: Final = 0x23
USER_PROPERTY: Final = 0x26
MAXIMUM_PACKET_SIZE: Final = 0x27
WILDCARDS_AVAILABLE: Final = 0x28
SUBSCRIPTION_IDS_AVAILABLE: Final = 0x29
SHARED_AVAILABLE: Final = 0x2A

MAX_USER_PROPERTIES: Final = 100
"""In one list of properties: each takes far more memory and time than bytes on the wire."""

WILL: Final = 0
"""Not a packet, but with properties of its own."""

_ALLOWED: Final = {
    codes.CONNECT: {
        *(SESSION_EXPIRY, RECEIVE_MAXIMUM, MAXIMUM_PACKET_SIZE, TOPIC_ALIAS_MAXIMUM),
        *(REQUEST_RESPONSE_INFORMATION, REQUEST_PROBLEM_INFORMATION, USER_PROPERTY),
        *(AUTHENTICATION_METHOD, AUTHENTICATION_DATA),
    },
    WILL: {
        *(WILL_DELAY, PAYLOAD_FORMAT, MESSAGE_EXPIRY, CONTENT_TYPE, RESPONSE_TOPIC),
        *(CORRELATION_DATA, USER_PROPERTY),
    },
    codes.PUBLISH: {
        *(PAYLOAD_FORMAT, MESSAGE_EXPIRY, TOPIC_ALIAS, RESPONSE_TOPIC, CORRELATION_DATA),
        *(USER_PROPERTY, CONTENT_TYPE),
    },
    codes.PUBACK: {REASON_STRING, USER_PROPERTY},
    codes.PUBREL: {REASON_STRING, USER_PROPERTY},
    codes.SUBSCRIBE: {SUBSCRIPTION_ID, USER_PROPERTY},
    codes.UNSUBSCRIBE: {USER_PROPERTY},
    codes.DISCONNECT: {SESSION_EXPIRY, REASON_STRING, USER_PROPERTY},
}
"""In what clients send. A subscription id in their PUBLISH is a protocol error of its own."""

_YES_OR_NO: Final = (PAYLOAD_FORMAT, REQUEST_PROBLEM_INFORMATION, REQUEST_RESPONSE_INFORMATION)
_NEVER_ZERO: Final = (RECEIVE_MAXIMUM, MAXIMUM_PACKET_SIZE, SUBSCRIPTION_ID)
_AVAILABLE: Final = (WILDCARDS_AVAILABLE, SUBSCRIPTION_IDS_AVAILABLE, SHARED_AVAILABLE)
_U16: Final = (SERVER_KEEP_ALIVE, RECEIVE_MAXIMUM, TOPIC_ALIAS_MAXIMUM, TOPIC_ALIAS)
_U32: Final = (MESSAGE_EXPIRY, SESSION_EXPIRY, WILL_DELAY, MAXIMUM_PACKET_SIZE)
_TEXT: Final = (CONTENT_TYPE, RESPONSE_TOPIC, ASSIGNED_CLIENT_ID, REASON_STRING)
_FORMS: Final[dict[int, tuple[Callable[[Reader], Value], Callable[..., bytes]]]] = {
    **dict.fromkeys((*_YES_OR_NO, *_AVAILABLE), (Reader.u8, u8)),
    **dict.fromkeys(_U16, (Reader.u16, u16)),
    **dict.fromkeys(_U32, (Reader.u32, u32)),
    **dict.fromkeys((*_TEXT, AUTHENTICATION_METHOD), (Reader.string, string)),
    **dict.fromkeys((CORRELATION_DATA, AUTHENTICATION_DATA), (Reader.binary, binary)),
    SUBSCRIPTION_ID: (Reader.varint, varint),
}
"""How each is read and written."""


def read_properties(reader: Reader, packet: int) -> Properties:
    length = reader.varint()
    if not length:
        return NONE
    part, found = reader.part(length), dict[int, Value]()
    while part.left():
        id = part.varint()
        if id not in _ALLOWED[packet]:
            known = id == SUBSCRIPTION_ID and packet == codes.PUBLISH
            reason = Reason.PROTOCOL_ERROR if known else Reason.MALFORMED
            raise BadPacket(reason, f"property 0x{id:02x} has no place here")
        if id == USER_PROPERTY:
            pairs = found.setdefault(id, [])
            assert isinstance(pairs, list)
            if len(pairs) == MAX_USER_PROPERTIES:
                raise BadPacket(Reason.QUOTA_EXCEEDED, "too many user properties")
            pairs.append((part.string(), part.string()))
        elif id in found:
            raise BadPacket(Reason.PROTOCOL_ERROR, f"property 0x{id:02x} comes twice")
        else:
            found[id] = _checked(id, _FORMS[id][0](part))
    return found


def _checked(id: int, value: Value) -> Value:
    if (id in _YES_OR_NO and value not in (0, 1)) or (id in _NEVER_ZERO and value == 0):
        raise BadPacket(Reason.PROTOCOL_ERROR, f"property 0x{id:02x} may not be {value!r}")
    if id == RESPONSE_TOPIC and isinstance(value, str) and ("+" in value or "#" in value):
        raise BadPacket(Reason.PROTOCOL_ERROR, "a response topic has no wildcards")
    return value


def write_properties(properties: Properties) -> bytes:
    out = bytearray()
    for id, value in properties.items():
        if isinstance(value, list):
            for name, text in value:
                out += bytes([id]) + string(name) + string(text)
        else:
            out += bytes([id]) + _FORMS[id][1](value)
    return varint(len(out)) + bytes(out)


def number(properties: Properties, id: int, default: int) -> int:
    value = properties.get(id, default)
    assert isinstance(value, int)
    return value
