"""One process of a node: some shards, or a registrar with its channels, or both.

One TaskGroup owns every task. The process ends when it is told to, or when something of it breaks:
then at once and loudly, for what matters is on disk and a supervisor starts it again.
"""

import asyncio
import gc
import logging
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from roskva.config import Config
from roskva.core.collector import BY_DEFAULT, CollectorConfig
from roskva.core.effects import FromLink
from roskva.core.identity import TokenKeys
from roskva.errors import BadMessage
from roskva.feed.commit import Committer, Handover, wall_clock_us
from roskva.feed.trace import DIRECTORY, Trace
from roskva.host.observer import Observer
from roskva.links.framing import Framed
from roskva.links.processes import Process
from roskva.links.shard_link import LinkEnd, SocketLink
from roskva.logs import tell_counted
from roskva.server.access.authority import authority_of
from roskva.server.access.keys import token_keys
from roskva.server.admin.answers import ProcessAnswers
from roskva.server.admin.queries import AdminQueries
from roskva.server.admin.sessions import Notes
from roskva.server.directory import DataDirectory
from roskva.server.executor import LocalLink, ShardExecutor
from roskva.server.listeners import Listeners, PortSockets
from roskva.server.observers import Observers, Tracer, TrafficCounters, write_trace
from roskva.server.pressure import measure_lag
from roskva.server.registrar import RegistrarServer
from roskva.server.reload import Reloads
from roskva.server.shard import ShardServer
from roskva.server.space import DiskSpace
from roskva.server.usage import DiskUsage
from roskva.store.worker import SWITCH_INTERVAL_S
from roskva.wire.codec import decode_to_shard, encode_link
from roskva.wire.links import (
    Ask,
    AwaitGap,
    Forget,
    FromShard,
    LinkHello,
    Offer,
    ProcessAnswer,
    PublisherHello,
)

_log = logging.getLogger(__name__)
_COME_BACK_MS: Final = 2000
"""Clients of a node that stops come back within this time, spread over it."""
_COLLECTOR: Final = (10_000, 20, 1_000_000)
"""Whole collections are left out: there is `freeze` instead."""
_FREEZE_S: Final = 30.0
_LOOK_S: Final = 0.02
"""How often a process that starts looks whether it is ready."""


class Role(msgspec.Struct, frozen=True):
    """What one process does."""

    name: str
    shards: Sequence[int]
    """That it owns."""
    front: bool
    """Whether it serves clients."""
    processes: tuple[Process, ...]
    """All processes of this node, this one included."""

    @property
    def socket(self) -> str:
        """Where it answers others."""
        return next(process.socket for process in self.processes if process.name == self.name)


class NodeProcess:
    def __init__(
        self,
        role: Role,
        config: Config,
        data: DataDirectory,
        keys: TokenKeys,
        sockets: PortSockets | None,
        reloads: Reloads,
    ) -> None:
        self.role = role
        self._config = config
        self._data = data
        self._keys = keys
        self._sockets = sockets
        self.reloads = reloads
        self._authority = authority_of(config, keys)
        reloads.add("the settings of apps", self._reload)
        self._shards: dict[int, ShardServer] = {}
        self._registrar: RegistrarServer | None = None
        self._trace: Trace | None = None
        self._space = DiskSpace(data.path, config.limits.min_free_disk_bytes)
        counters, notes = TrafficCounters(), Notes(role.name)
        self._counters = counters
        self._observers: list[Observer] = [counters, notes]
        self.answers = ProcessAnswers(role.name, data.meta.shards, self._shards, counters, notes)

    async def run(self, stop: asyncio.Event, started: Callable[[], None] = lambda: None) -> None:
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        began = _now()
        self._handover = Handover()
        self._broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        try:
            if self._config.node.trace_one_in is not None:
                one_in = self._config.node.trace_one_in
                self._trace = Trace(
                    self._data.path / DIRECTORY / self.role.name, one_in, wall_clock_us()
                )
                self.answers.trace = self._trace
                self._observers.append(Tracer(self._trace, self.role.shards))
            await self._open_shards()
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                running = [tasks.create_task(shard.run()) for shard in self._shards.values()]
                running += [tasks.create_task(one.count_rows()) for one in self._shards.values()]
                running.append(tasks.create_task(self._answer_others(self.role.socket)))
                if self._sockets is not None:
                    running += await self._open_front(self._sockets)
                if self._trace is not None:
                    running.append(tasks.create_task(write_trace(self._trace)))
                running.append(tasks.create_task(_spare_the_collector()))
                running.append(tasks.create_task(self.answers.take_rates()))
                running.append(tasks.create_task(measure_lag(self._late_by)))
                running.append(tasks.create_task(tell_counted()))
                running.append(tasks.create_task(self._say_when_ready(began)))
                running.append(tasks.create_task(self._space.run()))
                started()
                await self._until(stop)
                stopping = _now()
                await self._stop_serving()
                for task in running:
                    task.cancel()
        finally:
            for shard in self._shards.values():
                await shard.close()
        _log.info("stopped after %.2f s: everything is on disk", _now() - stopping)

    async def _until(self, stop: asyncio.Event) -> None:
        stopping = self._tasks.create_task(stop.wait())
        ends: list[asyncio.Future[Any]] = [stopping, self._broken]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._broken.done():
            self._broken.result()

    def _late_by(self, seconds: float) -> None:
        self.answers.lag.observe(seconds)
        if self._registrar is not None:
            self._registrar.pressure.late_by(seconds)

    async def _say_when_ready(self, began: float) -> None:
        while not self._ready():  # noqa: ASYNC110  # once, and nobody else wants to know
            await asyncio.sleep(_LOOK_S)
        _log.info("ready after %.2f s%s", _now() - began, self._recovery() if self._shards else "")

    def _ready(self) -> bool:
        caught_up = all(shard.matcher.caught_up for shard in self._shards.values())
        return caught_up and (self._registrar is None or self._registrar.ready)

    def _recovery(self) -> str:
        """In words: what was found at the start."""
        updates = sum(self._counters.ways[number]["start"] for number in self._shards)
        torn = sum(shard.recovered.cut_bytes for shard in self._shards.values())
        found = []
        if updates:
            found.append(f"{updates:,} updates read again from the feed")
        if torn:
            found.append(f"{torn:,} bytes cut off that were half written")
        return f": {len(self._shards)} shards, {', '.join(found) or 'nothing to recover'}"

    def _break(self, error: Exception) -> None:
        if not self._broken.done():
            _log.critical("cannot go on, and ends: %s", error)
            self._broken.set_exception(error)

    # The shards.

    async def _open_shards(self) -> None:
        feed = self._config.feed
        committer = Committer(max_wait_s=feed.commit_wait_ms / 1000, handover=self._handover)
        for number in self.role.shards:
            self._shards[number] = await ShardServer.open(
                *(self._data, number, feed, committer, self._break),
                lambda app: self._config.app(app).fast_path,
                self._config.apps_of_sources,
                lambda app: self._config.keep(app),
                self._collecting(),
                self._config.limits.max_share,
                Observers(self._observers),
            )
        self._set_windows()
        if restored := [shard for shard in self._shards.values() if shard.recovered.restored]:
            _log.info(
                "restored from a backup: what was published after it is not here, so %d shards "
                "begin a new epoch and tell their clients, once, to look again",
                len(restored),
            )

    def _collecting(self) -> CollectorConfig:
        looked_at_s = self._config.sessions.resend_seconds
        grace_s = max(BY_DEFAULT.lost_grace, 2 * looked_at_s)
        return CollectorConfig(objects=self._config.drops_objects, lost_grace=grace_s)

    def _set_windows(self) -> None:
        for shard in self._shards.values():
            shard.batching.batch_ms = self._config.windows("batch_ms")

    async def _answer_others(self, path: str) -> None:
        def asked(question: Ask, answer: Callable[[ProcessAnswer], None]) -> None:
            self._tasks.create_task(self._tell(question, answer))

        server = await asyncio.get_running_loop().create_unix_server(
            lambda: _PeerStream(self._shards, asked).stream, path
        )
        async with server:
            await server.serve_forever()

    async def _tell(self, question: Ask, answer: Callable[[ProcessAnswer], None]) -> None:
        answer(ProcessAnswer(msgspec.json.encode(await self.answers.answer(question))))

    # The front.

    async def _open_front(self, sockets: PortSockets) -> list["asyncio.Task[None]"]:
        shards = self._data.meta.shards
        registrar = self._registrar = RegistrarServer(
            *(self.role.name, shards, self._config, self._authority),
            *(self._keys, self._break, self._handover),
            *(self._space, Observers(self._observers)),
        )
        links = [self._link(number, registrar) for number in range(shards)]
        registrar.links.update((number, link.end) for number, link in enumerate(links))
        tasks = [self._tasks.create_task(link.run()) for link in links]
        tasks.append(self._tasks.create_task(self._authority.run()))
        self.answers.serve(registrar)
        usage = self._usage()
        tasks.append(self._tasks.create_task(usage.run()))
        admin = AdminQueries(
            *(self.role.name, self.role.processes, lambda: self._config, self._data.path),
            *(self.answers, sockets.ports, usage),
        )
        self._listeners = Listeners(registrar, admin, self._config, shards, self.reloads)
        self.answers.mqtt = self._listeners.mqtt_counters
        await self._listeners.open(self._tasks, sockets)
        tasks.append(self._tasks.create_task(self._listeners.ping()))
        return tasks

    def _usage(self) -> DiskUsage:
        feed, shards = self._config.feed, self._data.meta.shards
        cap = feed.max_bytes(self._space.disk.total, shards)
        return DiskUsage(self._data.path, self._space, None if cap is None else cap * shards)

    def _link(self, number: int, registrar: RegistrarServer) -> LocalLink | SocketLink:
        if number in self._shards:
            return LocalLink(self._shards[number], registrar.step)
        owner = next(process for process in self.role.processes if number in process.shards)
        return SocketLink(number, owner.socket, registrar.step)

    def _reload(self, config: Config) -> None:
        """What may change while a node runs, and the keys of tokens with it."""
        keys = token_keys(self._data.path)
        config = msgspec.structs.replace(self._config, defaults=config.defaults, apps=config.apps)
        if self._registrar is not None:
            self._authority.reload(config, keys)
            self._registrar.reload(config, keys)
        self._config = config
        self._set_windows()

    async def _stop_serving(self) -> None:
        """Acks first, then the sessions, each with a time to come back at."""
        if self._registrar is None:
            return
        self._listeners.shut()
        self._registrar.dismiss(lambda: random.randrange(_COME_BACK_MS))
        await self._listeners.close()


def _now() -> float:
    return asyncio.get_running_loop().time()


async def _spare_the_collector() -> None:
    """Sessions live long, and let go of what they were in when they end. What the collector has
    found to live, it need not look at again: otherwise twenty thousand sessions mean a long pause
    every now and then."""
    gc.set_threshold(*_COLLECTOR)
    gc.collect()
    while True:
        gc.freeze()
        await asyncio.sleep(_FREEZE_S)
        gc.collect(1)


class _PeerStream:
    """The other end of a link, or somebody with a question."""

    def __init__(
        self,
        shards: Mapping[int, ShardExecutor],
        asked: Callable[[Ask, Callable[[FromShard], None]], None],
    ) -> None:
        self._shards = shards
        self._asked = asked
        self._greeted: int | None = None
        """The shard that this link is to."""
        self._links: dict[int, int] = {}
        """By shard: under which number it knows this stream."""
        self.stream = Framed(lambda _: None, self._received, self._lost)

    def _send(self, message: FromShard) -> None:
        self.stream.send(encode_link(message))

    def _received(self, stream: Framed, frame: bytes) -> None:
        try:
            message = decode_to_shard(frame)
        except BadMessage as error:
            _log.error("a process of this node says what is no message: %s", error)
            stream.drop()
            return
        match message:
            case Ask():
                self._asked(message, self._send)
                return
            case PublisherHello(shard=number):
                self._greeted = number
                return
            case Offer(shard=number) | AwaitGap(shard=number):
                shard = number
            case LinkHello(shard=number) | Forget(shard=number) if self._greeted is None:
                shard = self._greeted = number
            case _:
                shard = -1 if self._greeted is None else self._greeted
        if shard not in self._shards:
            stream.drop()
            return
        if shard not in self._links:
            self._links[shard] = self._shards[shard].accept(LinkEnd(self._send, stream.drop))
        self._shards[shard].step(FromLink(self._links[shard], message))

    def _lost(self, stream: Framed) -> None:
        for shard, link in self._links.items():
            self._shards[shard].lost(link)
