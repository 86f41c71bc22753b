"""The cluster around the hosts: carries their effects out on a state, and lets things fail.

Every method that `moves.py` names changes the state it is given; there it says which of them may
happen when.

Storage operations are carried out one after the other, by the rules of the store. A write and its
answer are one step; a crash may come after the write and before the answer. A load is carried out,
and answered some time later. A publish is one step: the group it is in is durable when asked for.
"""

from collections.abc import Hashable
from typing import Any, Final

from roskva.core.effects import (
    Acknowledge,
    Apply,
    Close,
    CloseConnection,
    Closed,
    Connected,
    Deliver,
    Disconnected,
    Drained,
    DropClient,
    DropLink,
    DropRegistered,
    Failed,
    FeedEnd,
    FeedMissing,
    FromConnection,
    FromLink,
    FromServer,
    Lagging,
    LinkDown,
    LinkUp,
    LoadClient,
    Loaded,
    LoadObjects,
    Notify,
    NotifyUnknown,
    ObjectRow,
    OpenConnection,
    Opened,
    Persist,
    Persisted,
    PutClient,
    PutObject,
    PutRegistered,
    PutShard,
    ReadFeed,
    Register,
    RegistrationFailure,
    ReissueRegistrations,
    SaveIdentity,
    Send,
    SendLink,
    Transmit,
    Unregister,
    Write,
)
from roskva.core.effects import ClientRow as LoadedRow
from roskva.host.effects import Append, Appended, SetMarker
from roskva.host.shard import _ASKERS, _MATCHER, _ROWS
from roskva.model import Update
from roskva.wire.links import Offer, OpenSession, PublishUpdates, Pushes, Registered, Versions
from verification.exploration import judge
from verification.exploration.bounds import Bounds
from verification.exploration.machines import (
    ClientMachines,
    KnownSession,
    Numbers,
    RegistrarMachines,
    ShardMachines,
    TimeUp,
)
from verification.exploration.state import (
    CLOSE,
    START,
    ClientState,
    Conn,
    ExploredDisk,
    ExploredLink,
    ExploredState,
    index_of,
    key_of,
)

BACKEND: Final = -1
"""The link by which updates are published and offered."""
_BOOT_BITS: Final = 32
_TOKEN_BITS: Final = bytes(12)


class ExploredShard:
    """The lower half: one shard with its host, store and feed."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.numbers = Numbers()
        self.shards = ShardMachines(self.numbers)

    def no_rows(self) -> list[int]:
        return [self.numbers.of(ObjectRow())] * self.bounds.objects

    # Its host.

    def to_host(self, state: ExploredState, event: Hashable, handed_over: bool = True) -> None:
        """`handed_over`: what is appended in this step goes to the matcher as well."""
        disk = state.disk
        before = self.shards.matcher.facts[state.matcher].epoch
        client = self._concerns(state, event)
        lowest = disk.boot << _BOOT_BITS
        sessions = max(disk.newest_session(client), lowest) if client else lowest
        outcome = self.shards.step(
            state, event, {"matcher": self._under_way(disk), "rows": sessions}
        )
        state.host = outcome.host
        for part, number in outcome.parts.items():
            setattr(state, part, number)
        if self.shards.matcher.facts[state.matcher].epoch != before:
            disk.epochs += 1
        if client and outcome.sessions > sessions:
            others = [item for item in disk.sessions if item[0] != client]
            disk.sessions = sorted([*others, (client, outcome.sessions)])
        for effect in outcome.effects:
            self._carry_out(state, effect, handed_over)

    def _under_way(self, disk: ExploredDisk) -> int:
        """The highest number of the matcher's requests."""
        if not disk.operations and not disk.answers:
            return 0
        ids = [self.numbers.values[number].id for number in (*disk.operations, *disk.answers)]
        return max((id // _ASKERS for id in ids if id % _ASKERS == _MATCHER), default=0)

    def _concerns(self, state: ExploredState, event: Hashable) -> bytes | None:
        """The client whose session this event may number: which of two clients came first is not
        to be seen in their sessions."""
        match event:
            case FromLink(message=int() as frame):
                message = self.numbers.values[frame]
                return message.client if type(message) is OpenSession else None
            case Loaded(id=id) if id % _ASKERS == _ROWS:
                return self.shards.rows.facts[state.rows].get(id // _ASKERS)
            case _:
                return None

    def _carry_out(self, state: ExploredState, effect: Any, handed_over: bool) -> None:
        disk = state.disk
        match effect:
            case SendLink(link=-1, message=int() as frame):
                judge.answered(disk, self.numbers.values[frame])
            case SendLink(link=handle, message=int() as frame):
                link = self._shard_link(state, handle)
                if link is not None and link.registrar_open and not link.silent:
                    link.to_registrar.append(frame)
            case int() as operation:
                judge.accepted(disk, self.numbers.values[operation])
                disk.operations.append(operation)
            case ReadFeed(lineage=lineage, after=after):
                disk.reads.append((lineage, after))
            case SetMarker(lineage=lineage, offset=offset):
                judge.durable(disk, lineage, offset)
            case DropLink(link=handle):
                link = self._shard_link(state, handle)
                if link is not None:
                    self.drop_link(state, link)
            case Append(request=request, updates=updates):
                first = disk.last() + 1
                disk.feed += [(index_of(update.object), update.version) for update in updates]
                entries = tuple(enumerate(updates, first))
                appended = Appended(first, disk.last(), entries, (request,))
                self.to_host(state, (appended, handed_over))

    def shard_timer(self, state: ExploredState, timer: str) -> None:
        self.to_host(state, TimeUp(timer))

    def feed_tick(self, state: ExploredState) -> None:
        disk = state.disk
        self.to_host(state, FeedEnd(disk.feed_lineage, disk.last(), disk.epochs))

    # Its links.

    def deliver_to_shard(self, state: ExploredState, k: int) -> None:
        link = state.links[k]
        frame = link.to_shard.pop(0)
        if frame == CLOSE:
            self.drop_link(state, link)
        else:
            self.to_host(state, FromLink(link.handle(), frame))  # type: ignore[arg-type]

    def drop_link(self, state: ExploredState, link: ExploredLink) -> None:
        """By the shard, or because the registrar's end is gone."""
        link.close_lower_end()
        self.to_host(state, LinkDown(link.handle()))

    def shard_silence(self, state: ExploredState, k: int) -> None:
        link = state.links[k]
        if link.handle() in self.shards.matcher.facts[state.matcher].links:
            self.to_host(state, TimeUp("silence", link.handle()))
        else:
            link.shard_open = False  # the shard never heard of it

    def _shard_link(self, state: ExploredState, handle: Hashable) -> ExploredLink | None:
        return next((x for x in state.links if x.handle() == handle and x.shard_open), None)

    # Its store.

    def operate(self, state: ExploredState) -> None:
        disk = state.disk
        operation = self.numbers.values[disk.operations.pop(0)]
        if type(operation) is Persist:
            self._write(disk, operation)
            self.to_host(state, Persisted(operation.id))
        else:
            disk.answers.append(self.numbers.of(Loaded(operation.id, self._load(disk, operation))))

    def fail(self, state: ExploredState) -> None:
        operation = self.numbers.values[state.disk.operations.pop(0)]
        self.to_host(state, Failed(operation.id))

    def answer(self, state: ExploredState) -> None:
        self.to_host(state, self.numbers.values[state.disk.answers.pop(0)])

    def _load(self, disk: ExploredDisk, operation: LoadObjects | LoadClient) -> Any:
        """What it finds now."""
        if type(operation) is LoadObjects:
            rows = self.numbers.values
            return tuple((key, rows[disk.objects[index_of(key)]]) for key in operation.keys)
        row = disk.row(operation.client)  # type: ignore[union-attr]
        if row is None:
            return None
        cells = tuple(Registered(key_of(index), a, e) for index, _, a, e in row.cells)
        return LoadedRow(row.session, "", cells)  # type: ignore[arg-type]

    def _write(self, disk: ExploredDisk, operation: Persist) -> None:
        for write in operation.writes:
            self._put(disk, write)
        judge.marker(disk, [self.numbers.values[row].version for row in disk.objects])

    def _put(self, disk: ExploredDisk, write: Write) -> None:
        match write:
            case PutObject(key=key, row=row):
                index = index_of(key)
                if row.version >= self.numbers.values[disk.objects[index]].version:
                    disk.objects[index] = self.numbers.of(row)
            case PutShard():
                disk.epoch, disk.lineage, disk.applied = write.epoch, write.lineage, write.applied
            case PutClient(client=client, session=session, application=application):
                head = disk.head(client)
                head.session = max(head.session, session)
                head.created = head.created or application is not None
            case PutRegistered(client=client, session=session, registered=cell):
                new = index_of(cell.object), session, cell.acked, cell.epoch
                disk.head(client).put(new)
            case DropRegistered(client=client, key=key):
                disk.head(client).drop(index_of(key))
            case DropClient(client=client):
                disk.rows = [row for row in disk.rows if row.client != client]

    # Its feed.

    def read(self, state: ExploredState) -> None:
        """What follows the offset."""
        disk = state.disk
        lineage, after = disk.reads.pop(0)
        last, bits = disk.last(), disk.epochs
        if lineage != disk.feed_lineage or after >= last:
            self.to_host(state, FeedEnd(disk.feed_lineage, last, bits))
        elif after + 1 < disk.feed_first:
            self.to_host(state, FeedMissing(lineage, disk.feed_first - 1, bits))
        else:
            entries = tuple(self._entries(disk, after + 1))
            self.to_host(state, Apply(lineage, after + 1, last, entries))

    def _entries(self, disk: ExploredDisk, first: int) -> list[tuple[int, Update]]:
        updates = [Update(key_of(index), version) for index, version in disk.feed[first - 1 :]]
        return list(enumerate(updates, first))

    def publish(self, state: ExploredState, index: int, handed_over: bool = True) -> None:
        state.published[index] += 1
        update = Update(key_of(index), state.published[index])
        self._from_backend(state, PublishUpdates(1, [update]), handed_over)

    def publish_unseen(self, state: ExploredState, index: int) -> None:
        state.spend("publishes")
        self.publish(state, index, handed_over=False)

    def deliver_again(self, state: ExploredState, first: int) -> None:
        """The bridge hands over all from this offset on, and waits for the answer."""
        disk = state.disk
        entries = self._entries(disk, first)
        self._from_backend(state, Offer(1, 0, disk.feed_lineage, first, disk.last(), entries))

    def _from_backend(
        self, state: ExploredState, message: PublishUpdates | Offer, handed_over: bool = True
    ) -> None:
        frame: Any = self.numbers.to_shard(message)
        self.to_host(state, FromLink(BACKEND, frame), handed_over)

    def lose_feed(self, state: ExploredState) -> None:
        disk = state.disk
        disk.feed_first = disk.last() + 1
        disk.lost_in = disk.epochs

    def crash_shard(self, state: ExploredState, written: int, lost: str) -> None:
        """Of the operations under way the first few were carried out."""
        disk = state.disk
        for number in disk.operations[:written]:
            operation = self.numbers.values[number]
            if type(operation) is Persist:
                self._write(disk, operation)
        disk.operations, disk.answers, disk.reads = [], [], []
        for link in state.links:
            if link.shard_open:
                link.close_lower_end()
        self._lose(disk, lost)
        disk.boot += 1
        self.start_shard(state)

    def start_shard(self, state: ExploredState) -> None:
        disk = state.disk
        self.shards.start(state, PutShard(disk.epoch, disk.lineage, disk.applied))
        self.feed_tick(state)

    def _lose(self, disk: ExploredDisk, lost: str) -> None:
        if lost == "rows":
            disk.rows = []
        elif lost == "feed":
            disk.feed_lineage += 1
            disk.feed, disk.feed_first = [], 1
        elif lost == "state":
            disk.objects = self.no_rows()
            disk.epochs += 1
            disk.epoch, disk.lineage, disk.applied = disk.epochs, disk.feed_lineage, START


class Cluster(ExploredShard):
    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.clients = ClientMachines(self.numbers)
        self.registrars = RegistrarMachines(self.numbers, lags=bounds.lags > 0)

    def initial(self) -> ExploredState:
        bounds, none = self.bounds, [0] * self.bounds.objects
        state = ExploredState(
            clients=[self._client() for _ in range(bounds.clients)],
            registrars=[self.registrars.start()] * bounds.registrars,
            host=0,
            matcher=0,
            rows=0,
            disk=ExploredDisk(self.no_rows(), 1, 1, START, [], 1, 1, []),
            conns=[],
            links=[],
            published=none,
            budget=bounds.budget(),
        )
        self.start_shard(state)
        for client in range(bounds.clients):
            for index in range(bounds.objects):
                self.to_client(state, client, Register(key_of(index)))
        state.tidy()
        return state

    def _client(self) -> ClientState:
        none = [0] * self.bounds.objects
        return ClientState(
            core=self.clients.start(),
            knows=list(none),
            acked=list(none),
            claimed=list(none),
            vouched=list(none),
            declared=[False] * self.bounds.objects,
            wanted=[True] * self.bounds.objects,
            inbox=[],
        )

    # Clients and their applications.

    def to_client(
        self, state: ExploredState, number: int, event: Hashable, registrar: int = 0
    ) -> None:
        client, conn = state.clients[number], state.conn_of(number)
        facts = self.clients.facts[client.core]
        above = self.clients.in_flight(conn.to_server, facts) if conn else 0
        client.core, effects = self.clients.step(client.core, event, above)
        for effect in effects:
            match effect:
                case Transmit(message=int() as frame):
                    conn = state.conn_of(number)
                    if conn is not None and conn.server_open:
                        conn.to_server.append(frame)
                case Deliver(event=event):
                    self._delivered(state, number, event)
                case OpenConnection():
                    self._dial(state, number, registrar)
                case CloseConnection():
                    self._disconnect(state, number)
                case SaveIdentity(identity=identity):
                    client.identity = identity

    def client_timer(self, state: ExploredState, number: int, timer: str, registrar: int) -> None:
        self.to_client(state, number, TimeUp(timer), registrar)

    def _delivered(self, state: ExploredState, number: int, event: Any) -> None:
        match event:
            case Notify(object=key, version=version, epoch=epoch):
                judge.told(state, number, index_of(key), version)
                self._told(state, number, (index_of(key), version, epoch))
            case NotifyUnknown(object=key, epoch=epoch):
                self._told(state, number, (index_of(key), -1, epoch))
            case RegistrationFailure(object=key):
                if state.clients[number].wanted[index_of(key)]:
                    self.to_client(state, number, Register(key))
            case ReissueRegistrations():
                self._reissue(state, number)

    def _told(self, state: ExploredState, number: int, news: tuple[int, int, int]) -> None:
        if self.bounds.slow_apps:
            state.clients[number].inbox.append(news)
        else:
            self._act(state, number, news)

    def read_inbox(self, state: ExploredState, number: int) -> None:
        self._act(state, number, state.clients[number].inbox.pop(0))

    def _act(self, state: ExploredState, number: int, news: tuple[int, int, int]) -> None:
        """The application takes the version, or goes and looks; then it acks."""
        index, version, epoch = news
        client = state.clients[number]
        if not client.wanted[index]:
            return
        if version < 0:
            client.knows[index] = state.published[index]
        else:
            client.knows[index] = max(client.knows[index], version)
            client.acked[index] = max(client.acked[index], version)
            client.claimed[index] = max(client.claimed[index], version)
        client.vouched[index] = max(client.vouched[index], epoch)
        told = None if version < 0 else version
        self.to_client(state, number, Acknowledge(key_of(index), told, epoch))

    def _reissue(self, state: ExploredState, number: int) -> None:
        client = state.clients[number]
        for index, wanted in enumerate(client.wanted):
            if wanted and client.declares and client.knows[index]:
                self.declare(state, number, index, client.knows[index])
            elif wanted:
                self.to_client(state, number, Register(key_of(index)))

    def declare(self, state: ExploredState, number: int, index: int, version: int) -> None:
        """The application's cache holds this version, whatever it was told before."""
        client = state.clients[number]
        client.wanted[index] = client.declared[index] = True
        client.knows[index] = client.acked[index] = version
        client.claimed[index] = max(client.claimed[index], version)
        self.to_client(state, number, Register(key_of(index), version))

    def register(self, state: ExploredState, number: int, index: int) -> None:
        state.clients[number].wanted[index] = True
        self.to_client(state, number, Register(key_of(index)))

    def unregister(self, state: ExploredState, number: int, index: int) -> None:
        client = state.clients[number]
        client.wanted[index] = False
        client.knows[index] = client.acked[index] = 0
        client.inbox = [news for news in client.inbox if news[0] != index]
        self.to_client(state, number, Unregister(key_of(index)))

    def crash_client(self, state: ExploredState, number: int, keep: bool, declares: bool) -> None:
        client = state.clients[number]
        self._disconnect(state, number)
        client.inbox = []
        client.acked = [0] * self.bounds.objects
        client.declares = declares
        if not keep:
            client.identity = None
            client.knows, client.claimed = list(client.acked), list(client.acked)
            client.vouched = list(client.acked)
            client.declared = [False] * self.bounds.objects
        client.core = self.clients.start(client.identity)
        if client.identity is None:
            self._reissue(state, number)

    # Connections.

    def _dial(self, state: ExploredState, number: int, registrar: int) -> None:
        client = state.clients[number]
        taken = [c.slot for c in state.conns if (c.client, c.registrar) == (number, registrar)]
        slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
        conn = Conn(number, registrar, slot)
        state.conns.append(conn)
        if not self.clients.facts[client.core].greeted:
            client.generation += 1
        bits = bytes([number, client.generation]) * 8 + _TOKEN_BITS
        self.to_registrar(state, registrar, Opened(conn.handle(), bits))
        self.to_client(state, number, Connected())

    def _disconnect(self, state: ExploredState, number: int) -> None:
        conn = state.conn_of(number)
        if conn is not None:
            conn.client_open = False
            conn.to_client = []
            if conn.server_open:
                conn.to_server.append(CLOSE)

    def hang_up(self, state: ExploredState, c: int) -> None:
        """Neither side wants to."""
        conn = state.conns[c]
        conn.to_server, conn.to_client = [CLOSE], [CLOSE]

    def deliver(
        self, state: ExploredState, way: str, c: int, place: int = 0, keep: bool = False
    ) -> None:
        """`keep`: it is still under way."""
        conn = state.conns[c]
        queue: list[int] = getattr(conn, way)
        frame: Any = queue[place] if keep else queue.pop(place)
        if way == "to_client":
            if frame == CLOSE:
                conn.client_open = False
                conn.to_client = []
            event: Hashable = Disconnected() if frame == CLOSE else FromServer(frame)
            self.to_client(state, conn.client, event)
            return
        if frame == CLOSE:
            conn.server_open = False
            conn.to_server = []
        handle = conn.handle()
        event = Closed(handle) if frame == CLOSE else FromConnection(handle, frame)
        self.to_registrar(state, conn.registrar, event)

    def lose(self, state: ExploredState, way: str, c: int, place: int) -> None:
        getattr(state.conns[c], way).pop(place)

    def lag(self, state: ExploredState, c: int) -> None:
        conn = state.conns[c]
        self.to_registrar(state, conn.registrar, Lagging(conn.handle()))

    def drain(self, state: ExploredState, c: int) -> None:
        conn = state.conns[c]
        self.to_registrar(state, conn.registrar, Drained(conn.handle()))

    # Registrars.

    def to_registrar(self, state: ExploredState, number: int, event: Hashable) -> None:
        state.registrars[number], effects = self.registrars.step(state.registrars[number], event)
        for effect in effects:
            match effect:
                case Send(conn=handle, message=int() as frame):
                    self._send(state, self._conn(state, number, handle), frame)
                case SendLink(message=int() as frame):
                    link = state.link_of(number)
                    if link is not None and link.shard_open and not link.silent:
                        link.to_shard.append(frame)
                case Close(conn=handle):
                    conn = self._conn(state, number, handle)
                    if conn is not None:
                        conn.close_upper_end()
                case DropLink():
                    self._give_up_link(state, number)
        judge.remembered(self.registrars.facts[state.registrars[number]])

    def registrar_timer(self, state: ExploredState, number: int, timer: str, of: int = 0) -> None:
        self.to_registrar(state, number, TimeUp(timer, of))

    def registrar_silence(self, state: ExploredState, number: int) -> None:
        """Of its link."""
        self.registrar_timer(state, number, "silence")

    def ping(self, state: ExploredState, number: int) -> None:
        """With its answer: while both are under way nothing can happen that could not before."""
        self.registrar_timer(state, number, "ping")
        link = state.link_of(number)
        assert link is not None
        if len(link.to_shard) == 1:
            self.deliver_to_shard(state, state.links.index(link))
        if len(link.to_registrar) == 1:
            self.deliver_to_registrar(state, state.links.index(link))

    def session(self, state: ExploredState, conn: Conn) -> KnownSession | None:
        facts = self.registrars.facts[state.registrars[conn.registrar]]
        return facts.sessions.get(conn.handle())

    def lags(self, state: ExploredState, conn: Conn) -> bool:
        session = self.session(state, conn)
        return session is not None and session.lagging

    def _conn(self, state: ExploredState, registrar: int, handle: Hashable) -> Conn | None:
        for conn in state.conns:
            if conn.registrar == registrar and conn.handle() == handle and conn.server_open:
                return conn
        return None

    def _send(self, state: ExploredState, conn: Conn | None, frame: int) -> None:
        if conn is None:
            return
        facts = self.registrars.facts[state.registrars[conn.registrar]]
        judge.confirmed(state, self.bounds, conn, facts, self.numbers.values[frame])
        if conn.client_open:
            conn.to_client.append(frame)

    def crash_registrar(self, state: ExploredState, number: int) -> None:
        for conn in state.conns:
            if conn.registrar == number and conn.server_open:
                conn.close_upper_end()
        self._give_up_link(state, number, tell=False)
        state.registrars[number] = self.registrars.start()

    # Links.

    def dial_shard(self, state: ExploredState, number: int) -> None:
        taken = [link.slot for link in state.links if link.registrar == number]
        slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
        state.links.append(ExploredLink(number, slot))
        self.to_registrar(state, number, LinkUp(0))

    def _give_up_link(self, state: ExploredState, number: int, tell: bool = True) -> None:
        link = state.link_of(number)
        if link is None:
            return
        link.registrar_open = False
        link.to_registrar, link.learned = [], []
        if link.shard_open and not link.silent:
            link.to_shard.append(CLOSE)
        if tell:
            self.to_registrar(state, number, LinkDown(0))

    def deliver_to_registrar(self, state: ExploredState, k: int) -> None:
        link = state.links[k]
        frame: Any = link.to_registrar.pop(0)
        if frame == CLOSE:
            self._give_up_link(state, link.registrar)
            return
        match self.numbers.values[frame]:
            case Versions(known=known):
                link.learned = sorted({*link.learned, *(index_of(said.object) for said in known)})
            case Pushes(pushes=pushes):
                link.learned = sorted({*link.learned, *(index_of(p.object) for p in pushes)})
        self.to_registrar(state, link.registrar, FromLink(0, frame))

    def break_link(self, state: ExploredState, k: int) -> None:
        link = state.links[k]
        link.to_shard = [CLOSE] if link.shard_open else []
        link.to_registrar = [CLOSE] if link.registrar_open else []

    def silence_link(self, state: ExploredState, k: int) -> None:
        link = state.links[k]
        link.silent = True
        link.to_shard, link.to_registrar = [], []
