"""Decimals as MySQL packs them: nine digits in four bytes, fewer in fewer, whole ones first.

The highest bit says that it is not negative; of a negative one all other bits are turned.
"""

from collections.abc import Callable
from typing import Final

import msgspec

_DIGITS: Final = 9
"""In four bytes."""
_BYTES_OF_DIGITS: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def decimal_reader(precision: int, scale: int) -> Callable[[bytes, int], tuple[msgspec.Raw, int]]:
    whole = precision - scale
    sizes = [_BYTES_OF_DIGITS[whole % _DIGITS], *[4] * (whole // _DIGITS)]
    after = [*[4] * (scale // _DIGITS), _BYTES_OF_DIGITS[scale % _DIGITS]]
    widths = [*[_DIGITS] * (scale // _DIGITS), scale % _DIGITS]
    size = sum(sizes) + sum(after)

    def read(data: bytes, at: int) -> tuple[msgspec.Raw, int]:
        packed = bytearray(data[at : at + size])
        negative = not packed[0] & 0x80
        packed[0] ^= 0x80
        if negative:
            packed = bytearray(byte ^ 0xFF for byte in packed)
        place, number = 0, 0
        for width in sizes:
            number = number * 10**_DIGITS + int.from_bytes(packed[place : place + width])
            place += width
        text = f"-{number}" if negative else str(number)
        if scale:
            text += "."
        for width, digits in zip(after, widths, strict=True):
            if digits:
                text += f"{int.from_bytes(packed[place : place + width]):0{digits}d}"
            place += width
        return msgspec.Raw(text.encode()), at + size

    return read
