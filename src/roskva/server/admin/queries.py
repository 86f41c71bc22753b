"""The node as a whole, for the admin API: what its processes know, put together.

Whoever is asked by an operator asks the others, over the sockets by which they are linked. What
concerns one object or one client is asked only of those who can know: the process that owns its
shard, and those that have clients (`lookups.py`). One that does not answer is named, and the rest
is still told.
"""

import asyncio
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from roskva import __version__
from roskva.config import Config, open_to_this_machine
from roskva.feed.trace import STAGES
from roskva.links.processes import Process
from roskva.metrics import Sample
from roskva.model import Key
from roskva.net.address import Ports
from roskva.server.admin import pipeline
from roskva.server.admin.answers import ProcessAnswers
from roskva.server.admin.lookups import NodeProcesses, look_at_client, look_at_object
from roskva.server.admin.pipeline import pipeline_now, probe_now
from roskva.server.admin.samples import of_pipeline, of_probe
from roskva.server.admin.sentences import explain_node, find_troubles
from roskva.wire.admin import (
    ClientNow,
    Freshness,
    NodeStatus,
    Now,
    ObjectNow,
    Passed,
    PipelineDetail,
    PipelineNow,
    ProbeNow,
    ProcessNow,
    ProcessReport,
    ShardNow,
    StageTime,
)
from roskva.wire.links import Ask


class AdminQueries:
    """What the admin API asks (`channels/admin_api.py`)."""

    def __init__(
        self,
        own: str,
        processes: Sequence[Process],
        config: Callable[[], Config],
        data: Path,
        answers: ProcessAnswers,
        ports: Ports,
    ) -> None:
        """`own`: the name of this process. `config`: as it is now."""
        self._processes = NodeProcesses(own, processes, answers)
        self._config = config
        self._data = data
        self._run_dir = Path(processes[0].socket).parent
        self._ports = ports
        self._started_at = time.time()

    async def status(self) -> NodeStatus:
        told = await self._ask_all("status", NodeStatus)
        own = self._processes.own
        found = [
            NodeStatus(processes=[_silent(name)]) if one is None else one
            for name, one in sorted(told.items(), key=lambda item: item[0] != own)
        ]
        return NodeStatus(
            version=__version__,
            started_at=self._started_at,
            processes=[process for one in found for process in one.processes],
            shards=sorted(
                (shard for one in found for shard in one.shards), key=lambda shard: shard.shard
            ),
            pipeline=self._pipeline(),
            probe=self._probe(),
        )

    async def metrics(self) -> bytes:
        from roskva.server.admin.exposition import exposition

        told = await self._ask_all("metrics", dict)
        samples: dict[str | None, list[Sample]] = {
            None: [*of_pipeline(self._pipeline()), *of_probe(self._probe())]
        }
        for name, answer in told.items():
            samples[name] = (
                [Sample("roskva_process_up", 0)]
                if answer is None
                else msgspec.convert(answer["samples"], list[Sample])
            )
        return exposition(samples)

    async def _ask_all(self, what: Any, kind: type[Any]) -> dict[str, Any]:
        return await self._processes.ask_all(self._processes.all, Ask(what), kind)

    def _pipeline(self) -> PipelineNow:
        return pipeline_now(self._config().pipeline, self._run_dir)

    def _probe(self) -> ProbeNow:
        return probe_now(self._config(), self._run_dir)

    async def object(self, key: Key) -> ObjectNow:
        return await look_at_object(self._processes, self._config(), self._data, key)

    async def client(self, wanted: str) -> ClientNow:
        return await look_at_client(self._processes, wanted)

    async def pipeline(self) -> PipelineDetail:
        return await asyncio.to_thread(pipeline.detail, self._data, self._pipeline())

    async def plot(self, job: str, name: str) -> bytes | None:
        return await asyncio.to_thread(pipeline.plot, self._data, job, name)

    async def now(self) -> Now:
        told: dict[str, ProcessReport | None] = await self._ask_all("now", ProcessReport)
        reports = [report for report in told.values() if report is not None]
        processes = [_silent(n) if one is None else one.process for n, one in told.items()]
        known = {shard.shard: shard for report in reports for shard in report.shards}
        shards = [
            known.get(number) or ShardNow(number, owner.name, False)
            for number, owner in sorted(self._processes.owners.items())
        ]
        sessions = Counter[str]()
        per_second: defaultdict[str, float] = defaultdict(float)
        for process in processes:
            sessions.update(process.sessions)
            for name, rate in process.per_second.items():
                per_second[name] += rate
        freshness = merged([report.freshness for report in reports])
        pipeline, probe = self._pipeline(), self._probe()
        for part in pipeline.parts:
            part.recent = []  # they are for the page of the pipeline
        troubles = find_troubles(processes, shards, freshness, pipeline, probe.objectives)
        return Now(
            version=__version__,
            at=time.time(),
            started_at=self._started_at,
            development=open_to_this_machine(self._config()),
            sentence=explain_node(troubles, sessions.total(), freshness),
            troubles=troubles,
            processes=processes,
            shards=shards,
            sessions=dict(sessions),
            per_second={name: round(rate, 2) for name, rate in per_second.items()},
            freshness=freshness,
            stages=stage_times(passed for report in reports for passed in report.passed),
            traced_one_in=self._config().node.trace_one_in,
            probe=probe,
            pipeline=pipeline,
            mqtt_port=self._ports.mqtt,
        )


def _silent(process: str) -> ProcessNow:
    return ProcessNow(name=process, error="no answer")


def merged(parts: Sequence[Freshness]) -> Freshness:
    """Over all processes, as old as the oldest."""
    oldest = max((part.age_seconds for part in parts), default=0.0)
    sums = {
        name: sum(getattr(part, name) for part in parts) for name in Freshness.__struct_fields__
    }
    return Freshness(**{**sums, "age_seconds": oldest})


def stage_times(passed: Iterable[Passed]) -> list[StageTime]:
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
    return [
        StageTime(
            stage, round(median(times[stage]), 2), round(_p99(times[stage]), 2), len(times[stage])
        )
        for stage in STAGES
        if stage in times
    ]


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[min(len(times) - 1, int(0.99 * len(times)))]
