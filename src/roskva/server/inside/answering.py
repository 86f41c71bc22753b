"""What a process answers when another one of its node asks."""

import logging
from collections.abc import Mapping
from typing import Any

from roskva.errors import BadInput, RoskvaError
from roskva.feed.trace import Trace
from roskva.metrics import Sample, Times
from roskva.model import Key, shard_of
from roskva.server.inside import sessions, stored
from roskva.server.inside.facts import (
    FrontClient,
    FrontObject,
    ObjectSeen,
    ProcessFacts,
    RowSeen,
    Stands,
)
from roskva.server.inside.notes import Notes
from roskva.server.inside.rates import Rates
from roskva.server.inside.sessions import Census
from roskva.server.measuring import of_process
from roskva.server.observers import Counters
from roskva.server.registrar import RegistrarServer
from roskva.server.shard import ShardServer
from roskva.server.status import counters, process_status
from roskva.wire.admin import Freshness, ProcessNow, ShardNow
from roskva.wire.links import Ask

_log = logging.getLogger(__name__)


class Answers:
    def __init__(
        self,
        process: str,
        shard_count: int,
        shards: Mapping[int, ShardServer],
        counters: Counters,
        notes: Notes,
    ) -> None:
        """`shards`: those that this process owns."""
        self._process = process
        self._shard_count = shard_count
        self._shards = shards
        self._counters = counters
        self._notes = notes
        self._front: RegistrarServer | None = None
        self._census: Census | None = None
        self.trace: Trace | None = None
        self.lag = Times()
        self.mqtt: Mapping[str, int] = {}
        """What went wrong with MQTT connections here."""
        self.rates = Rates(self._counted)

    def serve(self, front: RegistrarServer) -> None:
        """This process has clients, too."""
        self._front = front
        self._census = Census(front.core)

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
        match question:
            case Ask(what="status"):
                return self.status()
            case Ask(what="metrics"):
                return {"samples": self.metrics()}
            case Ask(what="online"):
                clients = self._front.online() if self._front is not None else []
                return {"clients": [client.hex() for client in clients]}
            case Ask(what="recheck"):
                if self._front is None:
                    return {"sessions": 0}
                self._front.recheck()
                return {"sessions": len(self._front.core.conns)}
            case Ask(what="checkpoint", shard=number, name=name):
                await self._owned(number).checkpoint(name)
                return {}
            case Ask(what="now"):
                return await self._now()
            case Ask(what="object", name=key):
                return await self._object(key)
            case Ask(what="client", name=client):
                return await self._client(client)
            case Ask(what="row", shard=number, name=client):
                row = await stored.of_client(self._owned(number), bytes.fromhex(client))
                return RowSeen(row)
            case Ask(what="stands", shard=number, objects=keys):
                return Stands(await stored.of_objects(self._owned(number), keys))

    def status(self) -> dict[str, Any]:
        return process_status(self._process, self._front, list(self._shards.values()))

    def metrics(self) -> list[Sample]:
        shards = list(self._shards.values())
        return list(
            of_process(self._front, shards, self._counters, self.mqtt, self.lag, self.trace)
        )

    def _owned(self, number: int) -> ShardServer:
        shard = self._shards.get(number)
        if shard is None:
            raise BadInput("this process does not own that shard")
        return shard

    def _counted(self) -> dict[str, int]:
        shards = list(self._shards.values())
        counted = counters(self._front, shards)
        return {**counted, "appended": self._counters.published["users"]}

    async def _now(self) -> ProcessFacts:
        status = self.status()
        freshness = Freshness() if self._census is None else await self._census.take()
        return ProcessFacts(
            ProcessNow(
                status["name"],
                status["role"],
                status["pid"],
                status["rss_bytes"],
                status["cpu_seconds"],
                status["sessions"],
                self.rates.per_second(),
            ),
            [self._shard(shard) for shard in self._shards.values()],
            freshness,
            [] if self.trace is None else self.trace.recent(),
        )

    def _shard(self, shard: ShardServer) -> ShardNow:
        matcher = shard.matcher
        return ShardNow(
            shard.number,
            self._process,
            True,
            str(matcher.epoch),
            matcher.applied,
            shard.feed_end,
            matcher.caught_up,
            len(matcher.objects),
            len(matcher.links),
        )

    async def _object(self, key: Key) -> ObjectSeen:
        shard = self._shards.get(shard_of(key, self._shard_count))
        stands = None if shard is None else (await stored.of_objects(shard, [key]))[key]
        front = FrontObject()
        if self._front is not None:
            front = await sessions.of_object(self._front.core, key)
        return ObjectSeen(front, stands)

    async def _client(self, wanted: str) -> FrontClient:
        if self._front is None:
            return FrontClient()
        return FrontClient(
            await sessions.of_client(self._front.core, self._process, wanted),
            self._notes.about(wanted),
        )
