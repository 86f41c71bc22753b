"""What a registrar writes into client rows, through the shard that owns them.

Registrations are durable before they are confirmed: each write is a request, repeated until it is
answered, over every link that follows. Acks are written lazily, together, and asked about never:
losing one only repeats a notification, and lets an audit take a client for stale until everything
is written again.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from roskva.core.effects import SendLink
from roskva.core.freshness import Acked
from roskva.core.interest import Interests, LinkToShard
from roskva.core.session import Session, SessionPhase, Watched
from roskva.model import Key
from roskva.wire.links import MAX_LINK_PARTS, OpenSession, Registered, WriteRow, WriteRows

_FLUSHED_AT_ONCE: Final = 1000
"""Cells."""


class RowWrites:
    def __init__(self, interests: Interests, ack_flush: float) -> None:
        self.interests = interests
        self.outbox = interests.outbox
        self.ack_flush = ack_flush
        self.flush_at: float | None = None
        self.requests = 0

    def link_of(self, session: Session) -> LinkToShard:
        return self.interests.links[session.owner]

    def ask_for_session(self, session: Session) -> None:
        """Ask the owner for the session and its row; over the next link if this one breaks."""
        link = self.link_of(session)
        link.waiting[session] = None
        if link.up:
            request = self._next_request()
            link.requests[request] = (session, ())
            opening = OpenSession(
                request, session.client, session.resume, session.keep, session.expiry_s
            )
            self.outbox.emit(SendLink(link.shard, opening))

    def write(self, session: Session, keys: list[Key]) -> None:
        if not session.keep:
            return
        for i in range(0, len(keys), MAX_LINK_PARTS):
            self._write(session, keys[i : i + MAX_LINK_PARTS])

    def _write(self, session: Session, keys: list[Key]) -> None:
        link = self.link_of(session)
        request = self._next_request()
        unsaved = session.unsaved = session.unsaved or {}
        for key in keys:
            unsaved[key] = request
        link.waiting[session] = None
        if not link.up:
            return
        link.requests[request] = (session, tuple(keys))
        put = _cells(session, keys)
        drop = [key for key in keys if key not in session.registered]
        application = None if session.created else session.application
        message = WriteRow(
            *(request, session.client, session.number, put, drop, application, session.expiry_s),
            account=session.principal.account,
            held=len(session.registered),
        )
        self.outbox.emit(SendLink(link.shard, message))

    def tell_owner(self, session: Session) -> None:
        """Over a new link, until it is answered: that the session goes on. The owner may have
        forgotten who is online, and would take the client for one that is away."""
        link = self.link_of(session)
        if session.created and session.keep and link.up and session.held_in != link.incarnation:
            request = self._next_request()
            link.requests[request] = (session, ())
            row = WriteRow(request, session.client, session.number, expiry_s=session.expiry_s)
            self.outbox.emit(SendLink(link.shard, row))

    def repeat_writes(self, session: Session) -> None:
        self.write(session, list(session.unsaved or ()))

    def written(self, link: LinkToShard, request: int) -> tuple[Session, tuple[Key, ...]] | None:
        """The session a write was for, and the registrations that were in it."""
        session, keys = link.requests.pop(request, (None, ()))
        if session is None or session.phase is not SessionPhase.OPEN:
            return None
        session.created = True
        session.held_in = link.incarnation
        unsaved = session.unsaved or {}
        for key in keys:
            if unsaved.get(key) == request:
                del unsaved[key]
        if not unsaved:
            session.unsaved = None
            link.waiting.pop(session, None)
        return session, keys

    def set_acked(self, session: Session, watched: Watched, acked: Acked) -> None:
        watched.sessions[session] = acked
        if acked[0] > watched.max_acked:
            watched.max_acked = acked[0]
        if session.keep:
            self.mark_dirty(session, watched.key)

    def mark_dirty(self, session: Session, key: Key) -> None:
        """It has acked something of a row that is kept."""
        if session.dirty is not None:
            if session.dirty[-1] is not key:  # what it follows at a gallop is there already
                session.dirty.append(key)
            return
        link = self.link_of(session)
        if session not in link.dirty:  # else all of it is written anyway
            session.dirty = [key]
            link.dirty[session] = None
            self._flush_soon()

    def _flush_soon(self) -> None:
        if self.flush_at is None:
            self.flush_at = self.interests.now + self.ack_flush

    def link_up(self, link: LinkToShard) -> None:
        if link.dirty:
            self._flush_soon()

    def rewrite_all(self, sessions: Iterable[Session]) -> None:
        """All they have acked: some of it may be lost with a crash or a failed write."""
        for session in sessions:
            if session.keep and session.registered:
                session.dirty = None
                self.link_of(session).dirty[session] = None
        self._flush_soon()

    def flush(self) -> None:
        """A slice of the acks; whoever is left follows on the next tick."""
        cells, able = 0, [link for link in self.interests.links if link.up]
        for link in able:
            while link.dirty and cells < _FLUSHED_AT_ONCE:
                cells += self._flush_some(link)
        self.flush_at = self.interests.now if any(link.dirty for link in able) else None

    def flush_session(self, session: Session) -> None:
        link = self.link_of(session)
        while session in link.dirty:
            row = self._next_row(link, session, MAX_LINK_PARTS)
            if row is not None and link.up:
                self.outbox.emit(SendLink(link.shard, WriteRows([row])))

    def _flush_some(self, link: LinkToShard) -> int:
        """As much as one message holds; how much that was."""
        rows: list[WriteRow] = []
        left = MAX_LINK_PARTS
        for session in list(islice(link.dirty, left)):
            if not left:
                break
            row = self._next_row(link, session, left)
            left -= 1
            if row is not None:
                rows.append(row)
                left -= len(row.put) - 1
        if rows:
            self.outbox.emit(SendLink(link.shard, WriteRows(rows)))
        return MAX_LINK_PARTS - left

    def _next_row(self, link: LinkToShard, session: Session, room: int) -> WriteRow | None:
        """As many of its acks as there is room for; None if they are in no row."""
        keys = list(session.registered if session.dirty is None else dict.fromkeys(session.dirty))
        session.dirty = keys[room:] or None
        if session.dirty is None:
            del link.dirty[session]
        put = _cells(session, keys[:room])
        if not put or not session.created:
            return None
        return WriteRow(0, session.client, session.number, put)

    def _next_request(self) -> int:
        self.requests += 1
        return self.requests


def _cells(session: Session, keys: list[Key]) -> list[Registered]:
    held = session.registered
    return [Registered(key, *held[key].sessions[session]) for key in keys if key in held]
