"""The node as a whole, for the admin API: what its processes know, put together.

Whoever is asked by an operator asks the others, over the sockets by which they are linked. What
concerns one object or one client is asked only of those who can know: the process that owns its
shard, and those that have clients. One that does not answer is named, and the rest is still told.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from roskva import __version__
from roskva.config import Config, open_to_this_machine
from roskva.links.framing import ask
from roskva.metrics import Sample
from roskva.model import Key
from roskva.server.inside import pipeline
from roskva.server.inside.answering import Answers
from roskva.server.inside.asking import TIMEOUT_S, Place, Processes
from roskva.server.inside.clients import look_at_client
from roskva.server.inside.facts import ProcessFacts
from roskva.server.inside.objects import look_at_object
from roskva.server.inside.stages import stage_times
from roskva.server.inside.troubles import sentence, troubles
from roskva.server.listening import Ports
from roskva.server.measuring import of_pipeline, of_probe
from roskva.server.status import gathered, pipeline_status, probe_status
from roskva.wire.admin import (
    ClientNow,
    Freshness,
    Now,
    ObjectNow,
    PipelineDetail,
    PipelineNow,
    ProbeNow,
    ProcessNow,
    ShardNow,
)
from roskva.wire.links import Ask


class Inside:
    """What the admin API asks (`channels/admin_api.py`)."""

    def __init__(
        self,
        place: Place,
        config: Callable[[], Config],
        data: Path,
        answers: Answers,
        ports: Ports,
    ) -> None:
        """`config`: as it is now."""
        self._processes = Processes(place, answers)
        self._answers = answers
        self._config = config
        self._data = data
        self._run_dir = Path(place.socket).parent
        self._ports = ports
        self._started_at = time.time()

    async def status(self) -> dict[str, Any]:
        others = [process for process in self._processes.all if process.name != self._processes.own]
        told = await asyncio.gather(
            *(ask(process.socket, Ask("status"), TIMEOUT_S) for process in others)
        )
        named = [{"name": p.name, **answer} for p, answer in zip(others, told, strict=True)]
        own = self._answers.status()
        return gathered(
            __version__, self._started_at, [own, *named], self._pipeline(), self._probe()
        )

    async def metrics(self) -> bytes:
        from roskva.server.inside.exposition import exposition

        processes = self._processes.all
        told = await asyncio.gather(
            *(self._processes.ask(process, Ask("metrics"), dict) for process in processes)
        )
        samples: dict[str | None, list[Sample]] = {
            None: [*of_pipeline(self._pipeline()), *of_probe(self._probe())]
        }
        for process, answer in zip(processes, told, strict=True):
            samples[process.name] = (
                [Sample("roskva_process_up", 0)]
                if answer is None
                else msgspec.convert(answer["samples"], list[Sample])
            )
        return exposition(samples)

    def _pipeline(self) -> PipelineNow:
        return pipeline_status(self._config().pipeline, self._run_dir)

    def _probe(self) -> ProbeNow:
        return probe_status(self._config(), self._run_dir)

    async def object(self, key: Key) -> ObjectNow:
        return await look_at_object(self._processes, self._config(), self._data, key)

    async def client(self, wanted: str) -> ClientNow:
        return await look_at_client(self._processes, wanted)

    async def plot(self, job: str, name: str) -> bytes | None:
        return await asyncio.to_thread(pipeline.plot, self._data, job, name)

    async def now(self) -> Now:
        processes = self._processes.all
        told = await asyncio.gather(
            *(self._processes.ask(process, Ask("now"), ProcessFacts) for process in processes)
        )
        answered = [facts for facts in told if facts is not None]
        shown = [
            ProcessNow(process.name, error="no answer") if facts is None else facts.process
            for process, facts in zip(processes, told, strict=True)
        ]
        shards = self._shards(answered)
        sessions: defaultdict[str, int] = defaultdict(int)
        per_second: defaultdict[str, float] = defaultdict(float)
        for facts in answered:
            for channel, count in facts.process.sessions.items():
                sessions[channel] += count
            for name, rate in facts.process.per_second.items():
                per_second[name] += rate
        freshness = _summed([facts.freshness for facts in answered])
        report, probe = self._pipeline(), self._probe()
        for part in report.parts:
            part.recent = []  # they are for the page of the pipeline
        wrong = troubles(shown, shards, freshness, report, probe.objectives)
        return Now(
            version=__version__,
            at=time.time(),
            started_at=self._started_at,
            development=open_to_this_machine(self._config()),
            sentence=sentence(wrong, sum(sessions.values()), freshness),
            troubles=wrong,
            processes=shown,
            shards=shards,
            sessions=dict(sessions),
            per_second={name: round(rate, 2) for name, rate in per_second.items()},
            freshness=freshness,
            stages=stage_times(passed for facts in answered for passed in facts.passed),
            traced_one_in=self._config().node.trace_one_in,
            probe=probe,
            pipeline=report,
            mqtt_port=self._ports.mqtt,
        )

    def _shards(self, answered: Sequence[ProcessFacts]) -> list[ShardNow]:
        known = {shard.shard: shard for facts in answered for shard in facts.shards}
        return [
            known.get(number) or ShardNow(number, owner.name, False)
            for number, owner in sorted(self._processes.owners.items())
        ]

    async def pipeline(self) -> PipelineDetail:
        return await asyncio.to_thread(pipeline.detail, self._data, self._pipeline())


def _summed(parts: Sequence[Freshness]) -> Freshness:
    return Freshness(
        sum(part.registrations for part in parts),
        sum(part.fresh for part in parts),
        sum(part.pending for part in parts),
        sum(part.slow for part in parts),
        sum(part.blind for part in parts),
        sum(part.slow_sessions for part in parts),
        max((part.age_seconds for part in parts), default=0.0),
    )
