"""The main function of the prober as a child of `roskva serve`: gone when its parent is."""

import asyncio
import os
import signal
import time
from typing import Final

import httpx
import uvloop

from roskva.links.own_keys import PROBER, own_key
from roskva.links.processes import read_assignment, read_report, write_report
from roskva.logs import log_to_stderr
from roskva.net.address import local_in_url
from roskva.net.tls import pinned_context
from roskva.probe.history import KEPT, History
from roskva.probe.job import ProbeJob
from roskva.probe.objectives import Objectives
from roskva.probe.paths import Target, what_is_wrong
from roskva.probe.round import objects, probe
from roskva.server.access.keys import token_keys
from roskva.wire.admin import PipelineNow

_LOOK_S: Final = 0.2


def main() -> None:
    # Ctrl-C goes to the whole group of processes; it is the parent that stops us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job: ProbeJob = read_assignment()
    log_to_stderr(job.config.node.log, "prober")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run(job))


async def run(job: ProbeJob) -> None:
    """Until the process is ended."""
    config, loop = job.config, asyncio.get_running_loop()
    history = History(job.data / KEPT)
    wall_s = time.time() - loop.time()
    now = time.time()
    objectives = Objectives(config.probe, config.slo, os.getpid(), now, history.read(now))
    write_report(job.report, objectives.begin(now)[0])
    await _ready(_target(job, False))
    history.add(objectives.begin(wall_s + loop.time())[1])
    pipeline = False
    while True:
        began = loop.time()
        trouble = what_is_wrong(read_report(job.pipeline, PipelineNow), time.time())
        pipeline = pipeline or not trouble  # from when it has run, it is expected to
        outcomes = await probe(_target(job, pipeline, trouble), config.slo)
        report, note = objectives.add_round(outcomes, wall_s + loop.time())
        write_report(job.report, report)
        history.add(note)
        await asyncio.sleep(config.probe.every_seconds - (loop.time() - began))


async def _ready(target: Target) -> None:
    """While a node starts, nothing is measured; it counts as missed, if it was there before."""
    verify = target.context or False
    async with httpx.AsyncClient(base_url=target.url, timeout=5.0, verify=verify) as http:
        while True:
            try:
                if (await http.get("/readyz")).is_success:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(_LOOK_S)


def _target(job: ProbeJob, pipeline: bool, trouble: str = "") -> Target:
    """Anew for each round: keys and certificates may have been renewed."""
    config, tls = job.config, job.config.tls
    owners = [(shard, process.name) for process in job.processes for shard in process.shards]
    return Target(
        url=f"{'https' if tls.enabled else 'http'}://{local_in_url(config.node.host)}:{job.ports.http}",
        identities=job.data / KEPT,
        objects=objects(owners, len(owners)),
        mqtt_port=job.ports.mqtt,
        pipeline=pipeline,
        pipeline_trouble=trouble if pipeline else "",
        key=own_key(token_keys(job.data), PROBER),
        context=None if tls.certificate is None else pinned_context(tls.certificate),
    )


if __name__ == "__main__":
    main()
