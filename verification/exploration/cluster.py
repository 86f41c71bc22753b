"""The cluster around the machines: carries their effects out on a state, and lets things fail.

Every method changes the state it is given. `moves.py` says which of them may happen when.

Storage operations are carried out one after the other, by the rules of the store. A write and its
answer are one step; a crash may come after the write and before the answer. A load is carried out,
and answered some time later.
"""

from roskva.core.effects import (
    DropClient,
    DropRegistered,
    ObjectRow,
    PutClient,
    PutObject,
    PutRegistered,
    PutShard,
    Write,
)
from roskva.wire.links import CloseSession, OpenSession, Pushes, Versions, WriteRow, WriteRows
from verification.exploration import judge
from verification.exploration.bounds import Bounds
from verification.exploration.machines import (
    ClientMachines,
    Frames,
    MatcherMachines,
    RegistrarMachines,
    RowsMachines,
    Words,
)
from verification.exploration.state import (
    CLOSE,
    START,
    ClientState,
    Conn,
    ExploredDisk,
    ExploredLink,
    ExploredState,
    RowState,
    index_of,
)


def carry_out(disk: ExploredDisk, write: Write, frames: Frames) -> None:
    match write:
        case PutObject(key=key, row=row):
            index = index_of(key)
            if row.version >= frames.messages[disk.objects[index]].version:
                disk.objects[index] = frames.thing(row)
        case PutShard():
            disk.epoch, disk.lineage, disk.applied = write.epoch, write.lineage, write.applied
        case PutClient(client=client, session=session, application=application):
            head = _row(disk, client)
            head.session = max(head.session, session)
            head.created = head.created or application is not None
        case PutRegistered(client=client, session=session, registered=cell):
            _put(_row(disk, client), (index_of(cell.object), session, cell.acked, cell.epoch))
        case DropRegistered(client=client, key=key):
            head = _row(disk, client)
            head.cells = [cell for cell in head.cells if cell[0] != index_of(key)]
        case DropClient(client=client):
            disk.rows = [row for row in disk.rows if row.client != client]


def _row(disk: ExploredDisk, client: bytes) -> RowState:
    for row in disk.rows:
        if row.client == client:
            return row
    row = RowState(client)
    disk.rows = sorted([*disk.rows, row], key=lambda other: other.client)
    return row


def _put(row: RowState, new: tuple[int, int, int, int]) -> None:
    """A newer session's cell stays."""
    others = [cell for cell in row.cells if cell[0] != new[0]]
    before = next((cell for cell in row.cells if cell[0] == new[0]), None)
    kept = new if before is None or before[1] <= new[1] else before
    row.cells = sorted([*others, kept])


def answer_of(disk: ExploredDisk, operation: Words) -> Words:
    """What a load finds now."""
    whose, _, id, what = operation
    if whose == "matcher":
        return whose, "loaded", id, tuple((index, disk.objects[index]) for index in what)
    row = disk.row(what)
    if row is None:
        return whose, "loaded", id, None
    return whose, "loaded", id, (row.session, tuple((i, a, e) for i, _, a, e in row.cells))


def read_feed(disk: ExploredDisk, lineage: int, after: int) -> Words:
    """The event that answers a read of what follows `after`."""
    last, bits = disk.last(), disk.epochs
    if lineage != disk.feed_lineage or after >= last:
        return "feed end", disk.feed_lineage, last, bits
    if after + 1 < disk.feed_first:
        return "feed missing", lineage, disk.feed_first - 1, bits
    return "apply", lineage, after + 1, tuple(disk.feed[after:]), None


_ROW_MESSAGES = (OpenSession, WriteRow, WriteRows, CloseSession)
_BOOT_BITS = 32


def _close_lower_end(link: ExploredLink) -> None:
    link.shard_open = False
    link.to_shard = []
    if link.registrar_open and not link.silent:
        link.to_registrar.append(CLOSE)


class ExploredShard:
    """The lower half: one shard with its matcher, rows, store and feed."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.frames = Frames()
        self.matchers = MatcherMachines(self.frames)
        self.rows = RowsMachines(self.frames)

    def no_rows(self) -> list[int]:
        return [self.frames.thing(ObjectRow())] * self.bounds.objects

    # Its links and machines.

    def deliver_to_shard(self, state: ExploredState, link: ExploredLink) -> None:
        frame = link.to_shard.pop(0)
        if frame == CLOSE:
            self.drop_link(state, link)
        elif isinstance(self.frames.messages[frame], _ROW_MESSAGES):
            self.to_rows(state, ("link", link.handle(), frame))
        else:
            self.to_matcher(state, ("link", link.handle(), frame))

    def drop_link(self, state: ExploredState, link: ExploredLink) -> None:
        """By the shard, or because the registrar's end is gone."""
        _close_lower_end(link)
        self.to_matcher(state, ("link down", link.handle()))
        self.to_rows(state, ("link down", link.handle()))

    def to_matcher(self, state: ExploredState, event: Words) -> None:
        disk = state.disk
        before = self.matchers.facts[state.matcher].epoch
        busy = max((n[2] for n in self._storage(disk) if n[0] == "matcher"), default=0)
        state.matcher, effects = self.matchers.step(state.matcher, (*event, busy))
        if self.matchers.facts[state.matcher].epoch != before:
            disk.epochs += 1
        self._from_shard(state, effects)

    def _storage(self, disk: ExploredDisk) -> list[Words]:
        return [self.frames.messages[n] for n in (*disk.operations, *disk.answers)]

    def to_rows(self, state: ExploredState, event: Words) -> None:
        disk = state.disk
        client = self._concerns(state, event)
        lowest = disk.boot << _BOOT_BITS
        sessions = max(disk.newest_session(client), lowest) if client else lowest
        state.rows, effects = self.rows.step(state.rows, (*event, sessions))
        *effects_, (_, newest) = effects
        if client and newest != sessions:
            others = [item for item in disk.sessions if item[0] != client]
            disk.sessions = sorted([*others, (client, newest)])
        self._from_shard(state, tuple(effects_))

    def _concerns(self, state: ExploredState, event: Words) -> bytes | None:
        """The client whose session this event may number."""
        match event:
            case ("link", _, frame) if type(self.frames.messages[frame]) is OpenSession:
                client: bytes = self.frames.messages[frame].client
                return client
            case ("loaded", id, _):
                return self.rows.facts[state.rows].opening.get(id)
            case _:
                return None

    def _from_shard(self, state: ExploredState, effects: tuple[Words, ...]) -> None:
        for effect in effects:
            match effect:
                case ("link", handle, frame):
                    link = self._shard_link(state, handle)
                    if link is not None and link.registrar_open and not link.silent:
                        link.to_registrar.append(frame)
                case ("operation", operation):
                    judge.accepted(state.disk, self.frames.messages[operation])
                    state.disk.operations.append(operation)
                case ("read", lineage, after):
                    state.disk.reads.append((lineage, after))
                case ("applied", lineage, offset):
                    judge.answered(state.disk, lineage, offset)
                case ("drop link", handle):
                    link = self._shard_link(state, handle)
                    if link is not None:
                        self.drop_link(state, link)

    def _shard_link(self, state: ExploredState, handle: tuple[int, int]) -> ExploredLink | None:
        return next((x for x in state.links if x.handle() == handle and x.shard_open), None)

    def tell_feed_end(self, state: ExploredState) -> None:
        disk = state.disk
        self.to_matcher(state, ("feed end", disk.feed_lineage, disk.last(), disk.epochs))

    # Storage.

    def operate(self, state: ExploredState) -> None:
        disk = state.disk
        whose, what, id, _ = operation = self.frames.messages[disk.operations.pop(0)]
        if what == "load":
            disk.answers.append(self.frames.thing(answer_of(disk, operation)))
            return
        self._write(disk, operation)
        self._answer(state, whose, ("persisted", id))

    def _write(self, disk: ExploredDisk, operation: Words) -> None:
        for write in operation[3]:
            carry_out(disk, write, self.frames)
        judge.marker(disk, [self.frames.messages[row].version for row in disk.objects])

    def fail(self, state: ExploredState) -> None:
        whose, _, id, _ = self.frames.messages[state.disk.operations.pop(0)]
        self._answer(state, whose, ("failed", id))

    def answer(self, state: ExploredState) -> None:
        whose, *event = self.frames.messages[state.disk.answers.pop(0)]
        self._answer(state, whose, tuple(event))

    def _answer(self, state: ExploredState, whose: str, event: Words) -> None:
        if whose == "matcher":
            self.to_matcher(state, event)
        else:
            self.to_rows(state, event)

    def read(self, state: ExploredState) -> None:
        lineage, after = state.disk.reads.pop(0)
        self.to_matcher(state, read_feed(state.disk, lineage, after))

    def publish(self, state: ExploredState, index: int, handed_over: bool = True) -> None:
        disk = state.disk
        state.published[index] += 1
        update = (index, state.published[index])
        disk.feed.append(update)
        if handed_over:
            event = ("apply", disk.feed_lineage, disk.last(), (update,), None)
            self.to_matcher(state, event)

    def deliver_again(self, state: ExploredState, first: int) -> None:
        """The bridge hands over all from this offset on, and waits for the answer."""
        disk = state.disk
        updates = tuple(disk.feed[first - 1 :])
        self.to_matcher(state, ("apply", disk.feed_lineage, first, updates, "bridge"))

    def lose_feed(self, state: ExploredState) -> None:
        disk = state.disk
        disk.feed_first = disk.last() + 1
        disk.lost_in = disk.epochs

    def restart_shard(self, state: ExploredState, written: int, lost: str = "") -> None:
        """Of the operations under way the first few were carried out."""
        disk = state.disk
        for number in disk.operations[:written]:
            operation = self.frames.messages[number]
            if operation[1] == "persist":
                self._write(disk, operation)
        disk.operations, disk.answers, disk.reads = [], [], []
        for link in state.links:
            if link.shard_open:
                _close_lower_end(link)
        self._lose(disk, lost)
        disk.boot += 1
        state.matcher = self.matchers.start(disk.epoch, disk.lineage, disk.applied)
        state.rows = self.rows.start()
        self.tell_feed_end(state)

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
        self.clients = ClientMachines(self.frames)
        self.registrars = RegistrarMachines(self.frames, lags=bounds.lags > 0)

    def initial(self) -> ExploredState:
        bounds, none = self.bounds, [0] * self.bounds.objects
        state = ExploredState(
            clients=[self._client() for _ in range(bounds.clients)],
            registrars=[self.registrars.start()] * bounds.registrars,
            matcher=self.matchers.start(1, 1, START),
            rows=self.rows.start(),
            disk=ExploredDisk(self.no_rows(), 1, 1, START, [], 1, 1, []),
            conns=[],
            links=[],
            published=none,
            budget=bounds.budget(),
        )
        self.tell_feed_end(state)
        for client in range(bounds.clients):
            for index in range(bounds.objects):
                self.to_client(state, client, ("register", index, None))
        state.tidy()
        return state

    def _client(self) -> ClientState:
        none = [0] * self.bounds.objects
        return ClientState(
            core=self.clients.start(None),
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
        self, state: ExploredState, number: int, event: Words, registrar: int = 0
    ) -> None:
        client, conn = state.clients[number], state.conn_of(number)
        facts = self.clients.facts[client.core]
        above = self.clients.in_flight(conn.to_server, facts) if conn else 0
        client.core, effects = self.clients.step(client.core, (*event, above))
        for effect in effects:
            match effect:
                case ("transmit", frame):
                    conn = state.conn_of(number)
                    if conn is not None and conn.server_open:
                        conn.to_server.append(frame)
                case ("told", index, version, epoch):
                    self._told(state, number, index, version, epoch)
                case ("connect",):
                    self._dial(state, number, registrar)
                case ("disconnect",):
                    self.hang_up(state, number)
                case ("save", identity):
                    client.identity = identity
                case ("failed", index):
                    if client.wanted[index]:
                        self.to_client(state, number, ("register", index, None))
                case ("reissue",):
                    self._reissue(state, number)

    def _told(
        self, state: ExploredState, number: int, index: int, version: int | None, epoch: int
    ) -> None:
        if version is not None:
            judge.told(state, number, index, version)
        if self.bounds.slow_apps:
            news = (index, -1 if version is None else version, epoch)
            state.clients[number].inbox.append(news)
        else:
            self._act(state, number, index, version, epoch)

    def read_inbox(self, state: ExploredState, number: int) -> None:
        index, version, epoch = state.clients[number].inbox.pop(0)
        self._act(state, number, index, None if version < 0 else version, epoch)

    def _act(
        self, state: ExploredState, number: int, index: int, version: int | None, epoch: int
    ) -> None:
        """The application takes the version, or goes and looks; then it acks."""
        client = state.clients[number]
        if not client.wanted[index]:
            return
        if version is None:
            client.knows[index] = state.published[index]
        else:
            client.knows[index] = max(client.knows[index], version)
            client.acked[index] = max(client.acked[index], version)
            client.claimed[index] = max(client.claimed[index], version)
        client.vouched[index] = max(client.vouched[index], epoch)
        self.to_client(state, number, ("ack", index, version, epoch))

    def _reissue(self, state: ExploredState, number: int) -> None:
        client = state.clients[number]
        for index, wanted in enumerate(client.wanted):
            if wanted and client.declares and client.knows[index]:
                self.declare(state, number, index, client.knows[index])
            elif wanted:
                self.to_client(state, number, ("register", index, None))

    def declare(self, state: ExploredState, number: int, index: int, version: int) -> None:
        """The application's cache holds this version, whatever it was told before."""
        client = state.clients[number]
        client.wanted[index] = client.declared[index] = True
        client.knows[index] = client.acked[index] = version
        client.claimed[index] = max(client.claimed[index], version)
        self.to_client(state, number, ("register", index, version))

    def register(self, state: ExploredState, number: int, index: int) -> None:
        state.clients[number].wanted[index] = True
        self.to_client(state, number, ("register", index, None))

    def unregister(self, state: ExploredState, number: int, index: int) -> None:
        client = state.clients[number]
        client.wanted[index] = False
        client.knows[index] = client.acked[index] = 0
        client.inbox = [news for news in client.inbox if news[0] != index]
        self.to_client(state, number, ("unregister", index))

    def restart_client(self, state: ExploredState, number: int, keep: bool, declares: bool) -> None:
        client = state.clients[number]
        self.hang_up(state, number)
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
        name = bytes([number, client.generation]) * 8
        self.to_registrar(state, registrar, ("open", conn.handle(), name))
        self.to_client(state, number, ("connected",))

    def hang_up(self, state: ExploredState, number: int) -> None:
        conn = state.conn_of(number)
        if conn is not None:
            conn.client_open = False
            conn.to_client = []
            if conn.server_open:
                conn.to_server.append(CLOSE)

    def close(self, conn: Conn) -> None:
        """By the registrar."""
        conn.server_open = conn.lagging = False
        conn.to_server = []
        if conn.client_open:
            conn.to_client.append(CLOSE)

    def deliver_to_server(self, state: ExploredState, conn: Conn, place: int, keep: bool) -> None:
        frame = conn.to_server[place] if keep else conn.to_server.pop(place)
        if frame == CLOSE:
            conn.server_open = conn.lagging = False
            conn.to_server = []
            self.to_registrar(state, conn.registrar, ("closed", conn.handle()))
        else:
            self.to_registrar(state, conn.registrar, ("frame", conn.handle(), frame))

    def deliver_to_client(self, state: ExploredState, conn: Conn, place: int, keep: bool) -> None:
        frame = conn.to_client[place] if keep else conn.to_client.pop(place)
        if frame == CLOSE:
            conn.client_open = False
            conn.to_client = []
            self.to_client(state, conn.client, ("disconnected",))
        else:
            self.to_client(state, conn.client, ("frame", frame))

    # Registrars.

    def to_registrar(self, state: ExploredState, number: int, event: Words) -> None:
        state.registrars[number], effects = self.registrars.step(state.registrars[number], event)
        for effect in effects:
            match effect:
                case ("send", handle, frame):
                    self._send(state, self._conn(state, number, handle), frame)
                case ("link", frame):
                    link = state.link_of(number)
                    if link is not None and link.shard_open and not link.silent:
                        link.to_shard.append(frame)
                case ("close", handle):
                    conn = self._conn(state, number, handle)
                    if conn is not None:
                        self.close(conn)
                case ("drop link",):
                    self._give_up_link(state, number)
        judge.remembered(self.registrars.facts[state.registrars[number]])

    def _conn(self, state: ExploredState, registrar: int, handle: tuple[int, int]) -> Conn | None:
        for conn in state.conns:
            if conn.registrar == registrar and conn.handle() == handle and conn.server_open:
                return conn
        return None

    def _send(self, state: ExploredState, conn: Conn | None, frame: int) -> None:
        if conn is None:
            return
        facts = self.registrars.facts[state.registrars[conn.registrar]]
        judge.confirmed(state, self.bounds, conn, facts, self.frames.messages[frame])
        if conn.client_open:
            conn.to_client.append(frame)

    def restart_registrar(self, state: ExploredState, number: int) -> None:
        for conn in state.conns:
            if conn.registrar == number and conn.server_open:
                self.close(conn)
        self._give_up_link(state, number, tell=False)
        state.registrars[number] = self.registrars.start()

    # Links.

    def dial_shard(self, state: ExploredState, number: int) -> None:
        taken = [link.slot for link in state.links if link.registrar == number]
        slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
        state.links.append(ExploredLink(number, slot))
        self.to_registrar(state, number, ("link up",))

    def _give_up_link(self, state: ExploredState, number: int, tell: bool = True) -> None:
        link = state.link_of(number)
        if link is None:
            return
        link.registrar_open = False
        link.to_registrar, link.learned = [], []
        if link.shard_open and not link.silent:
            link.to_shard.append(CLOSE)
        if tell:
            self.to_registrar(state, number, ("link down",))

    def deliver_to_registrar(self, state: ExploredState, link: ExploredLink) -> None:
        frame = link.to_registrar.pop(0)
        if frame == CLOSE:
            self._give_up_link(state, link.registrar)
            return
        match self.frames.messages[frame]:
            case Versions(known=known):
                link.learned = sorted({*link.learned, *(index_of(said.object) for said in known)})
            case Pushes(pushes=pushes):
                link.learned = sorted({*link.learned, *(index_of(p.object) for p in pushes)})
        self.to_registrar(state, link.registrar, ("link", frame))

    def break_link(self, link: ExploredLink) -> None:
        link.to_shard = [CLOSE] if link.shard_open else []
        link.to_registrar = [CLOSE] if link.registrar_open else []

    def silence(self, link: ExploredLink) -> None:
        link.silent = True
        link.to_shard, link.to_registrar = [], []
