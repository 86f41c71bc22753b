"""What may enter the feed. An update that is admitted can be committed: nothing after this refuses
a single one, because a group of updates is durable as a whole or not at all."""

import secrets
import time

import msgspec

from roskva.config import Config
from roskva.errors import BadInput, BadMessage, RoskvaError, TooLarge, Unauthorised
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


class Admission:
    def __init__(self, config: Config, authority: Authority) -> None:
        self._config = config
        self._authority = authority

    def admit(self, principal: Principal, update: Update) -> Update:
        """The update as it goes into the feed, or the RoskvaError that says what is wrong."""
        app = self._config.app(self._checked(principal, update.object))
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

    def reset(self, principal: Principal, key: Key) -> Update:
        self._checked(principal, key)
        mark = reset_mark(secrets.randbits(64))
        return Update(key, mark, published_at=time.time_ns() // 1000, reset=True)

    def admit_all(self, principal: Principal, updates: list[Update]) -> list[Update | RoskvaError]:
        limit = self._config.limits.max_publish_updates
        if len(updates) > limit:
            raise TooLarge(f"one request publishes at most {limit} updates; got {len(updates)}")
        return [self._outcome(principal, update) for update in updates]

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
