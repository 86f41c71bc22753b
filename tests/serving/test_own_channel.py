"""An application's own channel on a whole node: the TCP of examples/, served by two processes."""

import asyncio
import importlib
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest
from benchmarks.ports import free_port
from tests.loops import in_loop, until
from tests.serving.nodes import ROSKVA, Node

import roskva

EXAMPLES: Final = str(Path(__file__).parents[2] / "examples")
StartNode = Callable[..., Node]


@pytest.fixture
def tcp(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("TCP_CHANNEL_PORT", str(free_port()))
    monkeypatch.setenv("PYTHONPATH", EXAMPLES, prepend=":")
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.reload(importlib.import_module("tcp_channel"))


def settings(place: Path, channel: str) -> tuple[str, str]:
    file = place / "node.toml"
    file.write_text(f'[node]\nchannel = "{channel}"\n')
    return "--config", str(file)


@in_loop
async def test_processes_share_its_port_and_one_that_dies_loses_nothing(
    start_node: StartNode, tcp: ModuleType, tmp_path: Path
) -> None:
    flags = *settings(tmp_path, "tcp_channel:serve"), "--registrars", "2"
    node = await asyncio.to_thread(start_node, *flags)
    told: asyncio.Queue[Any] = asyncio.Queue()

    async def lobby(event: roskva.Notify | roskva.NotifyUnknown) -> None:
        told.put_nowait(event)

    async with roskva.Client(tcp.dial, "chat") as client:
        client.on("lobby", lobby)
        assert isinstance(await told.get(), roskva.NotifyUnknown)
        await asyncio.to_thread(node.publish, "chat/lobby", 1)
        assert (await told.get()).version == 1
        own = [p["name"] for p in node.status()["processes"] if p.get("sessions", {}).get("own")]
        assert len(own) == 1
        await asyncio.to_thread(node.signal, own[0], signal.SIGKILL)
        await asyncio.to_thread(roskva.publish, node.url, "chat/lobby", 2)
        while (await told.get()).version != 2:  # what was not acked is told again
            pass
        await asyncio.to_thread(node.stop)
        await until(lambda: not client.connected)


@pytest.mark.parametrize("channel", ["no_such_module:serve", "json:dump_it", "json"])
def test_channel_that_cannot_be_loaded_is_said_before_anything_starts(
    channel: str, tmp_path: Path
) -> None:
    command = [ROSKVA, "serve", "--data", str(tmp_path / "data"), *settings(tmp_path, channel)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert "module:function" in " ".join(run.stderr.split())
    assert not (tmp_path / "data").exists()
