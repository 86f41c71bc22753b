"""What clients want to be registered for, and what they are answered.

A registration is confirmed when its row is durable *and* the object's shard has answered over a
link that is still up; the notification it is due goes with the confirmation. Where the digests of
both sides disagree and nothing is under way that may explain it, the client is asked for its
registrations, and what it then says holds.
"""

from typing import TYPE_CHECKING, Final

from roskva.core import freshness
from roskva.core.digest import bucket_sums
from roskva.core.effects import FromConnection
from roskva.core.freshness import NEVER
from roskva.core.interest import LinkToShard
from roskva.core.session import Session, Unconfirmed
from roskva.errors import LimitExceeded, RoskvaError, Unauthorised, Unavailable
from roskva.model import Key
from roskva.wire.messages import ClientMessage, Digest, OperationStatus, SyncRequest

if TYPE_CHECKING:
    from roskva.core.registrar import Registrar

_SMALL_SET: Final = 128
"""Up to here a sync is cheaper whole than by bucket."""
_TOO_MUCH_IN_ROWS: Final = (
    "this principal has too many clients or registrations stored: end sessions that nobody needs "
    "(MQTT: session expiry 0, or a clean session), or raise max_clients_per_principal or "
    "max_registrations_per_principal in [limits]"
)
_BY_DIGEST: Final = 0
"""No message has this number: what came in a sync is confirmed by the digest alone."""


class Registrations:
    def __init__(self, registrar: "Registrar") -> None:
        self.registrar = registrar
        self.config, self.counters = registrar.config, registrar.counters
        self.interests, self.outbox = registrar.interests, registrar.outbox
        self.row_writes = registrar.row_writes

    def apply_operations(
        self, session: Session, message: ClientMessage, event: FromConnection
    ) -> None:
        changed: list[Key] = []
        unconfirmed = session.unconfirmed = session.unconfirmed or {}
        for operation in message.operations:
            key, version = operation.object, operation.version
            error = self._refusal(session, key, event) if operation.register else None
            if error is not None:
                touched = self._refuse(session, key, message.number, error)
            elif operation.register:
                touched = self._register(session, key, version)
                unconfirmed[key] = Unconfirmed(message.number, version is not None)
            else:
                touched = self.unregister(session, key)
                unconfirmed[key] = Unconfirmed(message.number, False)
            if touched:
                changed.append(key)
        if message.syncs:
            self.counters["syncs"] += session.sync_asked_at is not None
            session.sync_asked_at = None
            synced = self._sync(session, message, event)
            for key in synced:
                if key in session.registered:
                    unconfirmed[key] = Unconfirmed(_BY_DIGEST, False)
            changed += synced
            if not changed:
                self.outbox.to(session).digest = True
        self.interests.send_changes()
        self.row_writes.write(session, changed)
        for key in list(unconfirmed):
            self.confirm(session, key)

    def _refusal(
        self, session: Session, key: Key, event: FromConnection
    ) -> type[RoskvaError] | None:
        if key in event.denied or (session.app and not key.startswith(session.app + "/")):
            return Unauthorised
        if key in session.registered:
            return None
        if key in event.undecided:
            return Unavailable
        return LimitExceeded if len(session.registered) >= self.config.max_registrations else None

    def _refuse(self, session: Session, key: Key, number: int, error: type[RoskvaError]) -> bool:
        """Whether the row has to change: what a client may not register for it loses, if it had
        it. Were it kept, with what was acked of it before, a client that is told that it has it not
        and registers again would be thought to hold what it has dropped."""
        if self.unregister(session, key):
            assert session.unconfirmed is not None
            session.unconfirmed[key] = Unconfirmed(number, False, error.code)
            return True
        status = OperationStatus(key, False, number, error.code, error.retriable)
        self.outbox.to(session).statuses.append(status)
        return False

    def _register(self, session: Session, key: Key, version: int | None) -> bool:
        """Whether the row has to change."""
        acked = session.acked(key)
        if version is None and acked is not None:
            return False
        watched = self.interests.watch(key)
        if version is None:
            session.add(watched, NEVER)
        else:
            known = watched.known if self.interests.is_current(watched) else None
            session.add(watched, freshness.declared(version, acked, known))
        return True

    def unregister(self, session: Session, key: Key) -> bool:
        watched = session.registered.get(key)
        if watched is None:
            return False
        self.interests.release(session, watched)
        return True

    def withdraw(self, session: Session, key: Key) -> None:
        if self.unregister(session, key):
            if session.unconfirmed is not None:
                session.unconfirmed.pop(key, None)
            status = OperationStatus(key, False, session.seen, Unauthorised.code)
            self.outbox.to(session).statuses.append(status)
            self.row_writes.write(session, [key])

    def _sync(self, session: Session, message: ClientMessage, event: FromConnection) -> list[Key]:
        wanted = {(len(s.prefix), int.from_bytes(s.prefix)): s.objects for s in message.syncs}
        lengths = {length for length, _ in wanted}
        keep = {key for objects in wanted.values() for key in objects}
        changed = []
        for key, watched in list(session.registered.items()):
            h = watched.hash
            covered = any((length, h >> (64 - 8 * length)) in wanted for length in lengths)
            if covered and key not in keep and self.unregister(session, key):
                changed.append(key)
        for objects in wanted.values():
            for key in objects:
                error = self._refusal(session, key, event)
                if error is None:
                    touched = self._register(session, key, None)
                else:
                    touched = self._refuse(session, key, message.number, error)
                if touched:
                    changed.append(key)
        return changed

    def compare_digests(self, session: Session, digest: Digest) -> None:
        """Ask for the registrations where the client's are others than ours, unless operations are
        under way that may explain it."""
        if digest.sum == session.hash_sum and digest.count == len(session.registered):
            return
        if session.unsaved:
            return
        asked_at = session.sync_asked_at
        if asked_at is not None and self.interests.now < asked_at + self.config.sync_timeout:
            return
        session.sync_asked_at = self.interests.now
        sums: list[int] = []
        if max(digest.count, len(session.registered)) > _SMALL_SET:
            sums = bucket_sums(watched.hash for watched in session.registered.values())
        self.outbox.to(session).sync_request = SyncRequest(sums)

    def refuse_share(self, client: bytes, number: int) -> None:
        """Its principal has too much in rows. Nothing of what waits for its row was written, and it
        is told so of each; it comes back with what it had."""
        session = self.registrar.sessions.get((client, number))
        if session is None:
            return
        self.counters["over_share"] += 1
        out = self.outbox.dismiss(session, LimitExceeded.code, _TOO_MUCH_IN_ROWS)
        for key, (asked_in, _, _) in (session.unconfirmed or {}).items():
            if asked_in != _BY_DIGEST:
                out.statuses.append(OperationStatus(key, False, asked_in, LimitExceeded.code))

    # Confirming.

    def row_written(self, link: LinkToShard, request: int) -> None:
        written = self.row_writes.written(link, request)
        if written is None:
            return
        session, keys = written
        if keys and not session.unsaved and not session.unconfirmed:
            self.outbox.to(session).digest = True
        for key in keys:
            self.confirm(session, key)

    def confirm(self, session: Session, key: Key) -> None:
        unconfirmed = session.unconfirmed
        if not unconfirmed or key not in unconfirmed or key in (session.unsaved or ()):
            return
        number, declared, refused = unconfirmed[key]
        watched = session.registered.get(key)
        if watched is not None:
            if not self.interests.is_current(watched):
                return
            assert watched.known is not None
            if declared:
                acked = watched.sessions[session]
                compared = freshness.declared(acked[0], acked, watched.known)
                if compared != acked:
                    self.row_writes.set_acked(session, watched, compared)
            self.registrar.notify_if_due(session, watched)
        out = self.outbox.to(session)
        if number != _BY_DIGEST:
            out.statuses.append(OperationStatus(key, watched is not None, number, refused))
        del unconfirmed[key]
        if not unconfirmed:
            session.unconfirmed = None
            out.digest = True
