"""What may happen next: a move is a method of the cluster and what it takes, `("publish", 0)`.

- *Prompt* moves are what a healthy cluster does by itself and at once: deliver the oldest message
  of a queue, carry out a storage operation, let a short timer run out. Any of them may come next.
- *Slow* moves are timers that run out when nothing else is left to do: heartbeats, scans, pings,
  time-outs of answers that were lost. They are what heals, and cost nothing.
- *Changes* (publishing, registering) and *faults* may come at any time, as often as the bounds say.
  A timer that runs out although others are merely slow is a fault too.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from verification.exploration.cluster import Cluster
from verification.exploration.state import CLOSE, ExploredState, Wanted, Wire

Move = tuple[Any, ...]

EAGER: Final = {
    "disk": ("operate", "answer", "read", "shard_timer"),
    "links": ("deliver_to_shard", "deliver_to_registrar", "dial_shard", "registrar_timer"),
    "clients": ("deliver_up", "deliver_down", "drain", "client_timer", "read_inbox"),
}


class Moves:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.bounds = cluster.bounds
        self.eager = frozenset(word for kind in self.bounds.eager for word in EAGER[kind])

    def perform(self, state: ExploredState, move: Move) -> None:
        eager = self.eager
        next_: Move | None = move
        while next_ is not None:
            getattr(self.cluster, next_[0])(state, *next_[1:])
            next_ = next((m for m in self._prompt(state) if m[0] in eager), None) if eager else None
        state.tidy()

    def prompt(self, state: ExploredState) -> list[Move]:
        """In the order of the fair schedule, which always takes the first."""
        return list(self._prompt(state))

    def _prompt(self, state: ExploredState) -> Iterator[Move]:
        yield from self._shard(state)
        yield from self._registrars(state)
        yield from self._clients(state)

    def _shard(self, state: ExploredState) -> Iterator[Move]:
        disk, facts = state.disk, self.cluster.shards.facts[state.shard]
        if disk.operations:
            yield ("operate",)
        if disk.answers:
            yield ("answer",)
        if disk.reads:
            yield ("read",)
        if facts.announces:
            yield "shard_timer", "announce"
        if facts.retries:
            yield "shard_timer", "retry"
        if facts.patient:
            yield "shard_timer", "patience"

    def _registrars(self, state: ExploredState) -> Iterator[Move]:
        for k, link in enumerate(state.links):
            if link.up:
                yield "deliver_to_shard", k
            if link.down:
                yield "deliver_to_registrar", k
        for r, host in enumerate(state.registrars):
            if self.cluster.registrars.facts[host].works:
                yield "registrar_timer", r, "work"
            if state.link_of(r) is None:
                yield "dial_shard", r

    def _clients(self, state: ExploredState) -> Iterator[Move]:
        for c, conn in enumerate(state.conns):
            if conn.up:
                yield "deliver_up", c
            if conn.down:
                yield "deliver_down", c
            if self.cluster.lags(state, conn):
                yield "drain", c
        for i, client in enumerate(state.clients):
            if client.inbox:
                yield "read_inbox", i
            for timer in self.cluster.clients.facts[client.core].prompt:
                for r in range(self.bounds.registrars if timer == "connect_at" else 1):
                    yield "client_timer", i, timer, (i + r) % self.bounds.registrars

    def slow(self, state: ExploredState) -> list[Move]:
        """Timers that are far apart keep their order: a dead link is found long before the next
        visit or retry, and whoever waits for an answer gives up before saying it all again."""
        armed = self._armed(state)
        dead = [move for move in armed if move[0].endswith("silence")]
        if dead:
            return dead
        waiting = {
            move[1] for move in armed if move[0] == "client_timer" and move[2] == "answer_by"
        }
        return [
            move
            for move in armed
            if move[0] != "client_timer" or move[1] not in waiting or move[2] == "answer_by"
        ]

    def _armed(self, state: ExploredState) -> list[Move]:
        return [*self._server_timers(state), ("feed_tick",), *self._client_timers(state)]

    def _server_timers(self, state: ExploredState) -> Iterator[Move]:
        for r, host in enumerate(state.registrars):
            facts, link = self.cluster.registrars.facts[host], state.link_of(r)
            if link is not None:
                dead = link.silent or not link.upper_open
                yield ("registrar_silence" if dead else "ping"), r
            if facts.flushes:
                yield "registrar_timer", r, "ack flush"
            if facts.lingers:
                yield "registrar_timer", r, "linger"
        for conn in state.conns:
            if conn.upper_open:
                yield from self._visits(state, conn, conn.lower_open)
        for k, link in enumerate(state.links):
            if link.upper_open and (link.silent or not link.lower_open):
                yield "shard_silence", k

    def _visits(self, state: ExploredState, conn: Wire, there: bool) -> Iterator[Move]:
        session = self.cluster.session(state, conn)
        if session is not None and session.visited:
            timer = "visit" if there and session.open else "expire"
            yield "registrar_timer", conn.registrar, timer, conn.handle()

    def _client_timers(self, state: ExploredState) -> Iterator[Move]:
        for i, client in enumerate(state.clients):
            for timer in self.cluster.clients.facts[client.core].slow:
                yield "client_timer", i, timer, 0

    def costly(self, state: ExploredState, quiet: bool) -> Iterator[tuple[str, Move]]:
        """Changes and faults, with the kind that they are counted under."""
        for kind, moves in COSTLY.items():
            if state.may(kind):
                for move in moves(self.cluster, state):
                    yield kind, move
        if state.may("early_timers"):
            for move in self._early(state, quiet):
                yield "early_timers", move

    def _early(self, state: ExploredState, quiet: bool) -> Iterator[Move]:
        """Also those that in a healthy cluster never run out."""
        if not quiet:
            yield from (move for move in self._armed(state) if move[0] != "ping")
        for conn in state.conns:
            if conn.whole():
                yield from self._visits(state, conn, False)
        for k, link in enumerate(state.links):
            if link.whole() and not link.silent:
                yield "registrar_silence", link.registrar
                yield "shard_silence", k


def _each(word: str, wires: list[Wire], may: Callable[[Wire], bool]) -> list[Move]:
    return [(word, place) for place, wire in enumerate(wires) if may(wire)]


def _queues(state: ExploredState) -> Iterator[tuple[str, int, list[int]]]:
    """Both ways of every connection of a client."""
    for c, conn in enumerate(state.conns):
        yield "up", c, conn.up
        yield "down", c, conn.down


def _wants(state: ExploredState) -> Iterator[tuple[int, int, Wanted]]:
    """Every client and object."""
    for i, client in enumerate(state.clients):
        for index, at in enumerate(client.objects):
            yield i, index, at


def _client_crashes(cluster: Cluster, state: ExploredState) -> Iterator[Move]:
    for i, client in enumerate(state.clients):
        yield "crash_client", i, True, False
        if cluster.bounds.declarations and any(at.knows for at in client.objects):
            yield "crash_client", i, True, True


COSTLY: Final[dict[str, Callable[[Cluster, ExploredState], Iterable[Move]]]] = {
    "publishes": lambda _, state: [("publish", index) for index in range(len(state.published))],
    "operations": lambda _, state: [
        ("unregister" if at.wanted else "register", i, index) for i, index, at in _wants(state)
    ],
    "declarations": lambda _, state: [
        ("declare", i, index, version)
        for i, index, _ in _wants(state)
        for version in (state.published[index], state.published[index] - 1)
        if version > 0
    ],
    "deliveries": lambda _, state: [
        ("deliver_again", first) for first in range(state.disk.feed_first, state.disk.last() + 1)
    ],
    "app_resets": lambda cluster, state: (
        [("reset_app",)] if cluster.shards.facts[state.shard].caught_up else []
    ),
    "losses": lambda _, state: [
        ("lose", c, way, place) for way, c, queue in _queues(state) for place in range(len(queue))
    ],
    "duplicates": lambda _, state: [
        (f"deliver_{way}", c, 0, True)
        for way, c, queue in _queues(state)
        if queue and queue[0] != CLOSE
    ],
    "reorders": lambda _, state: [
        (f"deliver_{way}", c, place)
        for way, c, queue in _queues(state)
        for place in range(1, len(queue))
        if queue[place] != CLOSE
    ],
    "hangups": lambda _, state: _each("hang_up", state.conns, Wire.whole),
    "lags": lambda cluster, state: _each(
        "lag", state.conns, lambda conn: conn.whole() and not cluster.lags(state, conn)
    ),
    "link_breaks": lambda _, state: _each("break_link", state.links, Wire.whole),
    "silences": lambda _, state: _each("silence_link", state.links, lambda link: not link.silent),
    "registrar_crashes": lambda _, state: [
        ("crash_registrar", r) for r in range(len(state.registrars))
    ],
    "shard_crashes": lambda _, state: [
        ("crash_shard", written, "") for written in range(len(state.disk.operations) + 1)
    ],
    "state_losses": lambda *_: [("crash_shard", 0, "state")],
    "row_losses": lambda *_: [("crash_shard", 0, "rows")],
    "recreations": lambda *_: [("crash_shard", 0, "feed")],
    "feed_losses": lambda _, state: (
        [("lose_feed",)] if state.disk.feed_first <= state.disk.last() else []
    ),
    "missed_handovers": lambda cluster, state: [
        *(
            ("publish_unseen", index)
            for index in range(len(state.published))
            if state.may("publishes")
        ),
        *(
            [("reset_app_unseen",)]
            if state.may("app_resets") and cluster.shards.facts[state.shard].caught_up
            else []
        ),
    ],
    "client_crashes": _client_crashes,
    "client_losses": lambda _, state: [
        ("crash_client", i, False, False) for i in range(len(state.clients))
    ],
    "failures": lambda _, state: [("fail",)] if state.disk.operations else [],
}
"""By what it is counted under."""
