"""The pipeline, the sources and the prober, dead letters, and what the jobs found when they last
ran: all from files.

RUN/pipeline.json, RUN/probe.json    beside the sockets of the processes: see `links/processes.py`
RUN/source-NAME.json
DATA/pipeline/ingest-NAME/dead-letters/*.jsonl
DATA/jobs/NAME/result.json, and the job's pictures beside it
DATA/jobs/audit/objects.jsonl     per object, in the order of their names
"""

import json
import time
from collections import deque
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import msgspec

from roskva.config import Config, PipelineConfig
from roskva.links.processes import read_report, write_report
from roskva.model import Key
from roskva.server.admin.sentences import span
from roskva.wire import admin

PIPELINE_REPORT: Final = "pipeline.json"
PROBE_REPORT: Final = "probe.json"
JOBS: Final = "jobs"
RESULT: Final = "result.json"
OBJECTS: Final = "objects.jsonl"
JOB_NAMES: Final = ("audit", "gc", "latency", "plan", "replay")
_DEAD_LETTERS: Final = 50
_LONGEST_ROW: Final = 500


class Kept(msgspec.Struct, frozen=True):
    """A job's result, as it is kept."""

    at: float
    seconds: float
    found: dict[str, Any]


class KeptObject(msgspec.Struct, frozen=True, array_like=True):
    object: Key
    states: dict[str, int]


def pipeline_now(config: PipelineConfig, run_dir: Path) -> admin.PipelineNow:
    """What the pipeline last said of itself."""
    if not config.enabled:
        return admin.PipelineNow("off", "it is not enabled")
    report = read_report(run_dir / PIPELINE_REPORT, admin.PipelineNow)
    return admin.PipelineNow("starting") if report is None or _gone(report.pid) else report


def why_no_prober(config: Config) -> str:
    """Nothing, if there is one."""
    if not config.probe.enabled:
        return "it is not enabled"
    if config.tls.require_client_certificate:
        return "client certificates are required, and it has none"
    return ""


def probe_now(config: Config, run_dir: Path) -> admin.ProbeNow:
    """What the prober found last."""
    if why := why_no_prober(config):
        return admin.ProbeNow(why=why)
    report = read_report(run_dir / PROBE_REPORT, admin.ProbeNow)
    return admin.ProbeNow(state="starting") if report is None or _gone(report.pid) else report


def source_report(run_dir: Path, name: str) -> Path:
    return run_dir / f"source-{name}.json"


def sources_now(config: Config, run_dir: Path) -> list[admin.SourceNow]:
    """What the sources that run with the node last said of themselves."""
    return [
        _source_now(name, source.app_of(name), source_report(run_dir, name))
        for name, source in config.source.items()
        if source.with_node
    ]


def _source_now(name: str, app: str, file: Path) -> admin.SourceNow:
    report = read_report(file, admin.SourceNow)
    if report is None:
        return admin.SourceNow(name, app, "starting")
    if _gone(report.pid):
        return msgspec.structs.replace(report, state="starting", why="its process has ended")
    return report


def _gone(pid: int) -> bool:
    return bool(pid) and not Path(f"/proc/{pid}").exists()


def detail(data: Path, now: admin.PipelineNow) -> admin.PipelineDetail:
    batches = [
        admin.PartBatch(**msgspec.structs.asdict(batch), part=part.name)
        for part in now.parts
        for batch in part.recent
    ]
    for part in now.parts:
        part.recent = []
    dead = list(_dead_letters(data / "pipeline"))
    jobs = [found for name in JOB_NAMES if (found := _job(data, name)) is not None]
    return admin.PipelineDetail(_sentence(now), now, batches, dead, jobs)


def _sentence(now: admin.PipelineNow) -> str:
    if now.state == "off":
        why = f": {now.why}" if now.why else ""
        return (
            f"The pipeline is off{why}. Clients are told all the same; gaps are closed by the node "
            "itself, and nothing is ingested."
        )
    if now.state == "starting":
        return "Spark is starting. Clients are told all the same."
    failed = [part for part in now.parts if part.state == "failed"]
    if now.state == "failed" or failed:
        names = ", ".join(part.name for part in failed) or "it"
        return f"Failed and tried again: {names}. Clients are told all the same."
    bridge = next((part for part in now.parts if part.name == "bridge"), None)
    if bridge is None or not bridge.lag_updates:
        return "The pipeline is running, and the matchers have all that the feed has."
    lag = f"{bridge.lag_updates:,} update{'s' * (bridge.lag_updates != 1)}"
    if bridge.lag_seconds and bridge.lag_seconds >= 1:
        lag += f", {span(bridge.lag_seconds)}"
    return f"The pipeline is running; the matchers are {lag} behind the feed."


def _dead_letters(directory: Path) -> Iterator[admin.DeadLetter]:
    """The latest of each ingest."""
    for ingest in sorted(directory.glob("ingest-*")):
        name = ingest.name.removeprefix("ingest-")
        left = _DEAD_LETTERS
        for file in sorted(ingest.glob("dead-letters/*.jsonl"), reverse=True):
            for line in _last_lines(file, left):
                left -= 1
                letter = json.loads(line)
                row = json.dumps(letter.get("row"), ensure_ascii=False)[:_LONGEST_ROW]
                yield admin.DeadLetter(name, str(letter.get("at", "")), str(letter["reason"]), row)
            if left <= 0:
                break


def _last_lines(file: Path, count: int) -> list[str]:
    try:
        with file.open() as lines:
            return list(deque(lines, count))[::-1]
    except FileNotFoundError:
        return []


def _job(data: Path, name: str) -> admin.JobNow | None:
    directory = data / JOBS / name
    kept = read_report(directory / RESULT, Kept)
    if kept is None:
        return None
    plots = sorted(path.name for path in directory.glob("*.svg"))
    return admin.JobNow(name, kept.at, kept.seconds, kept.found, plots)


def plot(data: Path, job: str, name: str) -> bytes | None:
    """A job's picture, as SVG."""
    if job not in JOB_NAMES:
        return None
    found = next((p for p in (data / JOBS / job).glob("*.svg") if p.name == name), None)
    return None if found is None else found.read_bytes()


def audited(data: Path, key: Key) -> admin.ObjectAudit | None:
    """What the last audit counted of this object; it had no registrations if it is not there."""
    directory = data / JOBS / "audit"
    kept = read_report(directory / RESULT, Kept)
    if kept is None:
        return None
    try:
        with (directory / OBJECTS).open("rb") as lines:
            prefix = b"[" + msgspec.json.encode(key) + b","
            for line in lines:
                if line.startswith(prefix):
                    found = msgspec.json.decode(line, type=KeptObject)
                    return admin.ObjectAudit(kept.at, found.states)
    except (FileNotFoundError, msgspec.DecodeError):
        return None
    return admin.ObjectAudit(kept.at, {})


def keep(data: Path, job: str, began_at: float, found: msgspec.Struct) -> Path:
    """Write down what a job found; returns the directory for its pictures."""
    directory = data / JOBS / job
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    now = time.time()
    kept = Kept(now, round(now - began_at, 1), msgspec.to_builtins(found))
    write_report(directory / RESULT, kept)
    return directory


def keep_objects(data: Path, counted: Any) -> None:
    """What an audit has counted, from rows of object, state and count."""
    directory = data / JOBS / "audit"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = directory / f"{OBJECTS}.tmp"
    with temporary.open("wb") as lines:
        rows = counted.orderBy("object").toLocalIterator()
        for key, states in groupby(rows, key=lambda row: row["object"]):
            found = KeptObject(key, {row["state"]: row["count"] for row in states})
            lines.write(msgspec.json.encode(found) + b"\n")
    temporary.replace(directory / OBJECTS)
