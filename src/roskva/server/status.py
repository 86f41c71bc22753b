"""What the processes of a node say of themselves, and to each other."""

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from roskva.links.framing import Framed
from roskva.server.front import NodeFront
from roskva.server.shard import Shard
from roskva.wire.codec import decode_from_shard, encode_link
from roskva.wire.links import Ask, Told

_ASK_TIMEOUT_S: Final = 2.0
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def process_status(name: str, front: NodeFront | None, shards: Sequence[Shard]) -> dict[str, Any]:
    counters: dict[str, int] = dict(front.core.counters) if front is not None else {}
    for shard in shards:
        for counted in (shard.matcher.counters, shard.rows.counters):
            for counter, value in counted.items():
                counters[counter] = counters.get(counter, 0) + value
    return {
        "name": name,
        "role": "+".join(["state"] * bool(shards) + ["registrar"] * (front is not None)),
        "pid": os.getpid(),
        "rss_bytes": _resident_bytes(),
        "cpu_seconds": round(time.process_time(), 3),
        "sessions": front.sessions() if front is not None else {},
        "counters": counters,
        "shards": [_shard_status(shard, name) for shard in shards],
    }


def _shard_status(shard: Shard, process: str) -> dict[str, Any]:
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


def gathered(version: str, started_at: float, told: list[dict[str, Any]]) -> dict[str, Any]:
    shards = [shard for process in told for shard in process.pop("shards", [])]
    return {
        "version": version,
        "started_at": started_at,
        "processes": told,
        "shards": sorted(shards, key=lambda shard: shard["shard"]),
    }


async def ask(name: str, path: str) -> dict[str, Any]:
    """Another process of this node; one that does not answer is reported as such."""
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def received(stream: Framed, frame: bytes) -> None:
        told = decode_from_shard(frame)
        if isinstance(told, Told) and not answer.done():
            answer.set_result(told.json)

    def lost(stream: Framed) -> None:
        if not answer.done():
            answer.set_exception(ConnectionError("it went away"))

    def opened(stream: Framed) -> None:
        stream.send(encode_link(Ask("status")))

    try:
        async with asyncio.timeout(_ASK_TIMEOUT_S):
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_unix_connection(
                lambda: Framed(opened, received, lost), path
            )
            try:
                told: dict[str, Any] = msgspec.json.decode(await answer)
            finally:
                transport.close()
    except (OSError, TimeoutError) as error:
        return {"name": name, "error": str(error) or "no answer"}
    return told


def _resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * _PAGE
