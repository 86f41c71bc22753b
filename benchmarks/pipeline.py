"""The pipeline: how long the reliable path takes alone, what it costs at rest and at work, and what
a node notices of it (in the long version).

Everything runs as users run it, on this machine, and the figures mean little while others use it. A
notification is there when the client's program has read it.
"""

import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final

import httpx
import msgspec

from benchmarks.pipeline_cost import measure_cost
from benchmarks.pipeline_node import await_bridge, serving
from benchmarks.result import NotMeasured, Result, Settings
from roskva.pipeline.machine import what_is_missing

_RATE: Final = 100.0
_OBJECTS: Final = 20
_SOON_WARM_S: Final = 3.0
"""Without Spark on the way."""


def run(settings: Settings) -> list[Result]:
    missing = what_is_missing()
    if missing is not None:
        raise NotMeasured(missing)
    with tempfile.TemporaryDirectory(prefix="roskva-bench-") as directory:
        scratch = Path(directory)
        return [
            *_reliable_path(settings, scratch),
            *measure_cost(settings, scratch),
            *(_beside(settings, scratch) if settings.full else []),
        ]


def _reliable_path(settings: Settings, scratch: Path) -> list[Result]:
    settings.progress("the reliable path alone")
    with serving(scratch / "alone", "--no-fast-path") as url:
        await_bridge(url)
        took = _delays(settings, url, 30.0 if settings.full else 6.0)
    note = f"{len(took):,} notifications at {_RATE:.0f} updates/s"
    return [
        Result(
            "publish to notify without the fast path, p50",
            *(statistics.median(took), "ms", 150.0),
            note=note,
        ),
        Result("… p99", _p99(took), "ms", 400.0),
    ]


def _beside(settings: Settings, scratch: Path) -> list[Result]:
    """What a node notices of a pipeline that has nothing to do."""
    with serving(scratch / "fast", "--no-pipeline") as url:
        without = _delays(settings, url, _SOON_WARM_S)
    with serving(scratch / "beside") as url:
        await_bridge(url)
        beside = _delays(settings, url, _SOON_WARM_S)
    return [
        Result(
            "publish to notify with the fast path and the pipeline, p99",
            *(_p99(beside), "ms"),
            note=f"p50 {statistics.median(beside):.1f} ms",
        ),
        Result(
            "… without the pipeline",
            *(_p99(without), "ms"),
            note=f"p50 {statistics.median(without):.1f} ms",
        ),
    ]


def _p99(ordered: list[float]) -> float:
    return ordered[int(0.99 * len(ordered))]


def _delays(settings: Settings, url: str, warm_s: float) -> list[float]:
    """Milliseconds from publish to notify, in order."""
    measured_s = 30.0 if settings.full else 5.0
    found = asyncio.run(_publish_and_wait(url, warm_s, measured_s))
    return sorted(1000 * seconds for seconds in found)


async def _publish_and_wait(url: str, warm_s: float, measured_s: float) -> list[float]:
    """The version of an update is the time at which it was published."""
    names = [f"object-{i}" for i in range(_OBJECTS)]
    waited: list[tuple[float, float]] = []
    stop_at = time.monotonic() + warm_s + measured_s

    async def listen() -> None:
        objects = {"object": [f"bench/{name}" for name in names]}
        async with (
            httpx.AsyncClient(timeout=None) as client,
            client.stream("GET", f"{url}/v1/events", params=objects) as events,
        ):
            async for line in events.aiter_lines():
                if line.startswith("data:"):
                    version = msgspec.json.decode(line[5:]).get("version")
                    if version is not None:
                        waited.append((time.monotonic(), time.time() - int(version) / 1e6))

    async def publish() -> None:
        async with httpx.AsyncClient() as client:
            number, began = 0, time.monotonic()
            while time.monotonic() < stop_at:
                await asyncio.sleep(max(0.0, began + number / _RATE - time.monotonic()))
                update = {"app": "bench", "name": names[number % _OBJECTS]}
                await client.post(
                    f"{url}/v1/publish", json={**update, "version": time.time_ns() // 1000}
                )
                number += 1

    listening = asyncio.create_task(listen())
    await publish()
    await asyncio.sleep(2.0)
    listening.cancel()
    return [seconds for at, seconds in waited if at > stop_at - measured_s]
