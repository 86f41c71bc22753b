"""The node as a whole, for the admin API: what its processes know, put together.

Whoever is asked by an operator asks the others, over the sockets by which they are linked. What
concerns one object or one client, online or away, is asked only of those who can know: the process
that owns its shard, and those that have clients. One that does not answer is named, and the rest is
still told.
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, Final, TypeVar

import msgspec

from roskva import __version__
from roskva.channels.mqtt.terms import row_id
from roskva.config import Config, open_to_this_machine
from roskva.core.freshness import due
from roskva.errors import BadInput, LimitExceeded, Unavailable
from roskva.feed.trace import STAGES
from roskva.links.processes import Process
from roskva.links.questions import ask
from roskva.metrics import Sample
from roskva.model import (
    MAX_RESET_APPS,
    MAX_SOURCE_BYTES,
    MAX_VERSION,
    NO_GENERATION,
    NOBODY,
    Key,
    check_app,
    next_generation,
    parse_key,
    shard_of,
)
from roskva.net.address import Ports
from roskva.server.admin import pipeline, sentences
from roskva.server.admin.answers import GenerationSeen, ProcessAnswers, RowSeen, client_id
from roskva.server.admin.origins import origin_of
from roskva.server.admin.row_search import MOST_FOUND, RowsSearched
from roskva.server.admin.samples import exposition, of_disk, of_pipeline, of_probe, of_sources
from roskva.server.admin.sessions import BLIND, STATES, Listed, slowest_of
from roskva.server.admission import belongs_to
from roskva.server.usage import DiskUsage
from roskva.store.rows import StoredClient
from roskva.wire import admin
from roskva.wire.links import MAX_LINK_PARTS, Ask, CurrentVersion, Registered, Versions

_log = logging.getLogger(__name__)
_TIMEOUT_S: Final = 2.0
_NOTES: Final = 20
T = TypeVar("T")
Told = dict[str, T | None]
"""By the names of processes; None: it does not answer."""


class AdminQueries:
    """What the admin API asks (`channels/admin.py`)."""

    def __init__(
        self,
        own: str,
        processes: Sequence[Process],
        config: Callable[[], Config],
        data: Path,
        answers: ProcessAnswers,
        ports: Ports,
        usage: DiskUsage,
    ) -> None:
        """`own`: the name of this process, with its `answers`. `config`: as it is now."""
        self._own = own
        self._processes = processes
        self._owners = {shard: process for process in processes for shard in process.shards}
        self._fronts = [process for process in processes if not process.shards] or processes
        """Those with clients."""
        self._answers = answers
        self._config = config
        self._data = data
        self._run_dir = Path(processes[0].socket).parent
        self._ports = ports
        self._usage = usage
        self._started_at = time.time()

    # The other processes.

    def _shard_of(self, identity: Key | bytes) -> int:
        return shard_of(identity, len(self._owners))

    def _owner(self, identity: Key | bytes) -> Process:
        return self._owners[self._shard_of(identity)]

    async def _ask(self, process: Process, question: Ask, kind: type[T]) -> T | None:
        told: Any
        if process.name == self._own:
            told = await self._answers.answer(question)
            return told if isinstance(told, kind) else None
        told = await ask(process.socket, question, _TIMEOUT_S)
        return None if "error" in told else msgspec.convert(told, kind)

    async def _ask_all(
        self, question: Ask, kind: type[T], processes: Sequence[Process] = ()
    ) -> Told[T]:
        """Those that are named, or all of them."""
        asked = processes or self._processes
        told = await asyncio.gather(*(self._ask(process, question, kind) for process in asked))
        return dict(zip((process.name for process in asked), told, strict=True))

    # The node.

    async def status(self) -> admin.NodeStatus:
        told = await self._ask_all(Ask("status"), admin.ProcessReport)
        reports = [_report(n, told[n]) for n in sorted(told, key=lambda name: name != self._own)]
        shards = [shard for report in reports for shard in report.shards]
        return admin.NodeStatus(
            version=__version__,
            started_at=self._started_at,
            processes=[report.process for report in reports],
            shards=sorted(shards, key=lambda shard: shard.shard),
            pipeline=self._pipeline_now(),
            sources=self._sources_now(),
            probe=self._probe_now(),
            disk=self._disk_now(shards),
        )

    async def metrics(self) -> bytes:
        told = await self._ask_all(Ask("metrics"), dict)
        samples: dict[str | None, list[Sample]] = {
            None: [
                *of_pipeline(self._pipeline_now()),
                *of_sources(self._sources_now(), self._pipeline_now()),
                *of_probe(self._probe_now()),
                *of_disk(self._usage.now()),
            ]
        }
        for name, answer in told.items():
            samples[name] = (
                [Sample("roskva_process_up", 0)]
                if answer is None
                else msgspec.convert(answer["samples"], list[Sample])
            )
        return exposition(samples)

    def _pipeline_now(self) -> admin.PipelineNow:
        return pipeline.pipeline_now(self._config().pipeline, self._run_dir)

    def _sources_now(self) -> list[admin.SourceNow]:
        return pipeline.sources_now(self._config(), self._run_dir)

    def _disk_now(self, shards: Sequence[admin.ShardNow]) -> admin.DiskNow:
        rows = Counter[str]()
        for shard in shards:
            rows.update(shard.rows)
        found = msgspec.structs.replace(self._usage.now(), rows=dict(rows))
        return msgspec.structs.replace(found, sentence=sentences.explain_disk(found))

    def _probe_now(self) -> admin.ProbeNow:
        return pipeline.probe_now(self._config(), self._run_dir)

    async def pipeline(self) -> admin.PipelineDetail:
        return await asyncio.to_thread(pipeline.detail, self._data, self._pipeline_now())

    async def plot(self, job: str, name: str) -> bytes | None:
        return await asyncio.to_thread(pipeline.plot, self._data, job, name)

    async def now(self) -> admin.Now:
        told = await self._ask_all(Ask("now"), admin.ProcessReport)
        reports = [_report(name, report) for name, report in told.items()]
        processes = [report.process for report in reports]
        known = {shard.shard: shard for report in reports for shard in report.shards}
        shards = [
            known.get(number) or admin.ShardNow(number, owner.name, False)
            for number, owner in sorted(self._owners.items())
        ]
        sessions = Counter[str]()
        per_second: defaultdict[str, float] = defaultdict(float)
        for process in processes:
            sessions.update(process.sessions)
            for name, rate in process.per_second.items():
                per_second[name] += rate
        freshness = merged([report.freshness for report in reports])
        running, probe = self._pipeline_now(), self._probe_now()
        for part in running.parts:
            part.recent = []  # they are for the page of the pipeline
        disk, databases = self._disk_now(shards), self._sources_now()
        troubles = sentences.find_troubles(
            *(processes, shards, freshness, running, probe.objectives), disk, databases
        )
        return admin.Now(
            version=__version__,
            at=time.time(),
            started_at=self._started_at,
            development=open_to_this_machine(self._config()),
            sentence=sentences.explain_node(troubles, sessions.total(), freshness),
            troubles=troubles,
            processes=processes,
            shards=shards,
            sessions=dict(sessions),
            per_second={name: round(rate, 2) for name, rate in per_second.items()},
            freshness=freshness,
            stages=stage_times(passed for report in reports for passed in report.passed),
            traced_one_in=self._config().node.trace_one_in,
            probe=probe,
            pipeline=running,
            sources=databases,
            disk=disk,
            mqtt_port=self._ports.mqtt,
        )

    # One app.

    async def app(self, app: str) -> admin.AppNow:
        """Asked before it is reset: what the next generation is, everybody has to say."""
        check_app(app)
        if source := self._config().apps_of_sources.get(app):
            raise belongs_to(source, app)
        found = await self._generations(app, NO_GENERATION)
        return self._app_now(app, found, max(found.values(), default=NO_GENERATION))

    async def reset_app(self, app: str, generation: int | None) -> admin.AppNow:
        """With the generation that `app` named, as often as it takes until all shards have it."""
        at = await self.app(app)
        if generation is None:
            if at.silent:
                raise Unavailable(at.sentence)
            generation = int(at.following)
        known = generation <= int(at.following) or at.silent
        if not (known and NO_GENERATION < generation <= MAX_VERSION):
            raise BadInput(f"the next generation of {app} is {at.following}, not {generation}")
        found = self._app_now(app, await self._generations(app, generation), generation)
        _log.info("reset of %s: %s", app, found.sentence)
        return found

    async def _generations(self, app: str, generation: int) -> dict[int, int]:
        """Of the shards that answer."""
        told = await asyncio.gather(
            *(
                self._ask(owner, Ask("reset", shard, app, generation), GenerationSeen)
                for shard, owner in self._owners.items()
            )
        )
        if any(seen is not None and seen.full for seen in told):
            raise LimitExceeded(f"{MAX_RESET_APPS} other apps were reset, and no more are kept")
        answers = zip(self._owners, told, strict=True)
        return {shard: seen.generation for shard, seen in answers if seen is not None}

    def _app_now(self, app: str, found: dict[int, int], generation: int) -> admin.AppNow:
        at = admin.AppNow(
            app=app,
            generation=str(generation),
            following=str(next_generation(found.values(), time.time())),
            shards=len(self._owners),
            have=sum(known >= generation for known in found.values()),
            silent=sorted(self._owners.keys() - found.keys()),
        )
        return msgspec.structs.replace(at, sentence=sentences.explain_app(at))

    # One object.

    async def object(self, key: Key) -> admin.ObjectNow:
        named, owner, config = parse_key(key), self._owner(key), self._config()
        asked = list({process.name: process for process in (owner, *self._fronts)}.values())
        told = await self._ask_all(Ask("object", name=key), admin.ObjectNow, asked)
        seen = [one for one in told.values() if one is not None]
        found = msgspec.structs.replace(
            told[owner.name] or admin.ObjectNow(),
            app=named.app,
            name=named.name,
            shard=self._shard_of(key),
            process=owner.name,
            slowest=slowest_of(session for one in seen for session in one.slowest),
            audit=await asyncio.to_thread(pipeline.audited, self._data, key),
            origin=await self._origin(named.app, told[owner.name]),
            silent=[name for name in _silent(told) if name != owner.name],
            development=open_to_this_machine(config),
            assigned=config.app(named.app).versions == "assigned",
            fast_path=config.app(named.app).fast_path,
            **{
                count: sum(getattr(one, count) for one in seen)
                for count in ("sessions", "fresh", "pending", "slow")
            },
        )
        return msgspec.structs.replace(found, sentence=sentences.explain_object(found, time.time()))

    async def _origin(self, app: str, at: admin.ObjectNow | None) -> admin.OriginNow | None:
        source = self._config().apps_of_sources.get(app)
        version = None if at is None else at.version
        if source is None or version is None:
            return None
        return await asyncio.to_thread(origin_of, self._data, source, int(version))

    # One client.

    async def client(self, wanted: str) -> admin.ClientNow:
        """By its own id in hexadecimal digits, or by the one that its application gave (over MQTT
        the client id), which of a client that is away is looked for in the rows."""
        told = await self._ask_all(Ask("client", name=wanted), admin.ClientsSeen, self._fronts)
        newest, others = _newest(told)
        noted = next((one.noted for one in told.values() if one and one.noted), "")
        named = client_id(wanted) or (bytes.fromhex(noted) if noted else None)
        if newest is not None:
            named = bytes.fromhex(newest.client)
        client, kept = await self._row(named, row_id(NOBODY, wanted), newest is not None)
        searched, silent = RowsSearched(), _silent(told)
        if newest is None and (kept is None or kept.row is None):
            searched, silent_owners = await self._search(wanted)
            silent += [name for name in silent_owners if name not in silent]
            if searched.found:
                client, *others = [bytes.fromhex(each) for each, _ in searched.found]
                kept = await self._ask_for_row(client)
        if newest is None and kept is not None and kept.row is not None:
            # An MQTT client id that is too long for an application id, or who came meanwhile.
            question = Ask("client", name=client.hex())
            newest, _ = _newest(await self._ask_all(question, admin.ClientsSeen, self._fronts))
        found = newest or admin.ClientNow(
            client=client.hex(), presence="hidden" if kept is None else "nobody"
        )
        found = msgspec.structs.replace(found, others=[each.hex() for each in others])
        row = None if kept is None else kept.row
        if row is not None:
            found = _with_row(found, row)
        if found.presence != "online" or found.opening:
            listed = await self._compare(row.registered if row else [])
            found = msgspec.structs.replace(
                found, counts=dict(listed.counts), registrations=listed.listed()
            )
        seen = [one for one in told.values() if one is not None]
        notes = sorted((note for one in seen for note in one.notes), key=lambda note: -note.at)
        found = msgspec.structs.replace(found, notes=notes, silent=silent)
        blind = {self._owner(one.object).name for one in found.registrations if one.state == BLIND}
        sentence = sentences.explain_client(
            found,
            time.time(),
            owner=self._owner(client).name,
            owner_answers=kept is not None,
            blind_owners=sorted(blind),
            looked_at=searched.looked_at if searched.more else None,
        )
        return msgspec.structs.replace(found, sentence=sentence, notes=notes[:_NOTES])

    async def _row(
        self, named: bytes | None, by_mqtt: bytes, online: bool
    ) -> tuple[bytes, RowSeen | None]:
        """Of which client it is; None: the owner of its shard does not answer."""
        kept: RowSeen | None = None
        for client in (by_mqtt,) if named is None else (named, by_mqtt):
            kept = await self._ask_for_row(client)
            if kept is None or kept.row is not None or online:
                return client, kept
        return by_mqtt if named is None else named, kept

    async def _ask_for_row(self, client: bytes) -> RowSeen | None:
        question = Ask("row", self._shard_of(client), client.hex())
        return await self._ask(self._owner(client), question, RowSeen)

    async def _search(self, application: str) -> tuple[RowsSearched, list[str]]:
        """The rows of all shards, whoever was seen last first; and who did not answer."""
        if len(application.encode()) > MAX_SOURCE_BYTES:
            return RowsSearched(), []  # none can be that long
        owners = [process for process in self._processes if process.shards]
        told = await self._ask_all(Ask("rows", name=application), RowsSearched, owners)
        parts = [one for one in told.values() if one is not None]
        found = sorted((one for part in parts for one in part.found), key=lambda one: -one[1])
        looked_at, more = sum(part.looked_at for part in parts), any(part.more for part in parts)
        return RowsSearched(found[:MOST_FOUND], looked_at, more), _silent(told)

    async def _compare(self, held: Sequence[Registered]) -> Listed:
        """Registrations of a client that is away with what their objects stand at."""
        stands = await self._stands([one.object for one in held])
        listed = Listed()
        for one in held:
            at = stands.get(one.object)
            if at is None:
                listed.add(one.object, BLIND, one.acked, None)
            else:
                told = due((one.acked, one.epoch), (at.version, at.epoch))
                listed.add(one.object, STATES[told], one.acked, at.version)
        return listed

    async def _stands(self, keys: Sequence[Key]) -> dict[Key, CurrentVersion]:
        by_shard: defaultdict[int, list[Key]] = defaultdict(list)
        for key in keys:
            by_shard[self._shard_of(key)].append(key)
        found: dict[Key, CurrentVersion] = {}
        for shard, wanted in by_shard.items():
            for i in range(0, len(wanted), MAX_LINK_PARTS):
                question = Ask("stands", shard, objects=wanted[i : i + MAX_LINK_PARTS])
                told = await self._ask(self._owners[shard], question, Versions)
                if told is None:
                    break
                found.update((one.object, one) for one in told.known)
        return found


def _report(process: str, told: admin.ProcessReport | None) -> admin.ProcessReport:
    return told or admin.ProcessReport(admin.ProcessNow(name=process, error="no answer"))


def _with_row(found: admin.ClientNow, row: StoredClient) -> admin.ClientNow:
    if row.created_at is None:
        return found
    times = {"created_at": row.created_at / 1e6, "seen_at": (row.seen_at or row.created_at) / 1e6}
    found = msgspec.structs.replace(found, **times)
    if found.presence == "online":
        return found
    return msgspec.structs.replace(
        found, presence="offline", application=row.application or "", session=str(row.session)
    )


def _newest(told: Told[admin.ClientsSeen]) -> tuple[admin.ClientNow | None, list[bytes]]:
    """Of those that are online the one with the newest session, and who else has the same id."""
    online = [client for one in told.values() if one is not None for client in one.online]
    newest = max(online, key=lambda client: int(client.session), default=None)
    others = {one.client for one in online} - {newest.client if newest else ""}
    return newest, sorted(map(bytes.fromhex, others))


def _silent(told: Told[Any]) -> list[str]:
    return [name for name, one in told.items() if one is None]


def merged(parts: Sequence[admin.Freshness]) -> admin.Freshness:
    """Over all processes, as old as the oldest."""
    oldest = max((part.age_seconds for part in parts), default=0.0)
    sums = {
        name: sum(getattr(part, name) for part in parts)
        for name in admin.Freshness.__struct_fields__
    }
    return admin.Freshness(**{**sums, "age_seconds": oldest})


def stage_times(passed: Iterable[admin.Passed]) -> list[admin.StageTime]:
    """How long the stages between publish and ack take, from the updates that were sampled lately:
    in their order; `passed` may come from several processes, in any order."""
    first: defaultdict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for object, version, stage, at_us in passed:
        seen = first[object, version]
        seen[stage] = min(at_us, seen.get(stage, at_us))
    times: defaultdict[str, list[float]] = defaultdict(list)
    for seen in first.values():
        if seen.get("bridged", 0) >= seen.get("matched", seen.get("bridged", 0) + 1):
            del seen["bridged"]  # the bridge has brought what was there already
        stages = [stage for stage in STAGES if stage in seen]
        for before, stage in pairwise(stages):
            times[stage].append(max(0, seen[stage] - seen[before]) / 1000)
    found = []
    for stage in STAGES:
        if took := sorted(times[stage]):
            p99 = took[min(len(took) - 1, int(0.99 * len(took)))]
            found.append(admin.StageTime(stage, round(median(took), 2), round(p99, 2), len(took)))
    return found
