"""Digests of whole sets."""

from collections.abc import Iterable

from roskva.core.digest import MASK, hash_of


def sum_of(keys: Iterable[str]) -> int:
    return sum(map(hash_of, keys)) & MASK
