"""What the processes of a node say of themselves."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from roskva.config import Config, PipelineConfig
from roskva.links.processes import read_report
from roskva.server.registrar import RegistrarServer
from roskva.server.shard import ShardServer
from roskva.wire.admin import PipelineNow, ProbeNow

PIPELINE_REPORT: Final = "pipeline.json"
PROBE_REPORT: Final = "probe.json"
"""Beside the sockets of a node's processes."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def counters(front: RegistrarServer | None, shards: Sequence[ShardServer]) -> dict[str, int]:
    found: dict[str, int] = {}
    if front is not None:
        found = {**front.core.counters, **front.counters}
    for shard in shards:
        for counted in (shard.matcher.counters, shard.rows.counters):
            for counter, value in counted.items():
                found[counter] = found.get(counter, 0) + value
    return found


def process_status(
    name: str, front: RegistrarServer | None, shards: Sequence[ShardServer]
) -> dict[str, Any]:
    return {
        "name": name,
        "role": "+".join(["state"] * bool(shards) + ["registrar"] * (front is not None)),
        "pid": os.getpid(),
        "rss_bytes": resident_bytes(),
        "cpu_seconds": round(time.process_time(), 3),
        "sessions": front.sessions()["users"] if front is not None else {},
        "shedding": front is not None and front.pressure.shedding,
        "longest_lag_ms": round(1000 * front.pressure.longest_lag_s) if front is not None else 0,
        "counters": counters(front, shards),
        "shards": [_shard_status(shard, name) for shard in shards],
    }


def _shard_status(shard: ShardServer, process: str) -> dict[str, Any]:
    matcher = shard.matcher
    return {
        "shard": shard.number,
        "epoch": str(matcher.epoch),
        "applied": matcher.applied,
        "durable": matcher.durable,
        "feed_end": shard.feed_end,
        "objects": len(matcher.objects),
        "links": len(matcher.links),
        "process": process,
    }


def pipeline_status(config: PipelineConfig, run_dir: Path) -> PipelineNow:
    """What the pipeline last said of itself."""
    if not config.enabled:
        return PipelineNow("off", "it is not enabled")
    report = read_report(run_dir / PIPELINE_REPORT, PipelineNow)
    return PipelineNow("starting") if report is None or _gone(report.pid) else report


def why_no_prober(config: Config) -> str:
    """Nothing, if there is one."""
    if not config.probe.enabled:
        return "it is not enabled"
    if config.tls.require_client_certificate:
        return "client certificates are required, and it has none"
    return ""


def probe_status(config: Config, run_dir: Path) -> ProbeNow:
    """What the prober found last."""
    if why := why_no_prober(config):
        return ProbeNow(why=why)
    report = read_report(run_dir / PROBE_REPORT, ProbeNow)
    return ProbeNow(state="starting") if report is None or _gone(report.pid) else report


def _gone(pid: int) -> bool:
    return bool(pid) and not Path(f"/proc/{pid}").exists()


def gathered(
    version: str,
    started_at: float,
    told: list[dict[str, Any]],
    pipeline: PipelineNow,
    probe: ProbeNow,
) -> dict[str, Any]:
    shards = [shard for process in told for shard in process.pop("shards", [])]
    return {
        "version": version,
        "started_at": started_at,
        "processes": told,
        "shards": sorted(shards, key=lambda shard: shard["shard"]),
        "pipeline": pipeline,
        "probe": probe,
    }


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * _PAGE
