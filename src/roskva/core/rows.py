"""The client rows of one shard, and who may write them.

A row is written by the newest session of its client and by no other. Sessions are numbered here, at
the row's owner, and always upwards: the number of this start of the owner in the high bits, a
counter in the low ones. Opening a session puts its number into the row before the session is
answered; from then on a write under a lower number is refused, however late it comes.

A client that never registered has no row, and opening its session writes nothing. Only a write that
says so creates a row; any other write to a missing row is refused: the client was forgotten.

In memory is only who is online: the session and the link it came by. For anyone else the row is
read first.

Rows of clients that have been away for too long (`expiry.py`) are dropped a `Page` at a time, as
the collector reads them. A page is old when it comes: whoever was back since it was asked for is
left alone. A row that was never created belongs to nobody, and a session that believes it is on
record there is told that it is not: its client registers again.

What one principal may have of all this is bounded (`shares.py`): a write that would create a row
beyond that, or add registrations, is refused as a whole, and its session ends.

`roskva job gc` asks for rows to be forgotten that it found in a copy of the store. Each is read
again, and dropped only if nobody has opened a session of its client since.
"""

from heapq import heappop, heappush
from typing import Final

import msgspec

from roskva.core.effects import (
    ClientRow,
    DropClient,
    DropRegistered,
    Effect,
    Event,
    Failed,
    FromLink,
    Handle,
    LinkDown,
    LoadClient,
    Loaded,
    Page,
    Persist,
    Persisted,
    PutClient,
    PutRegistered,
    SendLink,
    Write,
)
from roskva.core.expiry import ALWAYS, KeepOf, ScannedClient, client_expires_at, keep_by_default
from roskva.core.shares import SHARE_BY_DEFAULT, MaxShare, Shares
from roskva.errors import Fenced, LimitExceeded, UnknownClient
from roskva.wire.links import (
    MAX_LINK_PARTS,
    CloseSession,
    Forget,
    Forgotten,
    FromShard,
    OpenSession,
    Registered,
    RowRefused,
    RowWritten,
    SessionOpened,
    Superseded,
    WriteRow,
    WriteRows,
)

_COUNTER_BITS = 32

COUNTERS: Final = (
    *("opened", "fenced", "unknown", "over_share", "writes"),
    *("collected", "collected_registrations", "collected_orphans"),
)
_REFUSED_AS: Final = {
    Fenced.code: "fenced",
    UnknownClient.code: "unknown",
    LimitExceeded.code: "over_share",
}
_SOON_US: Final = 3600 * 10**6
"""What expires within this time waits in memory for it; the scan finds the rest."""
_MAX_DUE: Final = 100_000


class Holder(msgspec.Struct):
    """The newest session of a client that is online."""

    session: int
    link: Handle
    created: bool
    expiry_s: int | None = None
    registrations: int = 0
    """In the row."""


class Forgetting(msgspec.Struct, eq=False):
    """What is left of a `Forget`."""

    link: Handle
    request: int
    left: int
    count: int = 0


class Rows:
    def __init__(
        self,
        boot: int,
        wall_us: int,
        now: float,
        keep_of: KeepOf = keep_by_default,
        lost_grace: float = 120.0,
        max_share: MaxShare = SHARE_BY_DEFAULT,
    ) -> None:
        """`boot` is above that of every earlier start of this shard. Within `lost_grace` seconds
        after a link came up its registrar has said which sessions it has."""
        self.sessions = boot << _COUNTER_BITS
        self.wall_us = wall_us - int(now * 1e6)
        self.keep_of = keep_of
        self.lost_grace = lost_grace
        self.shares = Shares(max_share)
        self.lost_at = now
        """When it last could be that sessions ended and nobody wrote it down."""
        self.due: list[tuple[int, bytes]] = []
        """A heap: when to look at the row of a client that is away."""
        self.due_at: dict[bytes, int] = {}
        """The same by client; what else is in the heap is void."""
        self.touched: set[bytes] | None = None
        """Who came, went or was put on record since the page that is being read was asked for."""
        self.collecting: dict[int, list[ScannedClient]] = {}
        """What of a page is being dropped."""
        self.holders: dict[bytes, Holder] = {}
        self.opening: dict[int, tuple[Handle, OpenSession, int]] = {}
        self.checking: dict[int, bytes] = {}
        self.waiting: dict[bytes, list[tuple[Handle, WriteRow | CloseSession]]] = {}
        """Behind the read of a row whose holder is not in memory, in their order."""
        self.persisting: dict[int, tuple[Handle, list[FromShard]]] = {}
        self.creating: dict[int, tuple[bytes, bytes]] = {}
        """By client and account."""
        self.granting: dict[int, tuple[bytes, int]] = {}
        self.forgetting: dict[int, tuple[Forgetting, bytes, int]] = {}
        """Rows being read, and then dropped, with the session they must still be of."""
        self.ids = 0
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._effects: list[Effect] = []

    def step(self, event: Event, now: float) -> list[Effect]:
        match event:
            case FromLink(link=link, message=OpenSession() as message):
                self._open(link, message)
            case FromLink(link=link, message=WriteRow() as message):
                self._write(link, message, now)
            case FromLink(link=link, message=WriteRows() as message):
                self._write_all(link, message, now)
            case FromLink(link=link, message=CloseSession() as message):
                self._close(link, message, now)
            case FromLink(link=link, message=Forget() as message):
                self._forget(link, message)
            case Loaded():
                self._loaded(event, now)
            case Page():
                self._collect(event, now)
            case Persisted():
                self._persisted(event.id)
            case Failed():
                self._failed(event.id, now)
            case LinkDown():
                self._link_down(event.link, now)
            case _:
                raise TypeError(f"not for client rows: {event!r}")
        effects, self._effects = self._effects, []
        return effects

    def _open(self, link: Handle, message: OpenSession) -> None:
        """The older session is fenced from here on, before the row is read."""
        older = self.holders.get(message.client)
        session = self._next_session(older.session if older else 0)
        self.counters["opened"] += 1
        self._touch(message.client)
        created = older is not None and older.created
        self.holders[message.client] = Holder(session, link, created, message.expiry_s)
        if older is not None:
            self._tell(older.link, Superseded(message.client, older.session))
        id = self._load(message.client)
        self.opening[id] = (link, message, session)

    def _load(self, client: bytes) -> int:
        id = self._next_id()
        self._effects.append(LoadClient(id, client))
        return id

    def _loaded(self, event: Loaded, now: float) -> None:
        row = event.rows if isinstance(event.rows, ClientRow) else None
        if event.id in self.opening:
            self._opened(*self.opening.pop(event.id), row, now)
        elif event.id in self.checking:
            client = self.checking.pop(event.id)
            self._checked(client, row, self.waiting.pop(client), now)
        elif event.id in self.forgetting:
            self._drop_if_away(*self.forgetting.pop(event.id), row)

    def _checked(
        self,
        client: bytes,
        row: ClientRow | None,
        waiting: list[tuple[Handle, WriteRow | CloseSession]],
        now: float,
    ) -> None:
        for link, message in waiting:
            if client not in self.holders:
                stored = row.session if row else message.session
                if message.session < stored:
                    # Whose session that is, and whether it still is, nobody can tell: it gets no
                    # holder, for nobody might ever close it.
                    if type(message) is WriteRow:
                        self._refuse(link, message, Fenced.code)
                    continue
                held = len(row.registered) if row else 0
                self.holders[client] = Holder(stored, link, row is not None, message.expiry_s, held)
            if type(message) is WriteRow:
                self._write(link, message, now)
            elif type(message) is CloseSession:
                self._close(link, message, now)

    def _opened(
        self, link: Handle, opening: OpenSession, session: int, row: ClientRow | None, now: float
    ) -> None:
        client = opening.client
        holder = self.holders.get(client)
        superseded = holder is None or holder.session != session
        if holder is not None and not superseded and row is not None and row.session >= session:
            holder.session = session = self._next_session(row.session)
        kept = row is not None and opening.resume and opening.keep
        answers = _answers(opening, session, row, kept)
        if superseded:
            answers.append(Superseded(client, session))
        elif holder is not None and row is not None:
            holder.created = kept
            holder.registrations = len(row.registered) if kept else 0
            if not kept:
                self._count_dropped(client, row.account, len(row.registered))
            head = PutClient(client, session, self.wall(now), open=True, expiry_s=opening.expiry_s)
            id = self._persist(link, answers, [head if kept else DropClient(client)])
            self.granting[id] = (client, session)
            return
        for answer in answers:
            self._tell(link, answer)

    def _write(self, link: Handle, message: WriteRow, now: float) -> None:
        holder = self._holder(link, message)
        if holder is None:
            return
        if not self._count(message, holder):
            self._refuse(link, message, LimitExceeded.code)
            return
        creating = not holder.created
        answers: list[FromShard] = [RowWritten(message.request)] if message.request else []
        writes = self._writes(link, message, holder, now)
        if not writes:  # it only says that its session is there
            for answer in answers:
                self._tell(link, answer)
            return
        id = self._persist(link, answers, writes)
        if creating:
            self.creating[id] = message.client, message.account
            self._touch(message.client)

    def _write_all(self, link: Handle, message: WriteRows, now: float) -> None:
        writes: list[Write] = []
        for row in message.rows:
            holder = self._holder(link, row)
            if holder is not None:
                writes += self._writes(link, row, holder, now)
        if writes:
            self._persist(link, [], writes)

    def _holder(self, link: Handle, message: WriteRow) -> Holder | None:
        """None: it has to wait, or is refused."""
        if message.client in self.waiting:
            self.waiting[message.client].append((link, message))
            return None
        holder = self.holders.get(message.client)
        if holder is None:
            self.waiting[message.client] = [(link, message)]
            self.checking[self._load(message.client)] = message.client
            return None
        if message.session < holder.session:
            self._refuse(link, message, Fenced.code)
            return None
        if not holder.created and message.application is None:
            self._refuse(link, message, UnknownClient.code)
            return None
        return holder

    def _writes(self, link: Handle, message: WriteRow, holder: Holder, now: float) -> list[Write]:
        writes: list[Write] = []
        if not holder.created:
            holder.created = True
            # Of a row that was half lost there may be cells, and nothing of them is true any more.
            writes.append(DropClient(message.client))
            writes.append(self._head(message, now, message.application))
        elif message.session > holder.session:
            # The row came back from a backup, older than the session. If it did not learn the
            # number, the next session might get a lower one, and what it writes would be void.
            writes.append(self._head(message, now))
        holder.session = message.session
        holder.link = link
        writes.extend(DropRegistered(message.client, key) for key in message.drop)
        writes.extend(PutRegistered(message.client, message.session, cell) for cell in message.put)
        if writes:  # else it only says that its session is there
            self.counters["writes"] += 1
        return writes

    def _count(self, message: WriteRow, holder: Holder) -> bool:
        """Whether its principal may have what it adds. Acks and signs of life add nothing."""
        if message.held is None:
            return True
        clients, registrations = int(not holder.created), message.held - holder.registrations
        if not self.shares.has_room(message.account, clients, registrations):
            return False
        self.shares.changed(message.client, message.account, clients, registrations)
        holder.registrations = message.held
        return True

    def _count_dropped(self, client: bytes, account: bytes, registrations: int) -> None:
        self.shares.changed(client, account, -1, -registrations)

    def _refuse(self, link: Handle, message: WriteRow, code: str) -> None:
        self.counters[_REFUSED_AS[code]] += 1
        self._tell(link, RowRefused(message.client, message.session, code))

    def _close(self, link: Handle, message: CloseSession, now: float) -> None:
        if message.client in self.waiting:
            self.waiting[message.client].append((link, message))
            return
        holder = self.holders.get(message.client)
        if holder is None or holder.session > message.session:
            return
        del self.holders[message.client]
        self._touch(message.client)
        if holder.created:
            head = self._head(message, now)
            self._persist(None, [], [head])
            if message.expiry_s is not None:
                self._note_if_soon(head.seen_at + message.expiry_s * 10**6, message.client, now)

    def _forget(self, link: Handle, message: Forget) -> None:
        work = Forgetting(link, message.request, len(message.clients) + 1)
        for client, session in message.clients:
            self.forgetting[self._load(client)] = (work, client, session)
        self._one_less(work)

    def _drop_if_away(
        self, work: Forgetting, client: bytes, session: int, row: ClientRow | None
    ) -> None:
        """A row that was never created reads as none, and is dropped just as well."""
        back = client in self.holders or client in self.waiting
        if back or (row is not None and row.session != session):
            self._one_less(work)
        else:
            if row is not None:
                self._count_dropped(client, row.account, len(row.registered))
            self.forgetting[self._persist(None, [], [DropClient(client)])] = (work, client, session)

    def _one_less(self, work: Forgetting) -> None:
        work.left -= 1
        if not work.left:
            self._tell(work.link, Forgotten(work.request, work.count))

    def _link_down(self, link: Handle, now: float) -> None:
        """Sessions outlive their link: their numbers are in the rows, and the rows will be read."""
        self.note_sessions_unknown(now)
        for client in [c for c, holder in self.holders.items() if holder.link == link]:
            del self.holders[client]
            self._touch(client)

    # What has expired.

    def watch_page(self) -> None:
        """A page is about to be read."""
        self.touched = set()
        self.shares.meanwhile = []

    def take_due(self, now: float, most: int) -> list[bytes]:
        """Whose time has come by what is remembered; their rows have to be looked at."""
        found: list[bytes] = []
        wall = self.wall(now)
        while self.due and self.due[0][0] <= wall and len(found) < most:
            at, client = heappop(self.due)
            if self.due_at.get(client) == at:
                del self.due_at[client]
                found.append(client)
        return found

    def _touch(self, client: bytes) -> None:
        if self.touched is not None:
            self.touched.add(client)

    def note_sessions_unknown(self, now: float) -> None:
        """A link comes up or goes down, or a row cannot be read, and sessions are on no record."""
        self.lost_at = now

    def _note_if_soon(self, at: int, client: bytes, now: float) -> None:
        if at < self.wall(now) + _SOON_US:
            self.note_due(at, client)

    def note_due(self, at: int, client: bytes) -> None:
        if self.due_at.get(client) != at and len(self.due) < _MAX_DUE:
            self.due_at[client] = at
            heappush(self.due, (at, client))

    def _collect(self, page: Page, now: float) -> None:
        wall, lost_at = self.wall(now), self.wall(self.lost_at + self.lost_grace)
        gone = []
        touched, self.touched = self.touched or (), None
        for row in page.clients:
            at = client_expires_at(row, self.keep_of, lost_at)
            if at is None or row.client in touched or row.client in self.waiting:
                continue
            if at > wall:
                if row.client not in self.holders:
                    self._note_if_soon(at, row.client, now)
            elif self._lets_go(row):
                gone.append(row)
        if gone:
            id = self._persist(None, [], [DropClient(row.client) for row in gone])
            self.collecting[id] = gone

    def _lets_go(self, row: ScannedClient) -> bool:
        """Whether nobody needs it who is online."""
        holder = self.holders.get(row.client)
        if holder is None:
            return True
        if row.created or not holder.created:
            return False
        del self.holders[row.client]
        self._tell(holder.link, RowRefused(row.client, holder.session, UnknownClient.code))
        return True

    def _collected(self, gone: list[ScannedClient]) -> None:
        for row in gone:
            self._count_dropped(row.client, row.account, row.registrations)
        self.counters["collected"] += len(gone)
        self.counters["collected_registrations"] += sum(row.registrations for row in gone)
        self.counters["collected_orphans"] += sum(not row.created for row in gone)

    def _persist(self, link: Handle, answers: list[FromShard], writes: list[Write]) -> int:
        id = self._next_id()
        self.persisting[id] = (link, answers)
        self._effects.append(Persist(id, writes))
        return id

    def _persisted(self, id: int) -> None:
        self.creating.pop(id, None)
        self.granting.pop(id, None)
        link, answers = self.persisting.pop(id, (None, []))
        for answer in answers:
            self._tell(link, answer)
        if id in self.collecting:
            self._collected(self.collecting.pop(id))
        elif id in self.forgetting:
            work, _, _ = self.forgetting.pop(id)
            work.count += 1
            self._one_less(work)

    def _failed(self, id: int, now: float) -> None:
        """Nothing is answered; the other side asks again, as it does after any loss."""
        self.persisting.pop(id, None)
        for row in self.collecting.pop(id, ()):
            self.note_due(ALWAYS, row.client)
        if self.waiting.pop(self.checking.pop(id, b""), None):
            self.note_sessions_unknown(now)  # those that have said so are not on record
        if id in self.creating:
            client, account = self.creating.pop(id)
            self._count_dropped(client, account, 0)
            if (holder := self.holders.get(client)) is not None:
                holder.created = False
        if id in self.opening:
            _, opening, session = self.opening.pop(id)
            self._let_go(opening.client, session)
        elif id in self.granting:
            self._let_go(*self.granting.pop(id))
        elif id in self.forgetting:
            self._one_less(self.forgetting.pop(id)[0])

    def _let_go(self, client: bytes, session: int) -> None:
        """Nobody was told of this session, so nobody will close it."""
        holder = self.holders.get(client)
        if holder is not None and holder.session == session:
            del self.holders[client]

    def _tell(self, link: Handle, message: FromShard) -> None:
        self._effects.append(SendLink(link, message))

    def _next_session(self, above: int) -> int:
        """Above what the row has, too: boot numbers may go back with a lost disk and clock."""
        self.sessions = max(self.sessions, above) + 1
        return self.sessions

    def wall(self, now: float) -> int:
        return self.wall_us + int(now * 1e6)

    def _head(
        self, message: WriteRow | CloseSession, now: float, application: str | None = None
    ) -> PutClient:
        return PutClient(
            message.client,
            message.session,
            self.wall(now),
            application,
            open=type(message) is WriteRow,
            expiry_s=message.expiry_s,
            account=message.account if type(message) is WriteRow else b"",
        )

    def _next_id(self) -> int:
        self.ids += 1
        return self.ids


def _answers(
    opening: OpenSession, session: int, row: ClientRow | None, kept: bool
) -> list[FromShard]:
    if row is None or not opening.resume:
        return [SessionOpened(opening.request, session)]
    cells: list[Registered] = row.registered
    slices = [cells[i : i + MAX_LINK_PARTS] for i in range(0, len(cells), MAX_LINK_PARTS)] or [[]]
    return [
        SessionOpened(opening.request, session, kept, part, more=part is not slices[-1])
        for part in slices
    ]
