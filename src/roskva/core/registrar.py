"""The registrar: sessions, and what they are registered for.

Everything here is soft. Registrations are kept in rows at the client's shard (`rows.py`), versions
at the object's shard (`matcher.py`); a registrar joins the two for whoever is online and forgets
when the session ends. Any registrar can serve any client.

Its parts: `interest.py` is its lower edge, the objects it watches and the links to their shards;
`saving.py` writes the rows; `telling.py` tells sessions what they are due; `outgoing.py` gathers
what a step has to say. Here are the sessions themselves: handshake, messages, end.

The duties, in order:

1. A session is granted after the row's owner has opened it, so the older one is fenced by then.
2. A registration is confirmed when its row is durable *and* the object's shard has answered over a
   link that is still up; the notification it is due goes with the confirmation.
3. A digest is sent only when no operation is under way: it stands for what is durable and compared.
4. Once per `scan_interval` every session is looked at, as a safety net: is it still there, is its
   row saved, is it told everything? That also repeats what was never acked.

Long work is cut into slices: `next_deadline` is 0 while some is left.
"""

from collections import deque
from hashlib import sha256
from itertools import islice
from typing import Final

import msgspec

from roskva.core import freshness
from roskva.core.acking import Acking
from roskva.core.backoff import Rate, RateLimit
from roskva.core.digest import bucket_sums
from roskva.core.effects import (
    Acked,
    Attached,
    Close,
    Closed,
    Dismissed,
    Drained,
    DropLink,
    Effect,
    Event,
    FromLink,
    Handle,
    Lagging,
    LinkDown,
    LinkUp,
    Opened,
    Received,
    Recheck,
    Reloaded,
    Send,
    SendLink,
    Shedding,
    Tick,
    Watching,
    Withdrawn,
)
from roskva.core.freshness import NEVER
from roskva.core.interest import Interests, ShardLink
from roskva.core.outgoing import Outbox
from roskva.core.saving import Saving
from roskva.core.session import Phase, Session, Unconfirmed
from roskva.core.standing import Standing
from roskva.core.telling import TURN, Telling
from roskva.core.token import NONCE_BYTES, Claims, TokenKeys
from roskva.errors import (
    Fenced,
    LimitExceeded,
    Overloaded,
    RoskvaError,
    TokenRejected,
    Unauthorised,
    Unavailable,
)
from roskva.model import NO_VERSION, Key, Principal, shard_of
from roskva.wire.links import (
    CloseSession,
    Pong,
    Pushes,
    RowRefused,
    RowWritten,
    SessionOpened,
    Superseded,
    Versions,
)
from roskva.wire.messages import (
    ClientMessage,
    Config,
    Failure,
    Grant,
    Hello,
    ServerDigest,
    Status,
    SyncRequest,
)

SMALL_SET: Final = 128
"""Up to here a sync is cheaper whole than by bucket."""

_BY_DIGEST: Final = 0
"""No message has this number: what came in a sync is confirmed by the digest alone."""

COUNTERS: Final = (
    *("broadcasts", "notified", "acks", "stale_acks", "forged_acks", "suppressed", "lagged"),
    *("syncs", "turned_away", "rejected_tokens", "fenced", "stale_messages", "expired"),
    *("revoked", "refreshed_tokens", "over_session_limit"),
)


class RegistrarConfig(msgspec.Struct, frozen=True):
    """Times are in seconds."""

    name: str
    shards: int
    cell: str = "local"
    handshake_timeout: float = 10.0
    heartbeat: float = 1200.0
    missed_heartbeats: int = 4
    scan_interval: float = 60.0
    ack_flush: float = 2.0
    linger: float = 60.0
    ping_interval: float = 1.0
    link_timeout: float = 3.0
    sync_timeout: float = 5.0
    token_lifetime: float = 90 * 86400.0
    handshakes: Rate = Rate(1000, 1000)
    shedding_wait: float = 2.0
    """Nobody comes back earlier that was turned away because of load."""
    max_registrations: int = 100_000
    max_sessions: int = 1000
    """Of one principal; nobody in particular may have any number."""


class Registrar:
    def __init__(self, config: RegistrarConfig, keys: TokenKeys, wall_us: int, now: float) -> None:
        self.config = config
        self.keys = keys
        self.standing = Standing()
        self.wall_s = wall_us / 1e6 - now
        self.now = now
        self.conns: dict[Handle, Session] = {}
        self.sessions: dict[tuple[bytes, int], Session] = {}
        """By client and number: each shard counts its own."""
        self.joined: dict[tuple[str | None, str], int] = {}
        """Sessions of each principal, by app and name."""
        self.shedding = False
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.interests = Interests(
            config.name, config.shards, config.linger, config.link_timeout, now
        )
        self.watched = self.interests.watched
        self.outbox = Outbox()
        self.saving = Saving(self.interests, self.outbox, config.ack_flush)
        self.telling = Telling(
            self.interests, self.outbox, self.saving, self.counters, self._confirm
        )
        self.acking = Acking(self.conns, self.interests, self.saving, self.telling, self.counters)
        self.leaving: deque[Session] = deque()
        self.visiting: deque[Session] = deque()
        self.handshakes = RateLimit(config.handshakes)
        self.next_slot = now
        self.ping_at = now + config.ping_interval
        self.wheel: dict[int, list[Session]] = {}
        self.wheel_turn = int(now)

    def next_deadline(self) -> float:
        if self.visiting or self.leaving or self.telling.pending() or self.interests.pending():
            return 0.0
        deadline = self.ping_at
        flush_at = self.saving.flush_at
        if flush_at is not None and flush_at < deadline:
            deadline = flush_at
        if self.wheel and self.wheel_turn + 1 < deadline:
            deadline = self.wheel_turn + 1
        return deadline

    def step(self, event: Event, now: float) -> list[Effect]:
        self.now = self.interests.now = now
        self.interests.step += 1
        kind = type(event)
        if kind is Acked:
            self.acking.acked(event)  # type: ignore[arg-type]
            if not self.outbox.sessions:
                return []  # as good as always; work in slices has its deadline
        elif kind is Received:
            self._received(event)  # type: ignore[arg-type]
        elif kind is FromLink:
            self._from_link(event)  # type: ignore[arg-type]
        else:
            self._other(event)
        for _ in range(min(len(self.visiting), TURN)):
            self._visit(self.visiting.popleft())
        if self.telling.pending():
            self.telling.work()
        if self.leaving:
            self._leave(self.leaving[0])
        if self.outbox.sessions:
            self._send_out()
        return self.outbox.take()

    def _other(self, event: Event) -> None:
        match event:
            case Tick():
                self._tick()
            case Opened():
                self._accept(event.conn, event.bits)
            case Attached():
                session = self._accept(event.conn, b"")
                session.paced = True
                session.resume, session.keep = event.resume, event.keep
                session.principal = event.principal
                if self._has_room():
                    self._open(session, event.client, event.application)
                else:
                    self._turn_away(session)
            case Watching():
                self._watch(event)
            case Closed():
                self._end(self.conns.get(event.conn))
            case Lagging(conn=conn) if conn in self.conns:
                self.telling.lagging(self.conns[conn], event.since)
            case Drained(conn=conn) if conn in self.conns:
                self.telling.drained(self.conns[conn])
            case Dismissed(conn=conn) if conn in self.conns:
                self._dismiss(self.conns[conn], event.not_before_ms)
            case Withdrawn(conn=conn) if conn in self.conns:
                self._withdraw(self.conns[conn], event.object)
            case Lagging() | Drained() | Dismissed() | Withdrawn():
                pass
            case Recheck():
                self.outbox.emit(*self.interests.ask_again())
                self.saving.write_again(self.sessions.values())
            case Reloaded():
                self._reload(event)
            case Shedding():
                self.shedding = event.on
            case LinkUp(link=int() as shard):
                self._link_up(shard)
            case LinkDown(link=int() as shard):
                self.interests.links[shard].broken()
            case _:
                raise TypeError(f"not for a registrar: {event!r}")

    # The handshake, and the end.

    def _accept(self, conn: Handle, bits: bytes) -> Session:
        session = self.conns[conn] = Session(conn, bits, self.now)
        self._visit_later(session, self.config.handshake_timeout)
        return session

    def _watch(self, event: Watching) -> None:
        session = self._accept(event.conn, b"")
        session.client, session.keep = event.client, False
        session.principal = event.principal
        if not self._join(session):
            return
        session.phase = Phase.OPEN
        for cell in event.registered:
            session.add(self.interests.watch(cell.object), (cell.acked, cell.epoch))
        self.outbox.emit(*self.interests.messages())
        self.telling.walk(session)

    def _hello(self, session: Session, hello: Hello, principal: Principal) -> None:
        if session.phase is not Phase.GREETING:
            return
        if not self._has_room():
            self._turn_away(session)
            return
        app, client = hello.app, session.bits[:16]
        if hello.token is not None:
            claims = self.keys.open(hello.token, int(self.wall_s + self.now))
            if claims is None or claims.cell != self.config.cell:
                self._reject(session)
                return
            app, client = claims.app, claims.client
            principal = Principal(claims.principal, claims.app or None, claims.issued_at)
        if not self.standing.holds(principal):
            self._reject(session)
            return
        session.app, session.principal = app or "", principal
        session.nonce = hello.nonce
        self._open(session, client, hello.application)

    def _reject(self, session: Session) -> None:
        self.counters["rejected_tokens"] += 1
        self.outbox.to(session).error = Failure(TokenRejected.code, "shake hands again")

    def _reload(self, event: Reloaded) -> None:
        self.keys, self.standing = event.keys, event.standing
        for session in self.conns.values():
            if session.phase is not Phase.GREETING and not self.standing.holds(session.principal):
                self.counters["revoked"] += 1
                self._reject(session)
                self.outbox.to(session).close = True

    def _has_room(self) -> bool:
        """For one more handshake, now."""
        return not self.shedding and self.handshakes.take(self.now)

    def _turn_away(self, session: Session) -> None:
        """Each one turned away is given a slot of its own to come back in."""
        rate = self.config.handshakes
        free_at = max(self.next_slot, self.handshakes.free_at())
        if self.shedding:
            free_at = max(free_at, self.now + self.config.shedding_wait)
        self.next_slot = free_at + rate.window_ms / 1000 / rate.count
        self.counters["turned_away"] += 1
        out = self.outbox.to(session)
        out.not_before_ms = min(int((self.next_slot - self.now) * 1000) + 1, 600_000)
        out.error = Failure(Overloaded.code, "too many at once")
        out.close = True

    def _join(self, session: Session) -> bool:
        """Whether its principal may have one more; who may not is told so."""
        principal = session.principal
        if not principal.name:
            return True
        named = principal.app, principal.name
        count = self.joined.get(named, 0)
        if count >= self.config.max_sessions:
            self.counters["over_session_limit"] += 1
            out = self.outbox.to(session)
            out.error = Failure(LimitExceeded.code, "this principal has too many sessions")
            out.close = True
            return False
        self.joined[named] = count + 1
        return True

    def _part(self, principal: Principal) -> None:
        named = principal.app, principal.name
        count = self.joined.get(named, 0)
        if count > 1:
            self.joined[named] = count - 1
        else:
            self.joined.pop(named, None)

    def _open(self, session: Session, client: bytes, application: str) -> None:
        if not self._join(session):
            return
        session.client = client
        session.application = application
        session.owner = shard_of(client, self.config.shards)
        session.phase = Phase.OPENING
        self.saving.open(session)

    def _opened(self, link: ShardLink, message: SessionOpened) -> None:
        session, _ = link.requests.get(message.request, (None, ()))
        if session is None:
            return
        if not message.more:
            del link.requests[message.request]
        if self.conns.get(session.conn) is not session:
            closed = CloseSession(session.client, message.session)
            self.outbox.emit(SendLink(link.shard, closed))
            return
        session.number = message.session
        session.created = message.created
        for cell in message.registered:
            session.add(self.interests.watch(cell.object), (cell.acked, cell.epoch))
        self.outbox.emit(*self.interests.messages())
        if not message.more:
            link.waiting.pop(session, None)
            self._grant(session)

    def _grant(self, session: Session) -> None:
        # A shard that lost its disk, and whose clock went back, may give a number out again.
        self._fence(session.client, session.number, Fenced.code)
        session.phase = Phase.OPEN
        self.sessions[session.client, session.number] = session
        out = self.outbox.to(session)
        out.digest = True
        out.config = Config(max(1, int(self.config.heartbeat * 1000)))
        if session.nonce is not None:
            session.bits = session.bits[16:]
            out.grant = Grant(session.client, self._token(session, session.bits), session.nonce)
        session.nonce = None
        self.telling.walk(session)

    def _token(self, session: Session, bits: bytes) -> bytes:
        lifetime, principal = self.config.token_lifetime, session.principal
        session.refresh_at = self.now + lifetime / 2
        claims = Claims(
            session.app,
            session.client,
            principal.name,
            self.config.cell,
            int(self.wall_s + self.now + lifetime),
            principal.issued_at,
        )
        return self.keys.seal(claims, bits[:NONCE_BYTES])

    def _refresh(self, session: Session) -> None:
        """A client that stays longer than its token lasts has another by then. The bits are used
        but once: each time, others are made of them."""
        self.counters["refreshed_tokens"] += 1
        session.bits = sha256(session.bits).digest()[:NONCE_BYTES]
        out = self.outbox.to(session)
        out.grant = Grant(session.client, self._token(session, session.bits))

    def _fence(self, client: bytes, number: int, code: str) -> None:
        session = self.sessions.get((client, number))
        if session is not None:
            self.counters["fenced"] += 1
            self.outbox.to(session).error = Failure(code)
            self.outbox.to(session).close = True

    def _dismiss(self, session: Session, not_before_ms: int) -> None:
        out = self.outbox.to(session)
        out.not_before_ms = not_before_ms
        out.error = Failure(Unavailable.code, "this server is stopping")
        out.close = True

    def _end(self, session: Session | None) -> None:
        if session is None or self.conns.pop(session.conn, None) is None:
            return
        link = self.saving.owner(session)
        link.waiting.pop(session, None)
        self.telling.slow.discard(session)
        named = session.client, session.number
        if self.sessions.get(named) is not session:
            self.saving.forget(session)  # another one has its number, or it has none
        else:
            del self.sessions[named]
            self.saving.flush_session(session)
            closed = CloseSession(session.client, session.number)
            self.outbox.emit(SendLink(link.shard, closed))
        if session.phase is not Phase.GREETING:
            self._part(session.principal)
        session.phase = Phase.GREETING
        self.leaving.append(session)

    # Messages of a session.

    def _received(self, event: Received) -> None:
        session = self.conns.get(event.conn)
        if session is None:
            return
        session.heard_at = self.now
        message = event.message
        if type(message) is Hello:
            self._hello(session, message, event.principal)
            return
        assert type(message) is ClientMessage
        if message.session != session.number or session.phase is not Phase.OPEN:
            self.counters["stale_messages"] += 1
            return
        if message.number < session.seen:
            # Overtaken by operations: an ack in it may be of what they have since taken back.
            self.counters["stale_messages"] += 1
            return
        for ack in message.acks:
            version = ack.version
            self.acking.ack(
                session, ack.object, NO_VERSION if version is None else version, ack.epoch
            )
        if message.operations or message.syncs:
            if not all(link.up for link in self.interests.links):
                self.outbox.to(session)  # it may take a while: say at least that we are here
            if message.number > session.seen:
                session.seen = message.number
                self._operate(session, message, event)
        elif not message.acks:
            self.outbox.to(session).digest = True
        digest = message.digest
        if digest is not None and (
            digest.sum != session.hash_sum or digest.count != len(session.registered)
        ):
            self._disagree(session, message)

    def _operate(self, session: Session, message: ClientMessage, event: Received) -> None:
        changed: list[Key] = []
        unconfirmed = session.unconfirmed = session.unconfirmed or {}
        for operation in message.operations:
            key, version = operation.object, operation.version
            if operation.register:
                error = self._refusal(session, key, event)
                if error is not None:
                    if self._refuse(session, key, message.number, error):
                        changed.append(key)
                    continue
                touched = self._register(session, key, version)
            else:
                touched = self._unregister(session, key)
            declared = operation.register and version is not None
            unconfirmed[key] = Unconfirmed(message.number, declared)
            if touched:
                changed.append(key)
        if message.syncs:
            session.sync_asked_at = None
            self.counters["syncs"] += 1
            synced = self._sync(session, message, event)
            for key in synced:
                if key in session.registered:
                    unconfirmed[key] = Unconfirmed(_BY_DIGEST, False)
            changed += synced
            if not changed:
                self.outbox.to(session).digest = True
        self.outbox.emit(*self.interests.messages())
        self.saving.save(session, changed)
        for key in list(unconfirmed):
            self._confirm(session, key)

    def _refusal(self, session: Session, key: Key, event: Received) -> type[RoskvaError] | None:
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
        if self._unregister(session, key):
            assert session.unconfirmed is not None
            session.unconfirmed[key] = Unconfirmed(number, False, error.code)
            return True
        status = Status(key, False, number, error.code, error.retriable)
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
            known = watched.known if self.interests.holds(watched) else None
            session.add(watched, freshness.declared(version, acked, known))
        return True

    def _unregister(self, session: Session, key: Key) -> bool:
        watched = session.registered.get(key)
        if watched is None:
            return False
        session.remove(watched)
        self.interests.release(watched)
        return True

    def _withdraw(self, session: Session, key: Key) -> None:
        if self._unregister(session, key):
            if session.unconfirmed is not None:
                session.unconfirmed.pop(key, None)
            status = Status(key, False, session.seen, Unauthorised.code)
            self.outbox.to(session).statuses.append(status)
            self.saving.save(session, [key])

    def _sync(self, session: Session, message: ClientMessage, event: Received) -> list[Key]:
        wanted = {(len(s.prefix), int.from_bytes(s.prefix)): s.objects for s in message.syncs}
        lengths = {length for length, _ in wanted}
        keep = {key for objects in wanted.values() for key in objects}
        changed = []
        for key, watched in list(session.registered.items()):
            h = watched.hash
            covered = any((length, h >> (64 - 8 * length)) in wanted for length in lengths)
            if covered and key not in keep and self._unregister(session, key):
                changed.append(key)
        for objects in wanted.values():
            for key in objects:
                error = self._refusal(session, key, event)
                if error is not None:
                    if self._refuse(session, key, message.number, error):
                        changed.append(key)
                elif self._register(session, key, None):
                    changed.append(key)
        return changed

    def _disagree(self, session: Session, message: ClientMessage) -> None:
        """Ask for the registrations, unless operations are under way that may explain it."""
        if session.unsaved or message.digest is None:
            return
        asked_at = session.sync_asked_at
        if asked_at is not None and self.now < asked_at + self.config.sync_timeout:
            return
        session.sync_asked_at = self.now
        sums: list[int] = []
        if max(message.digest.count, len(session.registered)) > SMALL_SET:
            sums = bucket_sums(watched.hash for watched in session.registered.values())
        self.outbox.to(session).sync_request = SyncRequest(sums)

    # Confirming.

    def _row_written(self, link: ShardLink, request: int) -> None:
        written = self.saving.saved(link, request)
        if written is None:
            return
        session, keys = written
        if not session.unsaved and not session.unconfirmed:
            self.outbox.to(session).digest = True
        for key in keys:
            self._confirm(session, key)

    def _confirm(self, session: Session, key: Key) -> None:
        unconfirmed = session.unconfirmed
        if not unconfirmed or key not in unconfirmed or key in (session.unsaved or ()):
            return
        number, declared, refused = unconfirmed[key]
        watched = session.registered.get(key)
        if watched is not None:
            if not self.interests.holds(watched):
                return
            assert watched.known is not None
            if declared:
                acked = watched.sessions[session]
                compared = freshness.declared(acked[0], acked, watched.known)
                if compared != acked:
                    watched.declared_by(session, compared)
                    self.saving.set_acked(session, watched, compared)
            self.telling.tell_one(session, watched)
        out = self.outbox.to(session)
        if number != _BY_DIGEST:
            out.statuses.append(Status(key, watched is not None, number, refused))
        del unconfirmed[key]
        if not unconfirmed:
            session.unconfirmed = None
            out.digest = True

    # What shards say.

    def _link_up(self, shard: int) -> None:
        link = self.interests.links[shard]
        self.outbox.emit(self.interests.open(shard))
        self.outbox.emit(*self.interests.messages())
        self.saving.link_up(link)
        for session in list(link.waiting):
            if session.phase is Phase.OPENING:
                self.leaving.append(self._without_registrations(session))
                self.saving.open(session)
            else:
                self.saving.save_again(session)

    def _from_link(self, event: FromLink) -> None:
        assert isinstance(event.link, int)
        link = self.interests.links[event.link]
        if not link.up:
            return
        if not self.interests.hear(link):
            self.outbox.emit(DropLink(link.shard))
            return
        match event.message:
            case Pushes(pushes=pushes):
                for push in pushes:
                    self.telling.push(link, push)
            case Versions(known=known):
                self.telling.learn(link, known)
            case Pong() as pong:
                effect = self.interests.pong(link, pong)
                if effect is not None:
                    self.outbox.emit(effect)
            case SessionOpened() as opened:
                self._opened(link, opened)
            case RowWritten(request=request):
                self._row_written(link, request)
            case Superseded(client=client, session=number):
                self._fence(client, number, Fenced.code)
            case RowRefused(client=client, session=number, code=code):
                self._fence(client, number, code)

    # Time, and work in slices.

    def _tick(self) -> None:
        if self.saving.flush_at is not None and self.now >= self.saving.flush_at:
            self.saving.flush()
        if self.now >= self.ping_at:
            self.ping_at = self.now + self.config.ping_interval
            self.interests.expire()
            self.outbox.emit(*self.interests.messages())
            self.outbox.emit(*self.interests.ping())
        elif self.interests.pending():
            self.outbox.emit(*self.interests.messages())
        while self.wheel_turn < int(self.now):
            self.wheel_turn += 1
            self.visiting.extend(self.wheel.pop(self.wheel_turn, ()))

    def _visit_later(self, session: Session, delay: float) -> None:
        turn = self.wheel_turn + max(1, round(delay))
        self.wheel.setdefault(turn, []).append(session)

    def _visit(self, session: Session) -> None:
        """Every session's regular check: is it there, is its row safe, is it told everything?"""
        if self.conns.get(session.conn) is not session:
            return
        if session.phase is Phase.OPEN:
            patience = self.config.heartbeat * self.config.missed_heartbeats
        else:
            patience = self.config.handshake_timeout / 2
        if self.now - session.heard_at > patience:
            self.counters["expired"] += 1
            out = self.outbox.to(session)
            out.close = True
            if session.phase is Phase.OPENING:
                out.error = Failure(Unavailable.code, "this client's shard does not answer")
            return
        if session.phase is Phase.OPEN:
            self.saving.save_again(session)
            if session.refresh_at is not None and self.now >= session.refresh_at:
                self._refresh(session)
            if not session.lagging:  # else it is scanned when it has drained
                self.telling.walk(session)
        self._visit_later(session, self.config.scan_interval)

    def _leave(self, session: Session) -> None:
        """Let go of a slice of what a session that ended was registered for."""
        for key in list(islice(session.registered, TURN)):
            self._unregister(session, key)
        if not session.registered:
            self.leaving.popleft()

    def _without_registrations(self, session: Session) -> Session:
        """A stand-in that leaves in this session's stead, for a row that came only in part."""
        partial = Session(None, b"", self.now)
        for watched in session.registered.values():
            partial.add(watched, watched.leave(session))
        session.registered, session.hash_sum = {}, 0
        return partial

    # Sending.

    def _send_out(self) -> None:
        out, self.outbox.sessions = self.outbox.sessions, {}
        for session, outgoing in out.items():
            if self.conns.get(session.conn) is not session:
                continue
            open_ = session.phase is Phase.OPEN
            digest = None
            if outgoing.digest and open_ and not session.unsaved and not session.unconfirmed:
                digest = ServerDigest(len(session.registered), session.hash_sum, session.seen)
            for message in outgoing.messages(session.number if open_ else None, digest):
                self.outbox.emit(Send(session.conn, message))
            if outgoing.close:
                self.outbox.emit(Close(session.conn))
                self._end(session)
