"""How fast somebody may publish: a bucket each, that fills at its rate and holds one burst."""

import time
from collections.abc import Callable
from typing import Final

from roskva.config import LimitsConfig
from roskva.model import Principal

MAX_BUCKETS: Final = 10_000
"""Then those that are full again are dropped: they say nothing."""


class _Bucket:
    __slots__ = ("at", "tokens")

    def __init__(self, tokens: float, at: float) -> None:
        self.tokens = tokens
        self.at = at


class PublishRates:
    def __init__(self, limits: LimitsConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._buckets: dict[tuple[str | None, str], _Bucket] = {}

    def take(self, principal: Principal, wanted: int) -> int:
        """How many of so many updates may go now. Nobody in particular (a node without keys) may
        publish as fast as the disk takes it."""
        if not principal.name or not wanted:
            return wanted
        now, rate = self._clock(), self._rate(principal)
        burst = self._burst(rate)
        bucket = self._buckets.get((principal.app, principal.name))
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._drop_full(now)
            bucket = self._buckets[principal.app, principal.name] = _Bucket(burst, now)
        bucket.tokens = min(burst, bucket.tokens + (now - bucket.at) * rate)
        bucket.at = now
        taken = min(wanted, int(bucket.tokens))
        bucket.tokens -= taken
        return taken

    def _rate(self, principal: Principal) -> int:
        limits = self._limits
        return limits.publishes_per_second if principal.key else limits.client_publishes_per_second

    def _burst(self, rate: int) -> float:
        """A second's worth, and never less than one request may hold."""
        return float(max(rate, self._limits.max_publish_updates))

    def _drop_full(self, now: float) -> None:
        slowest = min(self._limits.publishes_per_second, self._limits.client_publishes_per_second)
        fills_in = self._burst(slowest) / slowest
        self._buckets = {
            named: bucket for named, bucket in self._buckets.items() if now - bucket.at < fills_in
        }
