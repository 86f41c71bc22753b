"""What may happen next: a move is a tuple that begins with a word, like `("operate",)`.

- *Prompt* moves are what a healthy cluster does by itself and at once: deliver the oldest message
  of a queue, carry out a storage operation, let a short timer run out. Any of them may come next.
- *Slow* moves are timers that run out when nothing else is left to do: heartbeats, scans, pings,
  time-outs of answers that were lost. They are what heals, and cost nothing.
- *Changes* (publishing, registering) and *faults* may come at any time, as often as the bounds say.
  A timer that runs out although others are merely slow is a fault too.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

from verification.exploration.bounds import KINDS
from verification.exploration.cluster import Cluster
from verification.exploration.state import CLOSE, ExploredState

Move = tuple[Any, ...]

EAGER: Final = {
    "disk": ("operate", "answer", "read", "announce", "retry"),
    "links": ("to shard", "to registrar", "dial shard", "work"),
    "clients": ("to server", "to client", "drained", "client timer", "inbox"),
}


def _queues(state: ExploredState) -> Iterator[tuple[str, int, list[int]]]:
    """Both ways of every connection of a client."""
    for c, conn in enumerate(state.conns):
        yield "server", c, conn.to_server
        yield "client", c, conn.to_client


class Moves:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.bounds = cluster.bounds
        self.eager = frozenset(word for kind in self.bounds.eager for word in EAGER[kind])
        self._costly: dict[str, Callable[[ExploredState], Iterator[Move]]] = {
            kind: getattr(self, f"_{kind}") for kind in KINDS if kind != "early_timers"
        }

    # Which.

    def prompt(self, state: ExploredState) -> list[Move]:
        """In the order of the fair schedule, which always takes the first."""
        return [*self._storage(state), *self._servers(state), *self._clients(state)]

    def _storage(self, state: ExploredState) -> Iterator[Move]:
        disk, matcher = state.disk, self.cluster.matchers.facts[state.matcher]
        if disk.operations:
            yield ("operate",)
        if disk.answers:
            yield ("answer",)
        if disk.reads:
            yield ("read",)
        if matcher.announces:
            yield ("announce",)
        if matcher.retries:
            yield ("retry",)

    def _servers(self, state: ExploredState) -> Iterator[Move]:
        for k, link in enumerate(state.links):
            if link.to_shard:
                yield "to shard", k
            if link.to_registrar:
                yield "to registrar", k
        for r, core in enumerate(state.registrars):
            if self.cluster.registrars.facts[core].works:
                yield "work", r
            if state.link_of(r) is None:
                yield "dial shard", r

    def _clients(self, state: ExploredState) -> Iterator[Move]:
        for c, conn in enumerate(state.conns):
            if conn.to_server:
                yield "to server", c, 0
            if conn.to_client:
                yield "to client", c, 0
            if conn.lagging:
                yield "drained", c
        for i, client in enumerate(state.clients):
            if client.inbox:
                yield "inbox", i
            for timer in self.cluster.clients.facts[client.core].prompt:
                for r in range(self.bounds.registrars if timer == "connect_at" else 1):
                    yield "client timer", i, timer, (i + r) % self.bounds.registrars

    def slow(self, state: ExploredState) -> list[Move]:
        """Timers that are far apart keep their order: a dead link is found long before the next
        visit or retry, and whoever waits for an answer gives up before saying it all again."""
        armed = self._armed(state)
        dead = [move for move in armed if move[0] in ("silence", "shard silence")]
        if dead:
            return dead
        waiting = {
            move[1] for move in armed if move[0] == "client timer" and move[2] == "answer_by"
        }
        return [
            move
            for move in armed
            if move[0] != "client timer" or move[1] not in waiting or move[2] == "answer_by"
        ]

    def _armed(self, state: ExploredState) -> list[Move]:
        return [*self._server_timers(state), ("feed tick",), *self._client_timers(state)]

    def _server_timers(self, state: ExploredState) -> Iterator[Move]:
        for r, core in enumerate(state.registrars):
            facts, link = self.cluster.registrars.facts[core], state.link_of(r)
            if link is not None:
                dead = link.silent or not link.shard_open
                yield ("silence" if dead else "ping"), r
            if facts.flushes:
                yield "ack flush", r
            if facts.lingers:
                yield "linger", r
        for conn in state.conns:
            if conn.server_open:
                yield from self._visits(state, conn.registrar, conn.handle(), conn.client_open)
        for k, link in enumerate(state.links):
            if link.shard_open and (link.silent or not link.registrar_open):
                yield "shard silence", k

    def _visits(
        self, state: ExploredState, r: int, handle: tuple[int, int], there: bool
    ) -> Iterator[Move]:
        session = self.cluster.registrars.facts[state.registrars[r]].sessions.get(handle)
        if session is not None and session.visited:
            yield ("visit" if there and session.open else "expire"), r, handle

    def _client_timers(self, state: ExploredState) -> Iterator[Move]:
        for i, client in enumerate(state.clients):
            for timer in self.cluster.clients.facts[client.core].slow:
                yield "client timer", i, timer, 0

    def costly(self, state: ExploredState, quiet: bool) -> Iterator[tuple[str, Move]]:
        """Changes and faults, with the kind that they are counted under."""
        for kind, moves in self._costly.items():
            if state.may(kind):
                for move in moves(state):
                    yield kind, move
        if state.may("early_timers"):
            for move in self._early(state, quiet):
                yield "early_timers", move

    def _publishes(self, state: ExploredState) -> Iterator[Move]:
        for index in range(self.bounds.objects):
            yield "publish", index

    def _operations(self, state: ExploredState) -> Iterator[Move]:
        for i, client in enumerate(state.clients):
            for index, wanted in enumerate(client.wanted):
                yield ("unregister" if wanted else "register"), i, index

    def _declarations(self, state: ExploredState) -> Iterator[Move]:
        for i in range(self.bounds.clients):
            for index, newest in enumerate(state.published):
                for version in {newest, newest - 1}:
                    if version > 0:
                        yield "declare", i, index, version

    def _deliveries(self, state: ExploredState) -> Iterator[Move]:
        for first in range(state.disk.feed_first, state.disk.last() + 1):
            yield "deliver again", first

    def _losses(self, state: ExploredState) -> Iterator[Move]:
        for to, c, queue in _queues(state):
            for place in range(len(queue)):
                yield f"lose to {to}", c, place

    def _duplicates(self, state: ExploredState) -> Iterator[Move]:
        """Delivered, and still under way."""
        for to, c, queue in _queues(state):
            if queue and queue[0] != CLOSE:
                yield f"copy to {to}", c

    def _reorders(self, state: ExploredState) -> Iterator[Move]:
        for to, c, queue in _queues(state):
            for place in range(1, len(queue)):
                if queue[place] != CLOSE:
                    yield f"to {to}", c, place

    def _hangups(self, state: ExploredState) -> Iterator[Move]:
        for c, conn in enumerate(state.conns):
            if conn.client_open and conn.server_open:
                yield "hang up", c

    def _lags(self, state: ExploredState) -> Iterator[Move]:
        for c, conn in enumerate(state.conns):
            if conn.server_open and conn.client_open and not conn.lagging:
                yield "lagging", c

    def _link_breaks(self, state: ExploredState) -> Iterator[Move]:
        for k, link in enumerate(state.links):
            if link.registrar_open and link.shard_open:
                yield "break link", k

    def _silences(self, state: ExploredState) -> Iterator[Move]:
        for k, link in enumerate(state.links):
            if not link.silent:
                yield "silence link", k

    def _registrar_crashes(self, state: ExploredState) -> Iterator[Move]:
        for r in range(self.bounds.registrars):
            yield "crash registrar", r

    def _shard_crashes(self, state: ExploredState) -> Iterator[Move]:
        for written in range(len(state.disk.operations) + 1):
            yield "crash shard", written, ""

    def _state_losses(self, state: ExploredState) -> Iterator[Move]:
        yield "crash shard", 0, "state"

    def _row_losses(self, state: ExploredState) -> Iterator[Move]:
        yield "crash shard", 0, "rows"

    def _recreations(self, state: ExploredState) -> Iterator[Move]:
        yield "crash shard", 0, "feed"

    def _feed_losses(self, state: ExploredState) -> Iterator[Move]:
        if state.disk.feed_first <= state.disk.last():
            yield ("lose feed",)

    def _missed_handovers(self, state: ExploredState) -> Iterator[Move]:
        if state.may("publishes"):
            for index in range(self.bounds.objects):
                yield "publish unseen", index

    def _client_crashes(self, state: ExploredState) -> Iterator[Move]:
        for i, client in enumerate(state.clients):
            yield "crash client", i, True, False
            if self.bounds.declarations and any(client.knows):
                yield "crash client", i, True, True

    def _client_losses(self, state: ExploredState) -> Iterator[Move]:
        for i in range(self.bounds.clients):
            yield "crash client", i, False, False

    def _failures(self, state: ExploredState) -> Iterator[Move]:
        if state.disk.operations:
            yield ("fail",)

    def _early(self, state: ExploredState, quiet: bool) -> Iterator[Move]:
        """Also those that in a healthy cluster never run out."""
        if not quiet:
            yield from (move for move in self._armed(state) if move[0] != "ping")
        for conn in state.conns:
            if conn.client_open and conn.server_open:
                for _, r, handle in self._visits(state, conn.registrar, conn.handle(), False):
                    yield "expire", r, handle
        for k, link in enumerate(state.links):
            if link.registrar_open and link.shard_open and not link.silent:
                yield "silence", link.registrar
                yield "shard silence", k

    # How.

    def perform(self, state: ExploredState, move: Move) -> None:
        _DO[move[0]](self, state, *move[1:])
        while self.eager:
            next_ = next((m for m in self.prompt(state) if m[0] in self.eager), None)
            if next_ is None:
                break
            _DO[next_[0]](self, state, *next_[1:])
        state.tidy()

    def _ping(self, state: ExploredState, r: int) -> None:
        """With its answer: while both are under way nothing can happen that could not before."""
        self.cluster.to_registrar(state, r, ("ping",))
        link = state.link_of(r)
        assert link is not None
        if len(link.to_shard) == 1:
            self.cluster.deliver_to_shard(state, link)
        if len(link.to_registrar) == 1:
            self.cluster.deliver_to_registrar(state, link)

    def _hang_up(self, state: ExploredState, c: int) -> None:
        conn = state.conns[c]
        conn.to_server, conn.to_client = [CLOSE], [CLOSE]

    def _lag(self, state: ExploredState, c: int, word: str, lagging: bool) -> None:
        conn = state.conns[c]
        conn.lagging = lagging
        self.cluster.to_registrar(state, conn.registrar, (word, conn.handle()))

    def _shard_silence(self, state: ExploredState, k: int) -> None:
        link = state.links[k]
        if link.handle() in self.cluster.matchers.facts[state.matcher].links:
            self.cluster.to_matcher(state, ("silence", link.handle()))
        else:
            link.shard_open = False  # the shard never heard of it


_DO: Final[dict[str, Any]] = {
    "operate": lambda m, s: m.cluster.operate(s),
    "answer": lambda m, s: m.cluster.answer(s),
    "read": lambda m, s: m.cluster.read(s),
    "announce": lambda m, s: m.cluster.to_matcher(s, ("announce",)),
    "retry": lambda m, s: m.cluster.to_matcher(s, ("retry",)),
    "to shard": lambda m, s, k: m.cluster.deliver_to_shard(s, s.links[k]),
    "to registrar": lambda m, s, k: m.cluster.deliver_to_registrar(s, s.links[k]),
    "work": lambda m, s, r: m.cluster.to_registrar(s, r, ("work",)),
    "dial shard": lambda m, s, r: m.cluster.dial_shard(s, r),
    "to server": lambda m, s, c, p: m.cluster.deliver_to_server(s, s.conns[c], p, False),
    "to client": lambda m, s, c, p: m.cluster.deliver_to_client(s, s.conns[c], p, False),
    "copy to server": lambda m, s, c: m.cluster.deliver_to_server(s, s.conns[c], 0, True),
    "copy to client": lambda m, s, c: m.cluster.deliver_to_client(s, s.conns[c], 0, True),
    "lose to server": lambda m, s, c, p: s.conns[c].to_server.pop(p),
    "lose to client": lambda m, s, c, p: s.conns[c].to_client.pop(p),
    "drained": lambda m, s, c: m._lag(s, c, "drained", False),
    "lagging": lambda m, s, c: m._lag(s, c, "lagging", True),
    "inbox": lambda m, s, i: m.cluster.read_inbox(s, i),
    "client timer": lambda m, s, i, t, r: m.cluster.to_client(s, i, ("timer", t), r),
    "ping": lambda m, s, r: m._ping(s, r),
    "silence": lambda m, s, r: m.cluster.to_registrar(s, r, ("silence",)),
    "ack flush": lambda m, s, r: m.cluster.to_registrar(s, r, ("ack flush",)),
    "linger": lambda m, s, r: m.cluster.to_registrar(s, r, ("linger",)),
    "visit": lambda m, s, r, h: m.cluster.to_registrar(s, r, ("visit", h)),
    "expire": lambda m, s, r, h: m.cluster.to_registrar(s, r, ("expire", h)),
    "shard silence": lambda m, s, k: m._shard_silence(s, k),
    "feed tick": lambda m, s: m.cluster.tell_feed_end(s),
    "publish": lambda m, s, o: m.cluster.publish(s, o),
    "publish unseen": lambda m, s, o: (s.spend("publishes"), m.cluster.publish(s, o, False)),
    "register": lambda m, s, i, o: m.cluster.register(s, i, o),
    "unregister": lambda m, s, i, o: m.cluster.unregister(s, i, o),
    "declare": lambda m, s, i, o, v: m.cluster.declare(s, i, o, v),
    "deliver again": lambda m, s, first: m.cluster.deliver_again(s, first),
    "hang up": lambda m, s, c: m._hang_up(s, c),
    "break link": lambda m, s, k: m.cluster.break_link(s.links[k]),
    "silence link": lambda m, s, k: m.cluster.silence(s.links[k]),
    "crash registrar": lambda m, s, r: m.cluster.restart_registrar(s, r),
    "crash shard": lambda m, s, n, lost: m.cluster.restart_shard(s, n, lost),
    "crash client": lambda m, s, i, keep, says: m.cluster.restart_client(s, i, keep, says),
    "lose feed": lambda m, s: m.cluster.lose_feed(s),
    "fail": lambda m, s: m.cluster.fail(s),
}
