"""The client rows of one shard, and who may write them.

A row is written by the newest session of its client and by no other. Sessions are numbered here, at
the row's owner, and always upwards: the number of this start of the owner in the high bits, a
counter in the low ones. Opening a session puts its number into the row before the session is
answered; from then on a write under a lower number is refused, however late it comes.

A client that never registered has no row, and opening its session writes nothing. Only a write that
says so creates a row; any other write to a missing row is refused: the client was forgotten.

In memory is only who is online: the session and the link it came by. For anyone else the row is
read first.

Garbage collection asks for rows to be forgotten that it found in a copy of the store. Each is read
again, and dropped only if nobody has opened a session of its client since.
"""

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
    Persist,
    Persisted,
    PutClient,
    PutRegistered,
    SendLink,
    Write,
)
from roskva.errors import Fenced, UnknownClient
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


class Holder(msgspec.Struct):
    """The newest session of a client that is online."""

    session: int
    link: Handle
    created: bool


class Forgetting(msgspec.Struct, eq=False):
    """What is left of a `Forget`."""

    link: Handle
    request: int
    left: int
    count: int = 0


class Rows:
    def __init__(self, boot: int, wall_us: int, now: float) -> None:
        """`boot` is above that of every earlier start of this shard."""
        self.sessions = boot << _COUNTER_BITS
        self.wall_us = wall_us - int(now * 1e6)
        self.holders: dict[bytes, Holder] = {}
        self.opening: dict[int, tuple[Handle, OpenSession, int]] = {}
        self.checking: dict[int, bytes] = {}
        self.waiting: dict[bytes, list[tuple[Handle, WriteRow | CloseSession]]] = {}
        """Behind the read of a row whose holder is not in memory, in their order."""
        self.persisting: dict[int, tuple[Handle, list[FromShard]]] = {}
        self.creating: dict[int, bytes] = {}
        self.granting: dict[int, tuple[bytes, int]] = {}
        self.forgetting: dict[int, tuple[Forgetting, bytes, int]] = {}
        """Rows being read, and then dropped, with the session they must still be of."""
        self.ids = 0
        self.counters = dict.fromkeys(("opened", "fenced", "unknown", "writes"), 0)
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
            case Persisted():
                self._persisted(event.id)
            case Failed():
                self._failed(event.id)
            case LinkDown():
                self._link_down(event.link)
            case _:
                raise TypeError(f"not for client rows: {event!r}")
        effects, self._effects = self._effects, []
        return effects

    def _open(self, link: Handle, message: OpenSession) -> None:
        """The older session is fenced from here on, before the row is read."""
        older = self.holders.get(message.client)
        session = self._next_session(older.session if older else 0)
        self.counters["opened"] += 1
        created = older is not None and older.created
        self.holders[message.client] = Holder(session, link, created)
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
                self.holders[client] = Holder(stored, link, row is not None)
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
            head = PutClient(client, session, self._wall(now))
            id = self._persist(link, answers, [head if kept else DropClient(client)])
            self.granting[id] = (client, session)
            return
        for answer in answers:
            self._tell(link, answer)

    def _write(self, link: Handle, message: WriteRow, now: float) -> None:
        holder = self._holder(link, message)
        if holder is None:
            return
        creating = not holder.created
        answers: list[FromShard] = [RowWritten(message.request)] if message.request else []
        id = self._persist(link, answers, self._writes(link, message, holder, now))
        if creating:
            self.creating[id] = message.client

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
            writes.append(self._head(message, now, message.application))
        elif message.session > holder.session:
            # The row came back from a backup, older than the session. If it did not learn the
            # number, the next session might get a lower one, and what it writes would be void.
            writes.append(self._head(message, now))
        holder.session = message.session
        holder.link = link
        writes.extend(DropRegistered(message.client, key) for key in message.drop)
        writes.extend(PutRegistered(message.client, message.session, cell) for cell in message.put)
        self.counters["writes"] += 1
        return writes

    def _refuse(self, link: Handle, message: WriteRow, code: str) -> None:
        self.counters["fenced" if code == Fenced.code else "unknown"] += 1
        self._tell(link, RowRefused(message.client, message.session, code))

    def _close(self, link: Handle, message: CloseSession, now: float) -> None:
        if message.client in self.waiting:
            self.waiting[message.client].append((link, message))
            return
        holder = self.holders.get(message.client)
        if holder is None or holder.session > message.session:
            return
        del self.holders[message.client]
        if holder.created:
            self._persist(None, [], [self._head(message, now)])

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
            self.forgetting[self._persist(None, [], [DropClient(client)])] = (work, client, session)

    def _one_less(self, work: Forgetting) -> None:
        work.left -= 1
        if not work.left:
            self._tell(work.link, Forgotten(work.request, work.count))

    def _link_down(self, link: Handle) -> None:
        """Sessions outlive their link: their numbers are in the rows, and the rows will be read."""
        for client in [c for c, holder in self.holders.items() if holder.link == link]:
            del self.holders[client]

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
        if id in self.forgetting:
            work, _, _ = self.forgetting.pop(id)
            work.count += 1
            self._one_less(work)

    def _failed(self, id: int) -> None:
        """Nothing is answered; the other side asks again, as it does after any loss."""
        self.persisting.pop(id, None)
        self.waiting.pop(self.checking.pop(id, b""), None)
        holder = self.holders.get(self.creating.pop(id, b""))
        if holder is not None:
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

    def _wall(self, now: float) -> int:
        return self.wall_us + int(now * 1e6)

    def _head(
        self, message: WriteRow | CloseSession, now: float, application: str | None = None
    ) -> PutClient:
        return PutClient(message.client, message.session, self._wall(now), application)

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
