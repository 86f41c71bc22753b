"""Sessions as they come and go: who is let in, with which token, who is still there, who is sent
away.

A server takes so many handshakes at a time, and so many sessions of one principal. Whoever is
turned away because of the first is given a slot of its own to come back in; the second is its own
doing, and it is told so. A session is granted after the row's owner has opened it, so the older one
of its client is fenced by then. From then on it is checked every so often, until it ends.
"""

from collections import deque
from collections.abc import Iterable
from hashlib import sha256
from itertools import islice
from typing import TYPE_CHECKING

from roskva.core.backoff import RateLimit
from roskva.core.effects import Attached, Handle, Reloaded, SendLink, Watching
from roskva.core.identity import NONCE_BYTES, Claims, Standing, TokenKeys
from roskva.core.interest import LinkToShard
from roskva.core.session import ONLY_SKIPPED, TURN, Session, SessionPhase
from roskva.errors import Fenced, LimitExceeded, Overloaded, TokenRejected, Unavailable
from roskva.model import Principal, shard_of
from roskva.wire.links import CloseSession, Registered, SessionOpened
from roskva.wire.messages import Grant, Hello, ServerError, SessionConfig

if TYPE_CHECKING:
    from roskva.core.registrar import Registrar


class SessionAdmission:
    def __init__(self, registrar: "Registrar", keys: TokenKeys, wall_s: float) -> None:
        self.registrar = registrar
        self.config, self.counters = registrar.config, registrar.counters
        self.interests, self.outbox = registrar.interests, registrar.outbox
        self.row_writes, self.conns = registrar.row_writes, registrar.conns
        self.keys = keys
        self.standing = Standing()
        self.wall_s = wall_s
        """What the wall's clock shows when ours begins."""
        self.sessions: dict[tuple[bytes, int], Session] = {}
        """By client and number: each shard counts its own."""
        self.joined: dict[tuple[str | None, str], int] = {}
        """Sessions of each principal, by app and name."""
        self.leaving: deque[Session] = deque()
        """They are over, and still in what is kept of the objects they were registered for."""
        self.shedding = False
        self.handshakes = RateLimit(self.config.handshakes)
        self.next_slot = self.interests.now
        self.to_check: deque[Session] = deque()
        self.wheel: dict[int, list[Session]] = {}
        """Who is to be checked, by the second."""
        self.wheel_turn = int(self.interests.now)

    # They come.

    def accept(self, conn: Handle, bits: bytes) -> Session:
        session = self.conns[conn] = Session(conn, bits, self.interests.now)
        self._check_later(session, self.config.handshake_timeout)
        return session

    def hello(self, session: Session, hello: Hello, principal: Principal) -> None:
        if session.phase is not SessionPhase.GREETING:
            return
        if not self._has_room():
            self._turn_away(session)
            return
        app, client = hello.app, session.bits[:16]
        if hello.token is not None:
            claims = self.keys.open(hello.token, int(self.wall_s + self.interests.now))
            if claims is None or claims.cell != self.config.cell:
                self._refuse_token(session)
                return
            app, client = claims.app, claims.client
            named = Principal(claims.principal, claims.app or None, claims.issued_at)
            principal = named.at(principal.address)
        if not self.standing.holds(principal):
            self._refuse_token(session)
            return
        session.app, session.principal = app or "", principal
        session.nonce = hello.nonce
        self._open(session, client, hello.application)

    def attach(self, session: Session, event: Attached) -> None:
        session.paced = session.once = True
        session.resume, session.keep = event.resume, event.keep
        session.principal, session.expiry_s = event.principal, event.expiry_s
        if self._has_room():
            self._open(session, event.client, event.application)
        else:
            self._turn_away(session)

    def watch(self, session: Session, event: Watching) -> None:
        session.client, session.keep, session.once = event.client, False, True
        session.principal = event.principal
        if not self._join(session):
            return
        session.phase = SessionPhase.OPEN
        self._add(session, event.registered)
        self.registrar.start_walk(session)

    def _has_room(self) -> bool:
        """For one more handshake, now."""
        return not self.shedding and self.handshakes.take(self.interests.now)

    def _turn_away(self, session: Session) -> None:
        now, rate = self.interests.now, self.config.handshakes
        free_at = max(self.next_slot, self.handshakes.free_at())
        if self.shedding:
            free_at = max(free_at, now + self.config.shedding_wait)
        self.next_slot = free_at + rate.window_ms / 1000 / rate.count
        self.counters["turned_away"] += 1
        out = self.outbox.dismiss(session, Overloaded.code, "too many at once")
        out.not_before_ms = min(int((self.next_slot - now) * 1000) + 1, 600_000)

    def _refuse_token(self, session: Session) -> None:
        self.counters["rejected_tokens"] += 1
        self._reject(session)

    def _reject(self, session: Session) -> None:
        self.outbox.to(session).error = ServerError(TokenRejected.code, "shake hands again")

    def _join(self, session: Session) -> bool:
        """Whether its principal may have one more; who may not is told so."""
        principal = session.principal
        if not principal.name:
            return True
        named = principal.app, principal.name
        count = self.joined.get(named, 0)
        if count >= self.config.max_sessions:
            self.counters["over_session_limit"] += 1
            text = "this principal has too many sessions"
            self.outbox.dismiss(session, LimitExceeded.code, text)
            return False
        self.joined[named] = count + 1
        return True

    def _part(self, principal: Principal) -> None:
        named = principal.app, principal.name
        count = self.joined.pop(named, 0)
        if count > 1:
            self.joined[named] = count - 1

    # Their rows are opened.

    def _open(self, session: Session, client: bytes, application: str) -> None:
        if not self._join(session):
            return
        session.client = client
        session.application = application
        session.owner = shard_of(client, self.config.shards)
        session.phase = SessionPhase.OPENING
        self.row_writes.ask_for_session(session)

    def open_again(self, session: Session) -> None:
        """Of its row it may have had a part. That leaves with a stand-in."""
        partial = Session(None, b"", self.interests.now)
        for watched in session.registered.values():
            partial.add(watched, watched.leave(session))
        session.registered, session.hash_sum = {}, 0
        self.leaving.append(partial)
        self.row_writes.ask_for_session(session)

    def opened(self, link: LinkToShard, message: SessionOpened) -> None:
        session, _ = link.requests.get(message.request, (None, ()))
        if session is None:
            return
        if not message.more:
            del link.requests[message.request]
        if self.conns.get(session.conn) is not session:
            closed = CloseSession(session.client, message.session, session.expiry_s)
            self.outbox.emit(SendLink(link.shard, closed))
            return
        session.number = message.session
        session.created = message.created
        session.held_in = link.incarnation
        self._add(session, message.registered)
        if not message.more:
            link.waiting.pop(session, None)
            self._grant(session)

    def _add(self, session: Session, registered: Iterable[Registered]) -> None:
        for cell in registered:
            session.add(self.interests.watch(cell.object), (cell.acked, cell.epoch))
        self.interests.send_changes()

    def _grant(self, session: Session) -> None:
        # A shard that lost its disk, and whose clock went back, may give a number out again.
        self.fence(session.client, session.number, Fenced.code)
        session.phase = SessionPhase.OPEN
        self.sessions[session.client, session.number] = session
        out = self.outbox.to(session)
        out.digest = True
        out.config = SessionConfig(max(1, int(self.config.heartbeat * 1000)))
        if session.nonce is not None:
            session.bits = session.bits[16:]
            out.grant = Grant(session.client, self._token(session), session.nonce)
        session.nonce = None
        self.registrar.start_walk(session)

    def _token(self, session: Session) -> bytes:
        now, lifetime, principal = self.interests.now, self.config.token_lifetime, session.principal
        session.refresh_at = now + lifetime / 2
        claims = Claims(
            session.app,
            session.client,
            principal.name,
            self.config.cell,
            int(self.wall_s + now + lifetime),
            principal.issued_at,
        )
        return self.keys.seal(claims, session.bits[:NONCE_BYTES])

    # They stay.

    def _check_later(self, session: Session, delay: float) -> None:
        turn = self.wheel_turn + max(1, round(delay))
        self.wheel.setdefault(turn, []).append(session)

    def turn_wheel(self) -> None:
        while self.wheel_turn < int(self.interests.now):
            self.wheel_turn += 1
            self.to_check.extend(self.wheel.pop(self.wheel_turn, ()))

    def check_some(self) -> None:
        for _ in range(min(len(self.to_check), TURN)):
            self._check(self.to_check.popleft())

    def _check(self, session: Session) -> None:
        """Every session's regular check: is it there, is its row safe, is it told everything?"""
        if self.conns.get(session.conn) is not session:
            return
        if session.phase is SessionPhase.OPEN:
            patience = self.config.heartbeat * self.config.missed_heartbeats
        else:
            patience = self.config.handshake_timeout / 2
        if self.interests.now - session.heard_at > patience:
            if session.phase is SessionPhase.OPENING:
                text = "this client's shard does not answer"
                self.outbox.dismiss(session, Unavailable.code, text)
            else:
                self.counters["expired"] += 1
                self.outbox.to(session).close = True
            return
        if session.phase is SessionPhase.OPEN:
            if session.unsaved:
                self.row_writes.repeat_writes(session)
            self.row_writes.tell_owner(session)
            self._refresh(session)
            if not session.lagging:  # else it is scanned when it has drained
                self._tell_again(session)
        self._check_later(session, self.config.scan_interval)

    def _tell_again(self, session: Session) -> None:
        """What it has not acked; over a channel that repeats nothing, what was kept back."""
        if not session.once:
            self.registrar.start_walk(session, repeats=True)
        elif session.skipped:
            self.registrar.start_walk(session, since=ONLY_SKIPPED)

    def _refresh(self, session: Session) -> None:
        """A client that stays longer than its token lasts has another by then. The bits are used
        but once: each time, others are made of them."""
        if session.refresh_at is not None and self.interests.now >= session.refresh_at:
            self.counters["refreshed_tokens"] += 1
            session.bits = sha256(session.bits).digest()[:NONCE_BYTES]
            self.outbox.to(session).grant = Grant(session.client, self._token(session))

    # They go.

    def reload(self, event: Reloaded) -> None:
        self.keys, self.standing = event.keys, event.standing
        for session in self.conns.values():
            greeted = session.phase is not SessionPhase.GREETING
            if greeted and not self.standing.holds(session.principal):
                self.counters["revoked"] += 1
                self._reject(session)
                self.outbox.to(session).close = True

    def fence(self, client: bytes, number: int, code: str) -> None:
        session = self.sessions.get((client, number))
        if session is not None:
            self.counters["fenced"] += code == Fenced.code
            self.outbox.dismiss(session, code)

    def dismiss(self, session: Session, not_before_ms: int) -> None:
        out = self.outbox.dismiss(session, Unavailable.code, "this server is stopping")
        out.not_before_ms = not_before_ms

    def end(self, session: Session | None) -> None:
        if session is None or self.conns.pop(session.conn, None) is None:
            return
        link = self.row_writes.link_of(session)
        link.waiting.pop(session, None)
        self.registrar.slow.discard(session)
        named = session.client, session.number
        if self.sessions.get(named) is not session:
            link.dirty.pop(session, None)  # another one has its number, or it has none
        else:
            del self.sessions[named]
            self.row_writes.flush_session(session)
            closed = CloseSession(session.client, session.number, session.expiry_s)
            self.outbox.emit(SendLink(link.shard, closed))
        if session.phase is not SessionPhase.GREETING:
            self._part(session.principal)
        session.phase = SessionPhase.GREETING
        self.leaving.append(session)

    def let_go_of_some(self) -> None:
        """A slice of what a session that ended was registered for."""
        session = self.leaving[0]
        for watched in list(islice(session.registered.values(), TURN)):
            self.interests.release(session, watched)
        if not session.registered:
            self.leaving.popleft()
