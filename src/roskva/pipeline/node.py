"""What jobs ask of a node that is running, over the sockets of its processes."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from roskva.errors import Unavailable
from roskva.links.framing import ask, exchange
from roskva.links.processes import Running, running
from roskva.wire.links import MAX_LINK_PARTS, Ask, Forget, Forgotten

_TIMEOUT_S: Final = 30.0

Seen = tuple[bytes, int]
"""A client, and the session in its row when it was looked at."""


def online(data: Path) -> list[bytes]:
    """The clients that have a session now; none, if no node is running."""
    told = asyncio.run(_ask_all(running(data), Ask("online")))
    return [bytes.fromhex(client) for answer in told for client in answer["clients"]]


def recheck(data: Path) -> int:
    """Have every session compared with the shards anew; how many there are."""
    told = asyncio.run(_ask_all(running(data), Ask("recheck")))
    return sum(answer["sessions"] for answer in told)


def forget(data: Path, clients: Mapping[int, Sequence[Seen]]) -> int:
    """Of every shard those clients that were not back since; how many rows are gone."""
    node = running(data)
    if node is None:
        raise Unavailable(f"no node serves {data}: rows are dropped by the node that owns them")
    return asyncio.run(_forget_all(node, clients))


async def _ask_all(node: Running | None, question: Ask) -> list[dict[str, Any]]:
    if node is None:
        return []
    told = []
    for process in node.processes:
        answer = await ask(process.socket, question, _TIMEOUT_S)
        if "error" in answer:
            raise Unavailable(f"{process.name} does not answer: {answer['error']}")
        told.append(answer)
    return told


async def _forget_all(node: Running, clients: Mapping[int, Sequence[Seen]]) -> int:
    owners = {shard: process for process in node.processes for shard in process.shards}
    count = 0
    for shard, seen in clients.items():
        for i in range(0, len(seen), MAX_LINK_PARTS):
            message = Forget(1, shard, list(seen[i : i + MAX_LINK_PARTS]))
            count += await _forget(owners[shard].socket, message)
    return count


async def _forget(path: str, message: Forget) -> int:
    try:
        return (await exchange(path, message, Forgotten, _TIMEOUT_S)).count
    except (OSError, TimeoutError) as error:
        text = f"shard {message.shard} does not answer: {error}"
        raise Unavailable(text) from error
