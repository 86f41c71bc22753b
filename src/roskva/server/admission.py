"""What may enter the feed, and how fast.

An update that is admitted can be committed: nothing after this refuses a single one, because a
group of updates is durable as a whole or not at all.
"""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from roskva import model
from roskva.config import Config, LimitsConfig
from roskva.errors import BadInput, BadMessage, RoskvaError, TooFast, TooLarge, Unauthorised
from roskva.server.access.authority import Authority
from roskva.server.space import DiskSpace

MAX_BUCKETS: Final = 10_000
"""Then those that are full again are dropped: they say nothing."""
KEYLESS_BURST_S: Final = 4
_ROW_BYTES: Final = 32
_TOO_FAST: Final = "more %s per second than allowed: slow down"

Admitted = list[model.Update | RoskvaError]


class Admission:
    def __init__(self, config: Config, authority: Authority, space: DiskSpace) -> None:
        self.config = config
        self._sources = config.apps_of_sources
        self.too_fast = 0
        """Updates that were refused."""
        self.refused_bodies = 0
        self._space = space
        self._authority = authority
        self._rates = PublishRates(config.limits)

    def admit(self, principal: model.Principal, update: model.Update) -> model.Update:
        """The update as it goes into the feed, or the RoskvaError that says what is wrong."""
        name = self._checked(principal, update.object)
        if name in self._sources and not (principal.key and principal.app == name):
            raise belongs_to(self._sources[name], name)
        app = self.config.app(name)
        if update.reset:
            raise BadInput("a reset is asked for by name, and not published")
        if app.versions == "assigned" and update.version != model.NO_VERSION:
            raise BadInput("versions of this app are assigned: publish without one")
        if app.versions == "app" and update.version == model.NO_VERSION:
            raise BadInput('name a version, or have them assigned: versions = "assigned"')
        if app.versions == "app" and not 0 <= update.version <= model.MAX_VERSION:
            raise BadInput(f"a version is a whole number from 0 to {model.MAX_VERSION}")
        if update.payload is not None and len(update.payload) > app.max_payload_bytes:
            raise TooLarge(f"a payload of this app has at most {app.max_payload_bytes} bytes")
        if update.source is not None and len(update.source.encode()) > model.MAX_SOURCE_BYTES:
            raise TooLarge(f"a source has at most {model.MAX_SOURCE_BYTES} bytes of UTF-8")
        if update.published_at:
            return update
        return msgspec.structs.replace(update, published_at=time.time_ns() // 1000)

    def reset(self, principal: model.Principal, key: model.Key) -> Admitted:
        app = self._checked(principal, key)
        if app in self._sources:
            raise belongs_to(self._sources[app], app)
        mark = model.reset_mark(secrets.randbits(64))
        update = model.Update(key, mark, published_at=time.time_ns() // 1000, reset=True)
        return self._within_rate(principal, [update])

    def admit_all(self, principal: model.Principal, updates: Sequence[model.Update]) -> Admitted:
        limit = self.config.limits.max_publish_updates
        if len(updates) > limit:
            raise TooLarge(f"one request publishes at most {limit} updates; got {len(updates)}")
        outcomes = [self._outcome(principal, update) for update in updates]
        return self._within_rate(principal, outcomes)

    def check(self, principal: model.Principal, body_bytes: int) -> None:
        """Before a body is read and parsed, which costs more than all that follows."""
        if not principal.name and not self._rates.has_bytes(principal.address, body_bytes):
            self.refused_bodies += 1
            raise TooFast(_TOO_FAST % "bytes from this address")

    def _within_rate(self, principal: model.Principal, admitted: Admitted) -> Admitted:
        """The first of them, as far as it goes."""
        self._space.check()
        wanted = [update for update in admitted if isinstance(update, model.Update)]
        if principal.name:
            left, what = self._rates.take(principal, len(wanted)), "updates"
        else:
            sizes = list(map(size_of, wanted))
            left, what = self._rates.take_bytes(principal.address, sizes), "bytes from this address"
        if left == len(wanted):
            return admitted
        self.too_fast += len(wanted) - left
        kept: Admitted = []
        for update in admitted:
            if isinstance(update, model.Update):
                left -= 1
                if left < 0:
                    kept.append(TooFast(_TOO_FAST % what))
                    continue
            kept.append(update)
        return kept

    def _outcome(
        self, principal: model.Principal, update: model.Update
    ) -> model.Update | RoskvaError:
        try:
            return self.admit(principal, update)
        except RoskvaError as error:
            return error
        except UnicodeEncodeError:
            return BadMessage("text that is no UTF-8")

    def _checked(self, principal: model.Principal, key: model.Key) -> str:
        app = model.parse_key(key).app
        if not self._authority.may_publish(principal, key):
            raise Unauthorised("publishing this object is not allowed")
        return app


def belongs_to(source: str, app: str) -> Unauthorised:
    """Versions of others, or a reset by others, would hide what the database changes."""
    return Unauthorised(
        f"the app {app} belongs to the source {source}: nobody else publishes or resets there"
    )


def size_of(update: model.Update) -> int:
    """In bytes, as what it takes of a disk begins."""
    return len(update.object) + len(update.payload or b"") + _ROW_BYTES


class _Bucket(msgspec.Struct):
    rate: float
    burst: float
    tokens: float
    at: float

    def fill(self, now: float) -> None:
        self.tokens = min(self.burst, self.tokens + (now - self.at) * self.rate)
        self.at = now


class PublishRates:
    """A bucket for each who publishes, that fills at its rate and holds one burst: of updates for
    somebody with a name, of bytes for an address where there are no keys."""

    def __init__(self, limits: LimitsConfig, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._buckets: dict[tuple[str | None, str], _Bucket] = {}

    def take(self, principal: model.Principal, wanted: int) -> int:
        """How many of so many updates may go now: of somebody with a name."""
        limits = self._limits
        rate = limits.publishes_per_second if principal.key else limits.client_publishes_per_second
        # A second's worth, and never less than one request may hold.
        burst = max(rate, limits.max_publish_updates)
        bucket = self._bucket((principal.app, principal.name), rate, burst)
        taken = min(wanted, int(bucket.tokens))
        bucket.tokens -= taken
        return taken

    def take_bytes(self, address: str, sizes: Sequence[int]) -> int:
        """How many updates of these sizes may go now: of nobody in particular."""
        rate = self._limits.keyless_publish_bytes_per_second
        if rate is None:
            return len(sizes)
        bucket = self._bucket((None, address), rate, rate * KEYLESS_BURST_S)
        for taken, size in enumerate(sizes):
            if size > bucket.tokens:
                return taken
            bucket.tokens -= size
        return len(sizes)

    def has_bytes(self, address: str, wanted: int) -> bool:
        """So many; of a large request a part is enough."""
        rate = self._limits.keyless_publish_bytes_per_second
        if rate is None:
            return True
        bucket = self._bucket((None, address), rate, rate * KEYLESS_BURST_S)
        return bucket.tokens >= min(wanted, rate / 2)

    def _bucket(self, named: tuple[str | None, str], rate: float, burst: float) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.get(named)
        if bucket is None:
            if len(self._buckets) >= MAX_BUCKETS:
                self._drop_some(now)
            bucket = self._buckets[named] = _Bucket(rate, burst, burst, now)
        bucket.fill(now)
        return bucket

    def _drop_some(self, now: float) -> None:
        """Those that are full, or else the oldest."""
        for bucket in self._buckets.values():
            bucket.fill(now)
        found = {name: each for name, each in self._buckets.items() if each.tokens < each.burst}
        if len(found) >= MAX_BUCKETS:
            del found[next(iter(found))]
        self._buckets = found
