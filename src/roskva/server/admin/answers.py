"""What a process answers when another one of its node asks: what it knows of itself, its shards and
its clients."""

import asyncio
import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from roskva.core.effects import FromLink, ObjectRow
from roskva.core.objects import ObjectEntry
from roskva.errors import BadInput, LimitExceeded, RoskvaError, Unavailable
from roskva.feed.trace import Trace
from roskva.links.shard_link import LinkEnd
from roskva.metrics import Rates, Sample, Times
from roskva.model import NO_GENERATION, NO_MARK, NO_VERSION, Key, Update, mark_of, shard_of
from roskva.server.admin import sessions
from roskva.server.admin.row_search import RowSearch
from roskva.server.admin.samples import by_name, counted, of_process
from roskva.server.admin.sessions import Census, Notes, as_text
from roskva.server.observers import TrafficCounters
from roskva.server.pressure import measured_memory
from roskva.server.registrar import RegistrarServer
from roskva.server.shard import ShardServer
from roskva.store import rows as layout
from roskva.store.rows import StoredClient
from roskva.wire import admin
from roskva.wire.links import (
    Ask,
    FromShard,
    NotPublished,
    ResetApp,
    UpdatesPublished,
    Versions,
)

_log = logging.getLogger(__name__)
_CLIENT: Final = re.compile(r"[0-9a-fA-F]{32}")
_DISK_PATIENCE_S: Final = 1.5
"""For the reset of an app to be durable: less than another process waits for our answer."""
_RATE_EVERY_S: Final = 1.0


class RowSeen(msgspec.Struct, frozen=True):
    """None: it never registered for anything, or was forgotten."""

    row: StoredClient | None


class GenerationSeen(msgspec.Struct, frozen=True):
    """Of an app in a shard: in its feed, durably."""

    generation: int
    full: bool = False
    """The shard keeps generations of so many apps that this one has no room."""


class ProcessAnswers:
    def __init__(
        self,
        process: str,
        shard_count: int,
        shards: Mapping[int, ShardServer],
        counters: TrafficCounters,
        notes: Notes,
    ) -> None:
        """`shards`: those that this process owns."""
        self._process = process
        self._shard_count = shard_count
        self._shards = shards
        self._counts = counters
        self._notes = notes
        self._front: RegistrarServer | None = None
        self._census: Census | None = None
        self.trace: Trace | None = None
        self.lag = Times()
        self.mqtt: Mapping[str, int] = {}
        """What went wrong with MQTT connections here."""
        self.rates = Rates(self._counters)
        self._rows = RowSearch(lambda: [shard.store for shard in shards.values()])

    def serve(self, front: RegistrarServer) -> None:
        """This process has clients, too."""
        self._front = front
        self._census = Census(front.core)

    async def take_rates(self) -> None:
        """Until cancelled."""
        while True:
            self.rates.sample()
            await asyncio.sleep(_RATE_EVERY_S)

    async def answer(self, question: Ask) -> Any:
        """A struct or a dictionary; one with an `error` where it cannot be answered."""
        try:
            return await self._answer(question)
        except RoskvaError as error:
            return {"error": str(error)}
        except Exception:
            # Whoever only looks must not be able to end a process that serves.
            _log.exception("this question could not be answered: %s", question.what)
            return {"error": "it could not be answered: see the log"}

    async def _answer(self, question: Ask) -> Any:
        front = self._front
        match question:
            case Ask(what="status"):
                return admin.ProcessReport(self._now(), self._shards_now())
            case Ask(what="metrics"):
                return {"samples": self._samples()}
            case Ask(what="online"):
                clients = front.online() if front is not None else {}
                return {"clients": {client.hex(): slow for client, slow in clients.items()}}
            case Ask(what="recheck"):
                if front is None:
                    return {"sessions": 0}
                front.recheck()
                return {"sessions": len(front.core.conns)}
            case Ask(what="checkpoint", shard=number, name=name):
                await self._owned(number).checkpoint(name)
                return {}
            case Ask(what="now"):
                freshness = admin.Freshness() if self._census is None else await self._census.take()
                passed = [] if self.trace is None else self.trace.recent()
                return admin.ProcessReport(self._now(), self._shards_now(), freshness, passed)
            case Ask(what="object", name=key):
                return await self._object(key)
            case Ask(what="client", name=wanted):
                return await self._clients(wanted)
            case Ask(what="row", shard=number, name=client):
                return RowSeen(await row_of(self._owned(number), bytes.fromhex(client)))
            case Ask(what="rows", name=application):
                return await self._rows.find(application)
            case Ask(what="stands", shard=number, objects=keys):
                return await _current_versions(self._owned(number), keys)
            case Ask(what="reset", shard=number, name=app, generation=generation):
                return await reset_app(self._owned(number), app, generation)

    def _samples(self) -> list[Sample]:
        shards = [(shard, self._shard_now(shard)) for shard in self._shards.values()]
        measured = self._counts, self.mqtt, self.lag, self.trace
        return list(of_process(self._now(), self._front, shards, *measured))

    def _owned(self, number: int) -> ShardServer:
        shard = self._shards.get(number)
        if shard is None:
            raise BadInput("this process does not own that shard")
        return shard

    def _counters(self) -> dict[str, int]:
        shards = list(self._shards.values())
        return by_name(counted(self._front, shards, self._counts, self.mqtt))

    def _now(self) -> admin.ProcessNow:
        front = self._front
        return admin.ProcessNow(
            name=self._process,
            role="+".join(["state"] * bool(self._shards) + ["registrar"] * (front is not None)),
            pid=os.getpid(),
            rss_bytes=measured_memory().used,
            cpu_seconds=round(time.process_time(), 3),
            sessions=front.sessions()["users"] if front is not None else {},
            shedding=front is not None and front.pressure.shedding,
            longest_lag_ms=round(1000 * front.pressure.longest_lag_s) if front is not None else 0,
            counters=self._counters(),
            per_second=self.rates.per_second(),
        )

    def _shards_now(self) -> list[admin.ShardNow]:
        return [self._shard_now(shard) for shard in self._shards.values()]

    def _shard_now(self, shard: ShardServer) -> admin.ShardNow:
        matcher, number = shard.matcher, shard.number
        return admin.ShardNow(
            number,
            self._process,
            True,
            str(matcher.epoch),
            matcher.applied,
            shard.feed_end,
            matcher.caught_up,
            len(matcher.objects),
            len(matcher.links),
            matcher.durable,
            matcher.generations,
            shard.collector.share,
            shard.rows.counters["collected"] + matcher.counters["dropped"],
            dict(self._counts.ways[number]),
            number in self._counts.alone,
            shard.row_counts,
        )

    async def _object(self, key: Key) -> admin.ObjectNow:
        shard = self._shards.get(shard_of(key, self._shard_count))
        found = admin.ObjectNow()
        if shard is not None:
            now = self._shard_now(shard)
            found = msgspec.structs.replace(
                await object_of(shard, key), ways=now.ways, reads_alone=now.reads_alone
            )
        if self._front is None:
            return found
        return await sessions.with_sessions(self._front.core, self._process, key, found)

    async def _clients(self, wanted: str) -> admin.ClientsSeen:
        if self._front is None:
            return admin.ClientsSeen()
        online = await sessions.of_client(self._front.core, self._process, wanted)
        return admin.ClientsSeen(online, *self._notes.about(wanted))


# What a shard has, whether anybody is online or not.


async def _entries(shard: ShardServer, keys: Sequence[Key]) -> dict[Key, ObjectEntry]:
    """As a registrar would be told that asks now."""
    rows = await shard.store.run(
        lambda store: layout.object_rows(keys, store.read_cells(layout.object_cells(keys)))
    )
    return {key: _entry(shard, key, row) for key, row in rows.items()}


def _entry(shard: ShardServer, key: Key, row: ObjectRow) -> ObjectEntry:
    entry = ObjectEntry()
    if row.version != NO_VERSION:
        entry.update = Update(key, row.version, row.source, row.payload, row.published_at)
    entry.mark, entry.epoch, entry.generation = row.mark, row.epoch, row.generation
    for unflushed in (shard.matcher.flushing, shard.matcher.unflushed):
        if unflushed is not None:
            unflushed.lay_over(entry, key)
    return entry


async def object_of(shard: ShardServer, key: Key) -> admin.ObjectNow:
    matcher, entry = shard.matcher, (await _entries(shard, [key]))[key]
    stands = matcher.known(key, entry)
    update, known = entry.update, stands.version != NO_VERSION
    found = admin.ObjectNow(
        answers=True,
        caught_up=matcher.caught_up,
        epoch=str(stands.epoch),
        reset=mark_of(stands.epoch) != NO_MARK,
    )
    if update is None or entry.generation != matcher.generation_of(key):
        return found
    return msgspec.structs.replace(
        found,
        version=as_text(update.version) if known else None,
        lower_bound=None if known else as_text(update.version),
        published_at=update.published_at / 1e6 if update.published_at else None,
        source=update.source,
        payload_bytes=None if update.payload is None else len(update.payload),
    )


async def _current_versions(shard: ShardServer, keys: Sequence[Key]) -> Versions:
    """None of them while the shard itself does not know yet."""
    matcher, entries = shard.matcher, await _entries(shard, keys)
    if not matcher.caught_up:
        return Versions([])
    known = (matcher.known(key, entry) for key, entry in entries.items())
    return Versions([msgspec.structs.replace(one, payload=None) for one in known])


async def reset_app(shard: ShardServer, app: str, generation: int) -> GenerationSeen:
    """Over a link of its own, as whoever publishes."""
    answer: asyncio.Future[FromShard] = asyncio.get_running_loop().create_future()

    def answered(message: FromShard) -> None:
        if not answer.done():
            answer.set_result(message)

    link = shard.accept(LinkEnd(answered, lambda: None))
    try:
        shard.step(FromLink(link, ResetApp(1, app, generation)))
        told = await asyncio.wait_for(answer, _DISK_PATIENCE_S)
    except TimeoutError:
        raise Unavailable(f"shard {shard.number} has not answered in time") from None
    finally:
        shard.lost(link)
    if isinstance(told, UpdatesPublished):
        return GenerationSeen(told.versions[0])
    assert isinstance(told, NotPublished)
    if told.code == LimitExceeded.code:
        return GenerationSeen(NO_GENERATION, full=True)
    raise Unavailable(told.text)


async def row_of(shard: ShardServer, client: bytes) -> StoredClient | None:
    row = await shard.store.run(
        lambda store: (
            layout.stored_client(cells)
            if (cells := store.read(layout.client_key(client)))
            else None
        )
    )
    return None if row is None or row.created_at is None or row.application is None else row


def client_id(text: str) -> bytes | None:
    return bytes.fromhex(text) if _CLIENT.fullmatch(text) else None
