"""A registrar for tests: the real machine, its links and its connections."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.core.links import Connection, Link

from roskva.core.effects import (
    Broadcast,
    Close,
    Drained,
    DropLink,
    Effect,
    Event,
    FromConnection,
    FromLink,
    Lagging,
    LinkDown,
    LinkUp,
    Send,
    SendLink,
    Tick,
)
from roskva.core.identity import TokenKeys
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.model import Key
from roskva.wire.links import FromShard
from roskva.wire.messages import FromClient, ServerMessage

if TYPE_CHECKING:
    from tests.core.pair import Pair

KEYS = TokenKeys({1: bytes(32)}, current=1)
HIGH_WATER = 8192


class RegistrarSide:
    def __init__(self, pair: Pair, name: str, config: RegistrarConfig) -> None:
        self.pair, self.name, self.config = pair, name, config
        self.conns: dict[int, Connection] = {}
        self.links: dict[int, Link] = {}
        self.cut_from: set[int] = set()
        """Shards that it cannot reach."""
        self.denied: frozenset[Key] = frozenset()
        self.start()

    def start(self) -> None:
        self.core = Registrar(self.config, KEYS, wall_us=0, now=self.pair.now)

    def crash(self) -> None:
        for conn in list(self.conns.values()):
            self.pair.soon(partial(conn.client.hung_up, conn))
        for link in list(self.links.values()):
            link.break_()
        self.conns, self.links = {}, {}
        self.start()

    def cut(self, shard: int = 0) -> None:
        self.cut_from.add(shard)
        if shard in self.links:
            self.links[shard].break_()

    def join(self, shard: int = 0) -> None:
        self.cut_from.discard(shard)

    def deadline(self) -> float | None:
        return self.core.next_deadline()

    def tick(self) -> None:
        self.step(Tick())

    def step(self, event: Event) -> None:
        effects = self.core.step(event, self.pair.now)
        self.pair.note_step(self.core, effects)
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(conn=int() as id, message=message):
                self._write(id, message)
            case Broadcast(message=message, conns=conns):
                for told in conns:
                    assert isinstance(told, int)
                    self._write(told, message)
            case Close(conn=int() as id):
                conn = self.conns.pop(id, None)
                if conn is not None:
                    conn.down.end()
            case SendLink(link=int() as shard, message=message):
                if shard in self.links:
                    self.links[shard].up.put(message)  # type: ignore[arg-type]
            case DropLink(link=int() as shard):
                if shard in self.links:
                    self.links[shard].break_()
            case _:
                raise AssertionError(effect)

    def _write(self, id: int, message: ServerMessage) -> None:
        conn = self.conns.get(id)
        if conn is None:
            return
        conn.down.put(message)
        if not conn.lagging and conn.down.backlog() > HIGH_WATER:
            conn.lagging = True
            self.pair.soon(partial(self.step, Lagging(id)))

    def drained(self, conn: Connection) -> None:
        if conn.lagging and conn.id in self.conns:
            conn.lagging = False
            self.step(Drained(conn.id))

    def received(self, conn: Connection, message: FromClient) -> None:
        if conn.id in self.conns:
            self.step(FromConnection(conn.id, message, self.denied))

    def link_down(self, link: Link) -> None:
        if self.links.get(link.shard.index) is link:
            del self.links[link.shard.index]
            self.step(LinkDown(link.shard.index))

    def from_link(self, link: Link, message: FromShard) -> None:
        if self.links.get(link.shard.index) is link:
            self.step(FromLink(link.shard.index, message))

    def dial(self) -> bool:
        """Open the links that are missing; False if there were none."""
        missing = [
            shard
            for shard in self.pair.shards
            if shard.index not in self.links and shard.index not in self.cut_from
        ]
        for shard in missing:
            self.links[shard.index] = Link(self.pair.next_id(), self, shard)
            self.step(LinkUp(shard.index))
        return bool(missing)
