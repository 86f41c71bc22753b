"""The cluster around the hosts: carries their effects out on a state, and lets things fail.

Whatever may happen is a method that changes the state it is given; `moves.py` says which of them
may come when.

Storage operations are carried out one after the other, by the rules of the store. A write and its
answer are one step; a crash may come after the write and before the answer. A load is carried out,
and answered some time later. A publish is one step: it is durable as soon as that is asked for. The
record of an epoch waits in line with the writes.
"""

from collections.abc import Hashable
from typing import Any, Final

from roskva.core import effects
from roskva.errors import StorageUnavailable
from roskva.host.effects import Append, Appended, NotAppended, SetMarker
from roskva.host.shard import _ASKERS, _MATCHER, _ROWS
from roskva.model import NOTHING_LOST, WHOLE_SHARD, Loss, Update
from roskva.wire import links
from verification.exploration import judge, machines
from verification.exploration.bounds import Bounds
from verification.exploration.state import (
    APP,
    CLOSE,
    START,
    ClientState,
    ExploredDisk,
    ExploredState,
    Wanted,
    Wire,
    change_of,
    index_of,
    key_of,
    row_of,
    update_of,
)

BACKEND: Final = -1
"""The link by which updates are published, and offered by the bridge."""
_BOOT_BITS: Final = 32
_TOKEN_BITS: Final = bytes(12)


class ExploredShard:
    """One shard with its host, store and feed."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.numbers = machines.Numbers()
        self.values = self.numbers.values
        self.shards = machines.ShardMachines(self.numbers)

    def no_rows(self) -> list[int]:
        return [self.numbers.of(effects.ObjectRow())] * self.bounds.objects

    def to_shard(self, state: ExploredState, event: Hashable, handed_over: bool = True) -> None:
        """`handed_over`: what is appended now goes to the matcher as well."""
        disk, facts = state.disk, self.shards.facts
        before = facts[state.shard].epoch
        client = self._concerns(state, event)
        sessions = max(disk.newest_session(client), disk.boot << _BOOT_BITS) if client else 0
        above = self._under_way(disk), sessions
        state.shard, (*asked, newest) = self.shards.step(state.shard, event, above)
        if facts[state.shard].epoch != before:
            disk.epochs += 1
        if newest != sessions:
            assert client is not None
            others = [item for item in disk.sessions if item[0] != client]
            disk.sessions = sorted([*others, (client, newest)])
        for effect in asked:
            self._carry_out(state, effect, handed_over)

    def _under_way(self, disk: ExploredDisk) -> int:
        """The highest number of the matcher's requests."""
        if not disk.operations and not disk.answers:
            return 0
        waiting = (self.values[number] for number in (*disk.operations, *disk.answers))
        ids = [operation.id for operation in waiting if type(operation) is not Append]
        return max((id // _ASKERS for id in ids if id % _ASKERS == _MATCHER), default=0)

    def _concerns(self, state: ExploredState, event: Hashable) -> bytes | None:
        """The client whose session this event may number. Each client's are counted apart: which of
        two came first is not to be seen in them."""
        match event:
            case effects.FromLink(message=int() as frame):
                message = self.values[frame]
                return message.client if type(message) is links.OpenSession else None
            case effects.Loaded(id=id) if id % _ASKERS == _ROWS:
                return self.shards.facts[state.shard].opening.get(id // _ASKERS)
            case _:
                return None

    def _carry_out(self, state: ExploredState, effect: Any, handed_over: bool) -> None:
        disk = state.disk
        match effect:
            case effects.SendLink(link=handle, message=int() as frame):
                judge.said(disk, self.values[frame])
                if handle == BACKEND:
                    judge.answered(disk, self.values[frame])
                elif (link := self._link(state, handle)) is not None:
                    link.send_down(frame)
            case effects.DropLink(link=handle):
                if (link := self._link(state, handle)) is not None:
                    self._lose_link(state, link)
            case int() as operation:
                judge.accepted(disk, self.values[operation])
                disk.operations.append(operation)
            case effects.ReadFeed(lineage=lineage, after=after):
                disk.reads.append((lineage, after))
            case SetMarker(lineage=lineage, offset=offset):
                judge.durable(disk, lineage, offset)
            case Append(updates=[record]) if record.object == WHOLE_SHARD:
                disk.operations.append(self.numbers.of(effect))
            case Append():
                self.to_shard(state, (self._append(disk, effect), handed_over))
            case _:
                raise TypeError(f"not of a shard: {effect!r}")

    def _append(self, disk: ExploredDisk, asked: Append) -> Appended:
        first = disk.last() + 1
        disk.feed += map(row_of, asked.updates)
        entries = tuple(enumerate(asked.updates, first))
        return Appended(first, disk.last(), entries, (asked.request,))

    def shard_timer(self, state: ExploredState, timer: str) -> None:
        self.to_shard(state, machines.TimeUp(timer))

    # Its links.

    def deliver_to_shard(self, state: ExploredState, k: int) -> None:
        link = state.links[k]
        frame: Any = link.up.pop(0)
        if frame == CLOSE:
            self._lose_link(state, link)
        else:
            self.to_shard(state, effects.FromLink(link.handle(), frame))

    def shard_silence(self, state: ExploredState, k: int) -> None:
        link = state.links[k]
        if link.handle() in self.shards.facts[state.shard].links:
            self.to_shard(state, machines.TimeUp("silence", link.handle()))
        else:
            link.upper_open = False  # the shard never heard of it

    def _lose_link(self, state: ExploredState, link: Wire) -> None:
        link.close_upper()
        self.to_shard(state, effects.LinkDown(link.handle()))

    def _link(self, state: ExploredState, handle: Hashable) -> Wire | None:
        return next((x for x in state.links if x.handle() == handle and x.upper_open), None)

    # Its store.

    def operate(self, state: ExploredState) -> None:
        disk = state.disk
        operation = self.values[disk.operations.pop(0)]
        if type(operation) is effects.Persist:
            self._persist(disk, operation)
            self.to_shard(state, effects.Persisted(operation.id))
        elif type(operation) is Append:
            self.to_shard(state, (self._append(disk, operation), True))
        else:
            found = effects.Loaded(operation.id, self._load(disk, operation))
            disk.answers.append(self.numbers.of(found))

    def fail(self, state: ExploredState) -> None:
        operation = self.values[state.disk.operations.pop(0)]
        if type(operation) is Append:
            refused = NotAppended((operation.request,), StorageUnavailable("the disk is full"))
            self.to_shard(state, refused)
        else:
            self.to_shard(state, effects.Failed(operation.id))

    def answer(self, state: ExploredState) -> None:
        self.to_shard(state, self.values[state.disk.answers.pop(0)])

    def _load(self, disk: ExploredDisk, operation: Any) -> Any:
        if type(operation) is effects.LoadObjects:
            objects = disk.objects
            return tuple((key, self.values[objects[index_of(key)]]) for key in operation.keys)
        row = disk.row(operation.client)
        if row is None:
            return None
        cells: Any = tuple([links.Registered(key_of(index), a, e) for index, _, a, e in row.cells])
        return effects.ClientRow(row.session, "", cells)

    def _persist(self, disk: ExploredDisk, operation: effects.Persist) -> None:
        for write in operation.writes:
            self._write(disk, write)
        judge.marker(disk, [self.values[row] for row in disk.objects])

    def _write(self, disk: ExploredDisk, write: effects.Write) -> None:
        match write:
            case effects.PutObject(key=key, row=row):
                index = index_of(key)
                before = self.values[disk.objects[index]]
                if (row.generation, row.version) >= (before.generation, before.version):
                    disk.objects[index] = self.numbers.of(row)
            case effects.PutShard():
                disk.epoch, disk.lineage, disk.applied = write.epoch, write.lineage, write.applied
                disk.excused = write.excused
                disk.lost = NOTHING_LOST if write.loss is None else write.loss.last
                for _, generation in write.generations:
                    disk.generation = max(disk.generation, generation)
            case effects.PutClient(client=client, session=session, application=application):
                head = disk.head(client)
                head.session = max(head.session, session)
                head.created = head.created or application is not None
            case effects.PutRegistered(client=client, session=session, registered=cell):
                new = index_of(cell.object), session, cell.acked, cell.epoch
                disk.head(client).put(new)
            case effects.DropRegistered(client=client, key=key):
                disk.head(client).drop(index_of(key))
            case effects.DropClient(client=client):
                disk.rows = [row for row in disk.rows if row.client != client]

    # Its feed.

    def feed_tick(self, state: ExploredState) -> None:
        disk = state.disk
        self.to_shard(state, effects.FeedEnd(disk.feed_lineage, disk.last(), disk.epochs))

    def read(self, state: ExploredState) -> None:
        disk = state.disk
        lineage, after = disk.reads.pop(0)
        if lineage != disk.feed_lineage or after >= disk.last():
            self.feed_tick(state)
        elif after + 1 < disk.feed_first:
            self.to_shard(state, effects.FeedMissing(lineage, disk.feed_first - 1, disk.epochs))
        else:
            entries = tuple(_entries(disk, after + 1))
            self.to_shard(state, effects.Apply(lineage, after + 1, disk.last(), entries))

    def publish(self, state: ExploredState, index: int, handed_over: bool = True) -> None:
        state.published[index] += 1
        update = Update(key_of(index), state.version_of(state.published[index]))
        self._from_backend(state, links.PublishUpdates(1, [update]), handed_over)

    def publish_unseen(self, state: ExploredState, index: int) -> None:
        state.spend("publishes")
        self.publish(state, index, handed_over=False)

    def reset_app(self, state: ExploredState, handed_over: bool = True) -> None:
        """A change of every object, that has no version."""
        state.published = [change + 1 for change in state.published]
        generation = state.disk.generation_of_feed() + 1
        message = links.ResetApp(1, APP, generation)
        self._from_backend(state, message, handed_over)

    def reset_app_unseen(self, state: ExploredState) -> None:
        state.spend("app_resets")
        self.reset_app(state, handed_over=False)

    def deliver_again(self, state: ExploredState, first: int) -> None:
        """The bridge hands over all from this offset on, and waits for the answer."""
        disk = state.disk
        entries = _entries(disk, first)
        self._from_backend(state, links.Offer(1, 0, disk.feed_lineage, first, disk.last(), entries))

    def _from_backend(
        self, state: ExploredState, message: links.ToShard, handed_over: bool = True
    ) -> None:
        frame: Any = self.numbers.to_shard(message)
        self.to_shard(state, effects.FromLink(BACKEND, frame), handed_over)

    def lose_feed(self, state: ExploredState) -> None:
        disk = state.disk
        disk.feed_first = disk.last() + 1
        disk.lost_in = disk.epochs

    # Its end and its beginning.

    def crash_shard(self, state: ExploredState, written: int, lost: str) -> None:
        """Of the operations under way the first few were carried out."""
        disk = state.disk
        for number in disk.operations[:written]:
            operation = self.values[number]
            if type(operation) is effects.Persist:
                self._persist(disk, operation)
            elif type(operation) is Append:
                self._append(disk, operation)
        disk.operations, disk.answers, disk.reads = [], [], []
        for link in state.links:
            if link.upper_open:
                link.close_upper()
        if lost == "rows":
            disk.rows = []
        elif lost == "feed":
            disk.feed_lineage += 1
            disk.feed, disk.feed_first = [], 1
        elif lost == "state":
            disk.objects, disk.generation = self.no_rows(), 0
            disk.epochs += 1
            disk.epoch, disk.lineage, disk.applied = disk.epochs, disk.feed_lineage, START
            disk.excused, disk.lost = NOTHING_LOST, START
        disk.boot += 1
        self.start_shard(state)

    def start_shard(self, state: ExploredState) -> None:
        disk = state.disk
        generations = ((APP, disk.generation),) if disk.generation else ()
        loss = None if disk.lost == NOTHING_LOST else Loss(disk.lineage, disk.lost, "damage")
        marker = disk.epoch, disk.lineage, disk.applied
        stored = effects.PutShard(*marker, generations, disk.excused, loss)
        state.shard = self.shards.start(stored)
        self.feed_tick(state)


def _entries(disk: ExploredDisk, first: int) -> list[tuple[int, Update]]:
    """All from this offset on."""
    updates = [update_of(row, disk.feed_lineage) for row in disk.feed[first - 1 :]]
    return list(enumerate(updates, first))


class Cluster(ExploredShard):
    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.clients = machines.ClientMachines(self.numbers)
        self.registrars = machines.RegistrarMachines(self.numbers, lags=bounds.lags > 0)

    def initial(self) -> ExploredState:
        bounds, objects = self.bounds, range(self.bounds.objects)
        client = self.clients.start()
        state = ExploredState(
            clients=[
                ClientState(client, [Wanted() for _ in objects]) for _ in range(bounds.clients)
            ],
            registrars=[self.registrars.start()] * bounds.registrars,
            disk=ExploredDisk(self.no_rows()),
            published=[0 for _ in objects],
            budget=bounds.budget(),
        )
        self.start_shard(state)
        for number in range(bounds.clients):
            for index in objects:
                self.register(state, number, index)
        state.tidy()
        return state

    # Clients and their applications.

    def to_client(
        self, state: ExploredState, number: int, event: Hashable, registrar: int = 0
    ) -> None:
        client, conn = state.clients[number], state.conn_of(number)
        facts = self.clients.facts[client.core]
        above = self.clients.in_flight(conn.up, facts) if conn else 0
        client.core, asked = self.clients.step(client.core, event, above)
        for effect in asked:
            match effect:
                case effects.Transmit(message=int() as frame):
                    if (conn := state.conn_of(number)) is not None:
                        conn.send_up(frame)
                case effects.Deliver(event=event):
                    self._tell(state, number, event)
                case effects.OpenConnection():
                    self._dial(state, number, registrar)
                case effects.CloseConnection():
                    self._disconnect(state, number)
                case effects.SaveIdentity(identity=identity):
                    client.identity = identity

    def client_timer(self, state: ExploredState, number: int, timer: str, registrar: int) -> None:
        self.to_client(state, number, machines.TimeUp(timer), registrar)

    def _tell(self, state: ExploredState, number: int, event: Any) -> None:
        match event:
            case effects.Notify(object=key, version=version, epoch=epoch):
                judge.told(state, number, index_of(key), version)
                news = (index_of(key), version, epoch)
            case effects.NotifyUnknown(object=key, epoch=epoch):
                news = (index_of(key), -1, epoch)
            case effects.RegistrationFailure(object=key):
                if state.clients[number].objects[index_of(key)].wanted:
                    self.register(state, number, index_of(key))
                return
            case effects.ReissueRegistrations():
                self._reissue(state, number)
                return
            case _:
                return
        if self.bounds.slow_apps:
            state.clients[number].inbox.append(news)
        else:
            self._act(state, number, *news)

    def read_inbox(self, state: ExploredState, number: int) -> None:
        self._act(state, number, *state.clients[number].inbox.pop(0))

    def _act(self, state: ExploredState, number: int, index: int, version: int, epoch: int) -> None:
        """The application takes the version, or goes and looks; then it acks."""
        at = state.clients[number].objects[index]
        if not at.wanted:
            return
        if version < 0:
            at.knows = state.published[index]
        else:
            at.take(change_of(version))
        at.vouched = max(at.vouched, epoch)
        told = None if version < 0 else version
        self.to_client(state, number, effects.Acknowledge(key_of(index), told, epoch))

    def _reissue(self, state: ExploredState, number: int) -> None:
        client = state.clients[number]
        for index, at in enumerate(client.objects):
            if at.wanted and client.declares and at.knows:
                self.declare(state, number, index, at.knows)
            elif at.wanted:
                self.register(state, number, index)

    def declare(self, state: ExploredState, number: int, index: int, version: int) -> None:
        """The application's cache holds this version, whatever it was told before."""
        at = state.clients[number].objects[index]
        at.wanted = at.declared = True
        at.knows = at.acked = version
        at.claimed = max(at.claimed, version)
        self.to_client(state, number, effects.Register(key_of(index), version))

    def register(self, state: ExploredState, number: int, index: int) -> None:
        state.clients[number].objects[index].wanted = True
        self.to_client(state, number, effects.Register(key_of(index)))

    def unregister(self, state: ExploredState, number: int, index: int) -> None:
        client = state.clients[number]
        at = client.objects[index]
        at.wanted, at.knows, at.acked = False, 0, 0
        client.inbox = [news for news in client.inbox if news[0] != index]
        self.to_client(state, number, effects.Unregister(key_of(index)))

    def crash_client(self, state: ExploredState, number: int, keep: bool, declares: bool) -> None:
        client = state.clients[number]
        self._disconnect(state, number)
        client.inbox, client.declares = [], declares
        for at in client.objects:
            at.acked = 0
        if not keep:
            client.identity = None
            client.objects = [Wanted(at.wanted) for at in client.objects]
        client.core = self.clients.start(client.identity)
        if client.identity is None:
            self._reissue(state, number)

    # Connections.

    def _dial(self, state: ExploredState, number: int, registrar: int) -> None:
        client = state.clients[number]
        conn = state.dial(state.conns, number, registrar)
        if not self.clients.facts[client.core].greeted:
            client.generation += 1
        bits = bytes([number, client.generation]) * 8 + _TOKEN_BITS
        self.to_registrar(state, registrar, effects.Opened(conn.handle(), bits))
        self.to_client(state, number, effects.Connected())

    def _disconnect(self, state: ExploredState, number: int) -> None:
        if (conn := state.conn_of(number)) is not None:
            conn.close_lower()

    def hang_up(self, state: ExploredState, c: int) -> None:
        state.conns[c].cut()

    def deliver_up(self, state: ExploredState, c: int, place: int = 0, keep: bool = False) -> None:
        """`keep`: it is still under way."""
        conn = state.conns[c]
        frame: Any = conn.up[place] if keep else conn.up.pop(place)
        if frame == CLOSE:
            conn.upper_open, conn.up = False, []
            self.to_registrar(state, conn.registrar, effects.Closed(conn.handle()))
        else:
            event = effects.FromConnection(conn.handle(), frame)
            self.to_registrar(state, conn.registrar, event)

    def deliver_down(
        self, state: ExploredState, c: int, place: int = 0, keep: bool = False
    ) -> None:
        conn = state.conns[c]
        frame: Any = conn.down[place] if keep else conn.down.pop(place)
        if frame == CLOSE:
            conn.lower_open, conn.down = False, []
            self.to_client(state, conn.dialer, effects.Disconnected())
        else:
            self.to_client(state, conn.dialer, effects.FromServer(frame))

    def lose(self, state: ExploredState, c: int, way: str, place: int) -> None:
        del getattr(state.conns[c], way)[place]

    def lag(self, state: ExploredState, c: int) -> None:
        conn = state.conns[c]
        self.to_registrar(state, conn.registrar, effects.Lagging(conn.handle()))

    def drain(self, state: ExploredState, c: int) -> None:
        conn = state.conns[c]
        self.to_registrar(state, conn.registrar, effects.Drained(conn.handle()))

    # Registrars.

    def to_registrar(self, state: ExploredState, number: int, event: Hashable) -> None:
        state.registrars[number], asked = self.registrars.step(state.registrars[number], event)
        facts = self.registrars.facts[state.registrars[number]]
        for effect in asked:
            match effect:
                case effects.Send(conn=handle, message=int() as frame):
                    if (conn := self._conn(state, number, handle)) is not None:
                        judge.confirmed(state, self.bounds, conn, facts, self.values[frame])
                        conn.send_down(frame)
                case effects.SendLink(message=int() as frame):
                    if (link := state.link_of(number)) is not None:
                        link.send_up(frame)
                case effects.Close(conn=handle):
                    if (conn := self._conn(state, number, handle)) is not None:
                        conn.close_upper()
                case effects.DropLink():
                    self._give_up_link(state, number)
                case _:
                    raise TypeError(f"not of a registrar: {effect!r}")
        judge.remembered(facts)

    def registrar_timer(self, state: ExploredState, number: int, timer: str, of: int = 0) -> None:
        self.to_registrar(state, number, machines.TimeUp(timer, of))

    def registrar_silence(self, state: ExploredState, number: int) -> None:
        """On its link."""
        self.registrar_timer(state, number, "silence")

    def ping(self, state: ExploredState, number: int) -> None:
        """With its answer: while both are under way nothing can happen that could not before."""
        self.registrar_timer(state, number, "ping")
        link = state.link_of(number)
        assert link is not None
        if len(link.up) == 1:
            self.deliver_to_shard(state, state.links.index(link))
        if len(link.down) == 1:
            self.deliver_to_registrar(state, state.links.index(link))

    def session(self, state: ExploredState, conn: Wire) -> machines.KnownSession | None:
        facts = self.registrars.facts[state.registrars[conn.registrar]]
        return facts.sessions.get(conn.handle())

    def lags(self, state: ExploredState, conn: Wire) -> bool:
        session = self.session(state, conn)
        return session is not None and session.lagging

    def _conn(self, state: ExploredState, registrar: int, handle: Hashable) -> Wire | None:
        served = (c for c in state.conns if c.registrar == registrar and c.upper_open)
        return next((conn for conn in served if conn.handle() == handle), None)

    def crash_registrar(self, state: ExploredState, number: int) -> None:
        for conn in state.conns:
            if conn.registrar == number and conn.upper_open:
                conn.close_upper()
        if (link := state.link_of(number)) is not None:
            link.close_lower()
        state.registrars[number] = self.registrars.start()

    # Their links.

    def dial_shard(self, state: ExploredState, number: int) -> None:
        state.dial(state.links, number, number)
        self.to_registrar(state, number, effects.LinkUp(0))

    def _give_up_link(self, state: ExploredState, number: int) -> None:
        if (link := state.link_of(number)) is not None:
            link.close_lower()
            self.to_registrar(state, number, effects.LinkDown(0))

    def deliver_to_registrar(self, state: ExploredState, k: int) -> None:
        link = state.links[k]
        frame: Any = link.down.pop(0)
        if frame == CLOSE:
            self._give_up_link(state, link.registrar)
            return
        match self.values[frame]:
            case links.Versions(known=said) | links.Pushes(pushes=said):
                link.learned = sorted({*link.learned, *(index_of(one.object) for one in said)})
        self.to_registrar(state, link.registrar, effects.FromLink(0, frame))

    def break_link(self, state: ExploredState, k: int) -> None:
        state.links[k].cut()

    def silence_link(self, state: ExploredState, k: int) -> None:
        link = state.links[k]
        link.silent = True
        link.up, link.down = [], []
