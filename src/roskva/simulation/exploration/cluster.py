"""The cluster around the machines: carries their effects out on a state, and lets things fail.

Every method changes the state it is given. `moves.py` says which of them may happen when.
"""

from roskva.simulation.exploration import judge
from roskva.simulation.exploration.bounds import Bounds
from roskva.simulation.exploration.machines import Clients, Words
from roskva.simulation.exploration.servers import Registrars
from roskva.simulation.exploration.shard import Shard
from roskva.simulation.exploration.state import (
    CLOSE,
    START,
    ClientState,
    Conn,
    Disk,
    Link,
    State,
    index_of,
)
from roskva.wire.links import Pushes, Versions


class Cluster(Shard):
    def __init__(self, bounds: Bounds) -> None:
        super().__init__(bounds)
        self.clients = Clients(self.frames)
        self.registrars = Registrars(self.frames, lags=bounds.lags > 0)

    def initial(self) -> State:
        bounds, none = self.bounds, [0] * self.bounds.objects
        state = State(
            clients=[self._client() for _ in range(bounds.clients)],
            registrars=[self.registrars.start()] * bounds.registrars,
            matcher=self.matchers.start(1, 1, START),
            rows=self.rows.start(),
            disk=Disk(self.no_rows(), 1, 1, START, [], 1, 1, []),
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

    def to_client(self, state: State, number: int, event: Words, registrar: int = 0) -> None:
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

    def _told(self, state: State, number: int, index: int, version: int | None, epoch: int) -> None:
        if version is not None:
            judge.told(state, number, index, version)
        if self.bounds.slow_apps:
            news = (index, -1 if version is None else version, epoch)
            state.clients[number].inbox.append(news)
        else:
            self._act(state, number, index, version, epoch)

    def read_inbox(self, state: State, number: int) -> None:
        index, version, epoch = state.clients[number].inbox.pop(0)
        self._act(state, number, index, None if version < 0 else version, epoch)

    def _act(self, state: State, number: int, index: int, version: int | None, epoch: int) -> None:
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

    def _reissue(self, state: State, number: int) -> None:
        client = state.clients[number]
        for index, wanted in enumerate(client.wanted):
            if wanted and client.declares and client.knows[index]:
                self.declare(state, number, index, client.knows[index])
            elif wanted:
                self.to_client(state, number, ("register", index, None))

    def declare(self, state: State, number: int, index: int, version: int) -> None:
        """The application's cache holds this version, whatever it was told before."""
        client = state.clients[number]
        client.wanted[index] = client.declared[index] = True
        client.knows[index] = client.acked[index] = version
        client.claimed[index] = max(client.claimed[index], version)
        self.to_client(state, number, ("register", index, version))

    def register(self, state: State, number: int, index: int) -> None:
        state.clients[number].wanted[index] = True
        self.to_client(state, number, ("register", index, None))

    def unregister(self, state: State, number: int, index: int) -> None:
        client = state.clients[number]
        client.wanted[index] = False
        client.knows[index] = client.acked[index] = 0
        client.inbox = [news for news in client.inbox if news[0] != index]
        self.to_client(state, number, ("unregister", index))

    def restart_client(self, state: State, number: int, keep: bool, declares: bool) -> None:
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

    def _dial(self, state: State, number: int, registrar: int) -> None:
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

    def hang_up(self, state: State, number: int) -> None:
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

    def deliver_to_server(self, state: State, conn: Conn, place: int, keep: bool) -> None:
        frame = conn.to_server[place] if keep else conn.to_server.pop(place)
        if frame == CLOSE:
            conn.server_open = conn.lagging = False
            conn.to_server = []
            self.to_registrar(state, conn.registrar, ("closed", conn.handle()))
        else:
            self.to_registrar(state, conn.registrar, ("frame", conn.handle(), frame))

    def deliver_to_client(self, state: State, conn: Conn, place: int, keep: bool) -> None:
        frame = conn.to_client[place] if keep else conn.to_client.pop(place)
        if frame == CLOSE:
            conn.client_open = False
            conn.to_client = []
            self.to_client(state, conn.client, ("disconnected",))
        else:
            self.to_client(state, conn.client, ("frame", frame))

    # Registrars.

    def to_registrar(self, state: State, number: int, event: Words) -> None:
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

    def _conn(self, state: State, registrar: int, handle: tuple[int, int]) -> Conn | None:
        for conn in state.conns:
            if conn.registrar == registrar and conn.handle() == handle and conn.server_open:
                return conn
        return None

    def _send(self, state: State, conn: Conn | None, frame: int) -> None:
        if conn is None:
            return
        facts = self.registrars.facts[state.registrars[conn.registrar]]
        judge.confirmed(state, self.bounds, conn, facts, self.frames.messages[frame])
        if conn.client_open:
            conn.to_client.append(frame)

    def restart_registrar(self, state: State, number: int) -> None:
        for conn in state.conns:
            if conn.registrar == number and conn.server_open:
                self.close(conn)
        self._give_up_link(state, number, tell=False)
        state.registrars[number] = self.registrars.start()

    # Links.

    def dial_shard(self, state: State, number: int) -> None:
        taken = [link.slot for link in state.links if link.registrar == number]
        slot = next(slot for slot in range(len(taken) + 1) if slot not in taken)
        state.links.append(Link(number, slot))
        self.to_registrar(state, number, ("link up",))

    def _give_up_link(self, state: State, number: int, tell: bool = True) -> None:
        link = state.link_of(number)
        if link is None:
            return
        link.registrar_open = False
        link.to_registrar, link.learned = [], []
        if link.shard_open and not link.silent:
            link.to_shard.append(CLOSE)
        if tell:
            self.to_registrar(state, number, ("link down",))

    def deliver_to_registrar(self, state: State, link: Link) -> None:
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

    def break_link(self, link: Link) -> None:
        link.to_shard = [CLOSE] if link.shard_open else []
        link.to_registrar = [CLOSE] if link.registrar_open else []

    def silence(self, link: Link) -> None:
        link.silent = True
        link.to_shard, link.to_registrar = [], []
