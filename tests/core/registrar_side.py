"""A registrar for tests: the real host, its links and its connections."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec
from tests.core.links import Connection, Link

from roskva.core.effects import (
    Attached,
    Close,
    Drained,
    DropLink,
    FromConnection,
    FromLink,
    Lagging,
    LinkDown,
    LinkUp,
    Opened,
    Send,
    SendLink,
    Tick,
    Watching,
)
from roskva.core.identity import TokenKeys
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.host.delivery import MessageDelivery, Write
from roskva.host.registrar import HostEffect, HostEvent, RegistrarHost
from roskva.model import Key
from roskva.wire import codec
from roskva.wire.links import FromShard
from roskva.wire.messages import FromClient

if TYPE_CHECKING:
    from tests.core.pair import Pair


class Numbered(MessageDelivery):
    """Names a connection; its number, by itself, names it just as well."""

    def __init__(self, number: int) -> None:
        super().__init__(codec.encode)
        self.address = number

    def __hash__(self) -> int:
        return hash(self.address)

    def __eq__(self, other: object) -> bool:
        return self.address == (other.address if isinstance(other, Numbered) else other)


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
        self.host = RegistrarHost(self.config, KEYS, wall_us=0, now=self.pair.now)

    @property
    def core(self) -> Registrar:
        return self.host.core

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
        return self.host.next_deadline()

    def tick(self) -> None:
        self.step(Tick())

    def step(self, event: HostEvent) -> None:
        if isinstance(event, Opened | Attached | Watching):
            event = msgspec.structs.replace(event, conn=Numbered(event.conn))  # type: ignore[arg-type]
        effects = self.host.step(event, self.pair.now)
        self.pair.note_step(self.host, effects)
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: HostEffect) -> None:
        match effect:
            case Send(conn=Numbered(address=id), message=message):
                self._write(id, codec.encode(message))
            case Write(addresses=addresses, data=data):
                for id in addresses:
                    self._write(id, data)
            case Close(conn=Numbered(address=id)):
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

    def _write(self, id: int, frame: bytes) -> None:
        conn = self.conns.get(id)
        if conn is None:
            return
        conn.down.put_frame(frame)
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
