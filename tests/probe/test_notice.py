"""How soon the prober of a node notices, in virtual time: whatever the machine is doing."""

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest
from tests.loops import in_virtual_time

from roskva.config import SLIS, Config
from roskva.links.processes import Process, read_report
from roskva.net.address import Ports
from roskva.probe.child import run
from roskva.probe.job import ProbeJob
from roskva.probe.round import PATIENCE_S
from roskva.server.access.keys import token_keys
from roskva.wire.admin import ProbeNow

SETTINGS = Config()
ROUND_S = 2 * PATIENCE_S + 1
"""To get in, and to be told, or to be answered; and for clients to hang up."""


class Hung:
    """A node that said it was ready, and then says nothing to anybody."""

    def __init__(self) -> None:
        self.since = 0.0

    async def listen(self) -> tuple[asyncio.Server, int]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return server, server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(4096)
        if head.startswith(b"GET /readyz"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
            self.since = asyncio.get_running_loop().time()
        else:
            await reader.read()
        writer.close()


async def noticed(directory: Path) -> list[float]:
    """When each of two rounds said that everything is hurt, in seconds since the node hung."""
    node, loop = Hung(), asyncio.get_running_loop()
    (http, port), (mqtt, mqtt_port) = await node.listen(), await node.listen()
    token_keys(directory)
    report, at = directory / "probe.json", list[float]()
    processes = (Process("node", "", [0, 1]),)
    job = ProbeJob(
        SETTINGS, directory, Ports(port, mqtt_port, None), processes, report, directory / "none"
    )
    probing = asyncio.create_task(run(job))
    while len(at) < 2:
        await asyncio.sleep(0.1)
        found = read_report(report, ProbeNow)
        if found is not None and found.rounds > len(at):
            hurt = {one.sli for one in found.objectives if one.kept is False}
            assert hurt == {*SLIS} - {"notify-pipeline"}
            at.append(loop.time() - node.since)
    probing.cancel()
    with suppress(asyncio.CancelledError):
        await probing
    http.close()
    mqtt.close()
    return at


@in_virtual_time
async def test_a_node_that_hangs_is_noticed_within_a_round_and_rounds_keep_their_interval(
    tmp_path: Path,
) -> None:
    first, second = await noticed(tmp_path)
    assert first < ROUND_S
    assert second == pytest.approx(first + SETTINGS.probe.every_seconds, abs=1.0)
