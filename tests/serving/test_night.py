"""A node as it is run by night: under a mixed load while everything happens to it that happens.

Parts of it are killed, all of it is killed, stopped, started, told to read its settings again and
backed up, for half of the time; in the other half it shows how it grows. Then nobody may be stale,
its counters must be still, its log must tell what happened, and nothing may be left behind. How
much its memory and its disk have grown is printed.

`ROSKVA_SOAK_MINUTES` says for how long: 2, if it does not.
"""

import asyncio
import os
import random
import re
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import pytest
from tests.loops import run_within
from tests.serving import night
from tests.serving.growth import PIPELINE, Growth, Sample, disk
from tests.serving.keyed import ADMIN_KEY, KeyedNode
from tests.serving.nodes import ROSKVA, START_S, await_that

from roskva.pipeline.machine import what_is_missing
from roskva.pipeline.spark_log import MAX_BYTES
from roskva.probe.history import DAY_S

MINUTES: Final = float(os.environ.get("ROSKVA_SOAK_MINUTES", "2"))
ROUND_S: Final = 120.0
"""In which everything happens once."""
CONVERGED_WITHIN_S: Final = 120.0
SAMPLED_EVERY_S: Final = 5.0
QUIET_S: Final = 15.0
"""Three times what the node waits before it looks at a session again."""
FLAGS: Final = ("--registrars", "2", "--matchers", "1", "--log", "json")
SHARDS: Final = 4
PIPELINE_AT_REST: Final = 0.05
"""Of a core."""
PIPELINE_BYTES: Final = 1 << 30
PARTS: Final = ("state-0", "registrar-1", "prober")
"""That are killed, one by one, and started again by their parent."""


@dataclass
class Night:
    """What happened, for the checks."""

    home: Path
    node: KeyedNode
    settings: night.Settings
    load: night.Load
    growth: Growth = field(default_factory=Growth)
    killed: list[str] = field(default_factory=list)
    crashes: int = 0
    """Of the parent, and all of the node with it."""
    away_s: float = 0.0
    """So long it did not serve."""
    stops: int = 0
    reloads: int = 0
    backup: Path | None = None


@pytest.fixture
def tonight(monkeypatch: pytest.MonkeyPatch) -> Iterator[Night]:
    """In a place with a short path, for Spark has sockets in it; and with a directory for temporary
    files of its own: what is left there is found."""
    home = Path(tempfile.mkdtemp(prefix="night-"))
    (home / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(home / "tmp"))
    settings = night.Settings(home)
    beside = what_is_missing() is None
    node = KeyedNode(home / "data", settings.text(0), *FLAGS, beside=beside)
    dice = random.Random(random.SystemRandom().randrange(2**32))
    try:
        node.start()
        yield Night(home, node, settings, night.Load(node, settings, dice))
    finally:
        node.end()
        shutil.rmtree(home)


@pytest.mark.verify
def test_a_night_leaves_nobody_stale_and_nothing_behind(tonight: Night) -> None:
    run_within(60 * MINUTES + 600.0, _by_night(tonight))
    tonight.node.stop()
    tonight.stops += 1
    check_log(tonight)
    check_spark_log(tonight.node.data / "pipeline")
    check_nothing_is_left(tonight)
    check_feeds(tonight.node.data)
    check_restored(tonight)
    load = tonight.load
    sys.stderr.write(
        f"\n{MINUTES:g} minutes: {load.published:,} updates and {load.read:,} reads by "
        f"{night.CLIENTS} clients; {len(tonight.killed)} processes and {tonight.crashes} nodes "
        f"killed, {tonight.stops} stopped, {tonight.reloads} reloads; 0 stale\n"
        f"{tonight.growth.report()}\n"
    )


async def _by_night(tonight: Night) -> None:
    load = tonight.load
    await load.publish_all()
    async with load.clients():
        await load.herds[0].until(load.all_there, CONVERGED_WITHIN_S)
        sampling = asyncio.create_task(_keep_sampling(tonight))
        async with load.publishing():
            rounds = max(1, round(30 * MINUTES / ROUND_S))
            for number in range(rounds):
                await _round(tonight, number, 30 * MINUTES / rounds)
            await asyncio.sleep(30 * MINUTES)
        sampling.cancel()
        await asyncio.wait([sampling])
        await load.publish_all()
        await load.herds[0].until(lambda: not load.stale(), CONVERGED_WITHIN_S)
        assert load.astray() == []
        await asyncio.to_thread(check_reads, tonight)
        await asyncio.to_thread(check_budgets, tonight)
        await asyncio.to_thread(check_quiet, tonight)
        await asyncio.to_thread(check_disk, tonight)
        await asyncio.to_thread(check_audit, tonight)
        await asyncio.gather(*(slow.read_until(load.acked[night.HOT]) for slow in load.slow))
        assert load.stale() == []
    await asyncio.to_thread(check_sockets, tonight)


async def _round(tonight: Night, number: int, seconds: float) -> None:
    """All that happens, with pauses in between."""
    node, load, pause_s = tonight.node, tonight.load, seconds / 10
    for part in PARTS:
        await asyncio.sleep(pause_s)
        await asyncio.to_thread(_kill, tonight, part)
    away = load.herds[number % 2 :: 3]
    for herd in away:
        await herd.leave()
    if tonight.backup is None:
        tonight.backup = tonight.home / "backup"
        await asyncio.to_thread(roskva, "backup", node.data, tonight.backup)
    await asyncio.sleep(pause_s)
    await asyncio.to_thread(node.reload_with, tonight.settings.text(number + 1))
    tonight.reloads += 1
    await asyncio.sleep(pause_s)
    for herd in away:
        herd.come()
    await asyncio.sleep(pause_s)
    await asyncio.to_thread(node.stop)
    await asyncio.to_thread(_start, tonight)
    tonight.stops += 1
    await asyncio.sleep(pause_s)
    await asyncio.to_thread(node.kill)
    await asyncio.to_thread(_start, tonight)
    tonight.crashes += 1
    await load.read_slowly()
    await asyncio.sleep(pause_s)


def _start(tonight: Night) -> None:
    began = time.monotonic()
    tonight.node.start()
    tonight.away_s += time.monotonic() - began


def _kill(tonight: Night, part: str) -> None:
    node = tonight.node
    if part == "prober":
        [(_, pid)] = [life for life in _sampled(node).processes if life[0] == part] or [("", 0)]
        if not pid:  # it is just starting
            return
        os.kill(pid, signal.SIGKILL)
    else:
        node.crash(part)
    tonight.killed.append(part)


async def _keep_sampling(tonight: Night) -> None:
    while True:
        with suppress(httpx.HTTPError):  # it is just not there
            tonight.growth.samples.append(await asyncio.to_thread(_sampled, tonight.node))
        await asyncio.sleep(SAMPLED_EVERY_S)


def _sampled(node: KeyedNode) -> Sample:
    return Sample(node, {pid: name for name, pid in node.pids().items()})


def roskva(*arguments: str | Path, code: int = 0) -> str:
    done = subprocess.run([ROSKVA, *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


# The checks: what a night may not do.


def check_reads(tonight: Night) -> None:
    """Everything that was acknowledged is there."""
    node, acked = tonight.node, tonight.load.acked
    jwt = {app: tonight.settings.jwt(f"{app}/", 0) for app in ("own", "assigned")}
    for key in [*night.OBJECTS, *random.sample(night.BULK, 100)]:
        answer = node.ask("GET", f"/v1/objects/{key}", jwt[key.partition("/")[0]])
        version = answer.raise_for_status().json()["version"]
        if key in night.OBJECTS:
            assert int(version) == acked[key], key
        elif key in acked:  # of the others the answer may have been lost
            assert int(version) >= acked[key], key


def check_budgets(tonight: Night) -> None:
    """What the node did not serve was spent of its error budgets, although it started anew."""
    if not any(part == "prober" for part, _ in _sampled(tonight.node).processes):
        return
    await_that(lambda: tonight.node.status()["probe"]["state"] == "running", START_S)
    of = {one["sli"]: one for one in tonight.node.status()["probe"]["objectives"]}
    for sli in ("register", "publish"):
        missed_s = (1 - of[sli]["budget_left"]) * (1 - of[sli]["share"]) * DAY_S
        assert missed_s > 0.9 * tonight.away_s, (sli, missed_s, tonight.away_s)


def check_quiet(tonight: Night) -> None:
    """While nobody publishes and the prober rests, no counter moves once everything is done, and
    the pipeline rests."""
    node = tonight.node
    await_that(lambda: _bridge_runs(node), CONVERGED_WITHIN_S)
    probers = [pid for part, pid in _sampled(node).processes if part == "prober"]
    for pid in probers:
        os.kill(pid, signal.SIGSTOP)
    give_up_at = time.monotonic() + CONVERGED_WITHIN_S
    try:
        while moved := _moved(node, QUIET_S):
            assert time.monotonic() < give_up_at, moved
        before = _sampled(node)
        time.sleep(QUIET_S)
        after = _sampled(node)
    finally:
        for pid in probers:
            os.kill(pid, signal.SIGCONT)
    spent = sum(p.cpu_s for p in after.of(PIPELINE)) - sum(p.cpu_s for p in before.of(PIPELINE))
    share = spent / (after.at - before.at)
    memory = sum(process.memory for process in after.of(PIPELINE))
    sys.stderr.write(f"\nthe pipeline at rest: {share:.3f} of a core, {memory >> 20} MiB\n")
    gaps = sum(value for name, value in _counters(node).items() if "roskva_gaps_total" in name)
    assert gaps <= SHARDS, "all came by the fast path, but perhaps what came first after the crash"
    assert share < PIPELINE_AT_REST
    assert memory < PIPELINE_BYTES


def _bridge_runs(node: KeyedNode) -> bool:
    parts = node.status()["pipeline"].get("parts", [])
    return what_is_missing() is not None or any(part["state"] == "running" for part in parts)


def _moved(node: KeyedNode, seconds: float) -> dict[str, tuple[float, float]]:
    """Counters, with what they were and what they are."""
    before = _counters(node)
    time.sleep(seconds)
    return {
        name: (before.get(name, 0.0), value)
        for name, value in _counters(node).items()
        if value != before.get(name, 0.0) and "cpu_seconds" not in name
    }


def _counters(node: KeyedNode) -> dict[str, float]:
    return {name: value for name, value in _metrics(node).items() if "_total" in name}


def _metrics(node: KeyedNode) -> dict[str, float]:
    answer = node.ask("GET", "/metrics", ADMIN_KEY).raise_for_status()
    sample = re.compile(r"^(roskva_\w+(?:\{.*\})?) (\S+)$", re.MULTILINE)
    return {name: float(value) for name, value in sample.findall(answer.text)}


def check_disk(tonight: Night) -> None:
    """The node knows what it takes, what is left, and what is stored."""
    told, found = _metrics(tonight.node), disk(tonight.node.data)
    for part in ("feed", "store"):
        taken = told[f'roskva_disk_used_bytes{{part="{part}"}}']
        assert 0.5 * found[part] < taken < 2 * found[part] + (1 << 20), (part, taken, found)
    assert 0 < told["roskva_disk_floor_bytes"] < told["roskva_disk_free_bytes"]
    assert told["roskva_feed_cap_bytes"] < told["roskva_disk_size_bytes"]
    for kind, least in (("objects", len(night.OBJECTS)), ("registrations", night.CLIENTS)):
        stored = [value for name, value in told.items() if _is_row(name, kind)]
        assert sum(stored) > least / 2, (kind, stored)


def _is_row(name: str, kind: str) -> bool:
    return name.startswith("roskva_rows{") and f'kind="{kind}"' in name


def check_audit(tonight: Night) -> None:
    """It looks into every row, and knows slow readers for what they are."""
    if what_is_missing() is not None:
        return
    told = roskva("job", "audit", tonight.node.data, "--json")
    states: dict[str, int] = msgspec.json.decode(told)["states"]
    assert states["stale"] == 0
    assert states["slow"] == night.SLOW


def check_sockets(tonight: Night) -> None:
    """Of clients that are gone nothing is held open."""
    node = tonight.node
    await_that(lambda: not _sessions(node), START_S, lambda: f"{_sessions(node)} sessions")
    registrars = ("registrar-0", "registrar-1")
    await_that(
        lambda: all(process.files < 100 for process in _sampled(node).of(registrars)),
        START_S,
        lambda: str([process.files for process in _sampled(node).of(registrars)]),
    )


def _sessions(node: KeyedNode) -> int:
    return sum(sum(one.get("sessions", {}).values()) for one in node.status()["processes"])


def check_log(tonight: Night) -> None:
    """Nothing but lines, with a time and a level each, and among them all that happened."""
    lines: list[dict[str, Any]] = [
        msgspec.json.decode(line) for line in tonight.node.said().splitlines()
    ]
    assert all({"at", "level", "process", "message"} <= line.keys() for line in lines)
    assert not [line for line in lines if "error" in line]
    messages = [line["message"] for line in lines]

    def count(words: str) -> int:
        return len([message for message in messages if words in message])

    assert count("after a crash: process ") == tonight.crashes
    assert count("after it was stopped in order") == tonight.stops - 1
    for part in PARTS:
        killed = f"{part} was killed by SIGKILL: starting it again"
        assert count(killed) >= tonight.killed.count(part)
    assert count("in use now: apps.own.publish_keys") > 0
    assert count("only after a restart: feed.retention_hours") >= tonight.reloads
    assert count("updates read again from the feed") > 0
    assert count("everything is on disk") >= tonight.stops
    assert len(lines) < 1000 * max(1.0, MINUTES / 2)


def check_spark_log(pipeline: Path) -> None:
    """It is bounded, and shows nothing that is no trouble as one."""
    for log in pipeline.glob("spark.log*"):
        said = log.read_text(errors="replace")
        assert "Traceback" not in said, said
        assert len(said) < 2 * MAX_BYTES


def check_nothing_is_left(tonight: Night) -> None:
    """Of a node that was stopped; its processes are looked for at its end."""
    data = tonight.node.data
    left = [path for path in data.rglob("*") if stat.S_ISSOCK(path.stat().st_mode)]
    half_written = list(data.rglob("*.tmp"))
    of_pipeline = [path for path in half_written if "pipeline" in path.parts]
    assert len(of_pipeline) < 3, "its next run removes what the last was writing when it was killed"
    left += [path for path in half_written if path not in of_pipeline]
    left += [path for path in (data / "run", data / "node.json") if path.exists()]
    left += [*(tonight.home / "tmp").iterdir()]
    left += [path for shard in data.glob("shard-*") for path in (shard / "checkpoints").iterdir()]
    assert not left, left


def check_feeds(data: Path) -> None:
    assert "damaged" not in roskva("feed", "verify", data)


def check_restored(tonight: Night) -> None:
    """The backup that was made in between: it says what it is, and that is no damage."""
    assert tonight.backup is not None
    restored = tonight.home / "restored"
    roskva("restore", tonight.backup, restored)
    node = KeyedNode(restored, tonight.settings.text(0), *FLAGS)
    try:
        node.start()
        node.stop()
        said = node.said()
    finally:
        node.end()
    assert "as it was restored from a backup" in said
    assert "damage" not in said
    check_feeds(restored)
