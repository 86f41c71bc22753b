"""Bytes that are almost right: a sound input with one to three things changed."""

from random import Random
from typing import Final

_HEADERS: Final = [
    bytes.fromhex(header)
    for header in (
        *("80", "8f", "90", "9f", "a0", "bf", "c0", "c1", "c2", "c3"),
        *("c4ff", "c5ffff", "c6ffffffff", "d9ff", "daffff", "dbffffffff"),
        *("dcffff", "ddffffffff", "deffff", "dfffffffff", "c7ff01", "c9ffffffff01"),
        *("cc80", "cdffff", "ceffffffff", "cfffffffffffffffff", "d0ff", "d38000000000000000"),
        *("ca7fc00000", "cb7ff0000000000000", "d6ff00000000", "d801"),
    )
]
_TEXTS: Final = [
    *(b"null", b"true", b"[", b"]", b"{", b"}", b'"', b"\\u0000", b"\\ud800", b"\\", b","),
    *(b"-1", b"1e999", b"1.5", b"9" * 400, b"NaN", b'"null"', b'"true"', b'"-0"', b"\xff", b"/"),
]


def mutated(frame: bytes, other: bytes, dice: Random) -> bytes:
    """`other` lends a piece for a splice."""
    data = bytearray(frame)
    for _ in range(1 if dice.random() < 0.7 else dice.randrange(2, 4)):
        _mutate(data, other, dice)
    return bytes(data)


def _mutate(data: bytearray, other: bytes, dice: Random) -> None:
    at = int(dice.random() * (len(data) + 1))
    kind = int(dice.random() * 8)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << int(dice.random() * 8)
    elif kind == 1 and at < len(data):
        data[at] = int(dice.random() * 256)
    elif kind == 2:
        data[at:at] = dice.randbytes(1 + int(dice.random() * 4))
    elif kind == 3:
        del data[at : at + 1 + int(dice.random() * 8)]
    elif kind == 4:
        begin = int(dice.random() * len(other))
        piece = other[begin : begin + int(dice.random() * 64)]
        data[at : at + int(dice.random() * 2) * len(piece)] = piece
    elif kind == 5:
        pieces = _HEADERS if dice.random() < 0.7 else _TEXTS
        piece = pieces[int(dice.random() * len(pieces))]
        data[at : at + int(dice.random() * 2) * len(piece)] = piece
    elif kind == 6 and at < len(data):
        # Lengths stand in the low bits of a header: one more, or one less.
        data[at] = (data[at] + (1 if dice.random() < 0.5 else -1)) & 0xFF
    else:
        del data[at:]
