"""What may enter the feed, and how fast.

An update that is admitted can be committed: nothing after this refuses a single one, because a
group of updates is durable as a whole or not at all.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from roskva.config import Config, LimitsConfig
from roskva.errors import BadInput, BadMessage, RoskvaError, TooFast, TooLarge, Unauthorised
from roskva.model import (
    MAX_SOURCE_BYTES,
    MAX_VERSION,
    NO_VERSION,
    Key,
    Principal,
    Update,
    parse_key,
    reset_mark,
)
from roskva.server.access.authority import Authority

MAX_BUCKETS: Final = 10_000
"""Then those that are full again are dropped: they say nothing."""

Admitted = list[Update | RoskvaError]


class Admission:
    def __init__(self, config: Config, authority: Authority) -> None:
        self.config = config
        self.too_fast = 0
        self._authority = authority
        self._rates = PublishRates(config.limits)

    def admit(self, principal: Principal, update: Update) -> Update:
        """The update as it goes into the feed, or the RoskvaError that says what is wrong."""
        app = self.config.app(self._checked(principal, update.object))
        if update.reset:
            raise BadInput("a reset is asked for by name, and not published")
        if app.versions == "assigned" and update.version != NO_VERSION:
            raise BadInput("versions of this app are assigned: publish without one")
        if app.versions == "app" and update.version == NO_VERSION:
            raise BadInput('name a version, or have them assigned: versions = "assigned"')
        if app.versions == "app" and not 0 <= update.version <= MAX_VERSION:
            raise BadInput(f"a version is a whole number from 0 to {MAX_VERSION}")
        if update.payload is not None and len(update.payload) > app.max_payload_bytes:
            raise TooLarge(f"a payload of this app has at most {app.max_payload_bytes} bytes")
        if update.source is not None and len(update.source.encode()) > MAX_SOURCE_BYTES:
            raise TooLarge(f"a source has at most {MAX_SOURCE_BYTES} bytes of UTF-8")
        if update.published_at:
            return update
        return msgspec.structs.replace(update, published_at=time.time_ns() // 1000)

    def reset(self, principal: Principal, key: Key) -> Admitted:
        self._checked(principal, key)
        mark = reset_mark(secrets.randbits(64))
        update = Update(key, mark, published_at=time.time_ns() // 1000, reset=True)
        return self._within_rate(principal, [update])

    def admit_all(self, principal: Principal, updates: Sequence[Update]) -> Admitted:
        limit = self.config.limits.max_publish_updates
        if len(updates) > limit:
            raise TooLarge(f"one request publishes at most {limit} updates; got {len(updates)}")
        outcomes = [self._outcome(principal, update) for update in updates]
        return self._within_rate(principal, outcomes)

    def _within_rate(self, principal: Principal, admitted: Admitted) -> Admitted:
        """The first of them, as far as it goes."""
        wanted = sum(isinstance(update, Update) for update in admitted)
        left = self._rates.take(principal, wanted)
        if left == wanted:
            return admitted
        self.too_fast += wanted - left
        kept: Admitted = []
        for update in admitted:
            if isinstance(update, Update):
                left -= 1
                if left < 0:
                    kept.append(TooFast("more updates per second than allowed: slow down"))
                    continue
            kept.append(update)
        return kept

    def _outcome(self, principal: Principal, update: Update) -> Update | RoskvaError:
        try:
            return self.admit(principal, update)
        except RoskvaError as error:
            return error
        except UnicodeEncodeError:
            return BadMessage("text that is no UTF-8")

    def _checked(self, principal: Principal, key: Key) -> str:
        app = parse_key(key).app
        if not self._authority.may_publish(principal, key):
            raise Unauthorised("publishing this object is not allowed")
        return app


class _Bucket:
    __slots__ = ("at", "tokens")

    def __init__(self, tokens: float, at: float) -> None:
        self.tokens = tokens
        self.at = at


class PublishRates:
    """A bucket for each who publishes, that fills at its rate and holds one burst."""

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
