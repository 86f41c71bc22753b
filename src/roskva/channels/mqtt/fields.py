"""The data types of the standard: integers, strings and binary data, read and written."""

from typing import Final

from roskva.channels.mqtt.codes import BadPacket, Reason

MAX_VARINT: Final = 268_435_455


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
    return binary(text.encode())


def binary(data: bytes) -> bytes:
    return u16(len(data)) + data
