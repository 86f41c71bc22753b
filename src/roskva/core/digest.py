"""Digests: a set of objects in a count and a sum.

Each object counts for the first 8 bytes, big-endian, of the SHA-256 of its key; a set's digest is
the sum of these mod 2^64 and the number of members. Adding and removing are one addition each, in
any order, and the empty set is (0, 0).

Large sets that differ are compared by bucket: the first byte of an object's hash is its bucket, of
256. Only buckets whose sums differ are sent again, as "all I have under this prefix of the hash",
and a longer prefix cuts a bucket that is too large for one message.
"""

from collections.abc import Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Final

from roskva.model import Key

BUCKETS: Final = 256
MASK: Final = 2**64 - 1


@lru_cache(maxsize=65536)
def hash_of(key: Key) -> int:
    return int.from_bytes(sha256(key.encode()).digest()[:8])


def bucket_sums(hashes: Iterable[int]) -> list[int]:
    sums = [0] * BUCKETS
    for h in hashes:
        sums[h >> 56] += h
    return [total & MASK for total in sums]


class DigestSum:
    """The digest of a set that changes."""

    __slots__ = ("count", "sum")

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0

    def add(self, h: int) -> None:
        self.count += 1
        self.sum = (self.sum + h) & MASK

    def remove(self, h: int) -> None:
        self.count -= 1
        self.sum = (self.sum - h) & MASK
