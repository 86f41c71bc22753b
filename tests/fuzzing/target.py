"""What is fuzzed: a way in for bytes from outside, and what it promises.

A target given any bytes at all refuses them in the way it promises, or takes them. Whatever else
comes out of it is a crash, and so is an input that takes it long.
"""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    name: str
    corpus: list[bytes]
    """Sound inputs, to be changed."""
    takes: Callable[[bytes], bool]
    """Whether it takes them; raises what it must not raise."""
    rounds: int = 1_000_000
    """In `make verify`."""
