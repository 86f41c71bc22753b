"""The way of one update through a running node, from the commit to the socket: recorded, not told.

    .venv/bin/python -m tools.update_path            # shows it
    .venv/bin/python -m tools.update_path --write    # into ARCHITECTURE.md

A node runs in this process, somebody is registered over a WebSocket, and an update is published.
From the moment in which it is durable until it has been written to the socket, every function of
the package that is handed the update, in whatever form, is noted, if it hands it on: if something
with the update in it comes out of it, it is put among what leaves, or a function that it calls
hands it on. What only spells a value, gathers values or belongs to one (`wire/`, `Outbox.emit`,
methods of values) is no step of the way, and who only looks (counters, rows that are written later)
hands nothing on.
"""

import asyncio
import inspect
import re
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, Final

import msgspec

import roskva
from roskva.config import Config, NodeConfig, PipelineConfig, ProbeConfig, Source
from roskva.core.session import Outbox
from roskva.feed.commit import Committer, _Group
from roskva.host.delivery import Announcement, MessageDelivery
from roskva.net.writer import Writer
from roskva.server.access.keys import token_keys
from roskva.server.directory import DataDirectory
from roskva.server.listeners import listen_all, wanted_ports
from roskva.server.node import NodeProcess, Role
from roskva.server.processes import processes
from roskva.server.reload import Reloads

PAGE: Final = Path(__file__).parents[1] / "ARCHITECTURE.md"
RECORDED: Final = Path(__file__).parents[1] / "docs" / "update-path.json"
_BEGIN, _END = "<!-- the way of an update: recorded -->", "<!-- until here -->"
_PACKAGE: Final = Path(roskva.__file__).parent
_OBJECT: Final = "tour/recorded"
_DEEP: Final = 5
_VALUES: Final = (msgspec.Struct, Announcement)


class Step(msgspec.Struct, frozen=True):
    module: str
    function: str
    value: str


class _Call:
    def __init__(self, step: Step) -> None:
        self.step = step
        self.calls: list[_Call] = []
        self.hands_on = False

    def steps(self) -> Iterator[Step]:
        if self.hands_on or any(list(call.steps()) for call in self.calls):
            yield self.step
            for call in self.calls:
                yield from call.steps()


class Recorder:
    """What the interpreter calls at each call and return, on each thread."""

    def __init__(self) -> None:
        self.awaits = False
        """The next commit is that of the update; others went before it."""
        self.on = False
        self.calls: list[_Call] = []
        self._stacks: dict[int, list[tuple[FrameType, _Call]]] = {}

    def __call__(self, frame: FrameType, event: str, found: Any) -> None:
        code = frame.f_code
        if event == "return" and code is Committer._commit.__code__:
            return
        if not self.on and self.awaits and event == "call" and code.co_name == "sync":
            self.on = code.co_filename.endswith("feed/commit.py")
        if not self.on or not code.co_filename.startswith(str(_PACKAGE)):
            return
        stack = self._stacks.setdefault(threading.get_ident(), [])
        if event == "call":
            self._call(frame, stack)
        elif event == "return" and stack and stack[-1][0] is frame:
            _, call = stack.pop()
            call.hands_on = call.hands_on or _holds(found)
            if code is Writer.write.__code__:
                call.hands_on = True
                self.on = self.awaits = False

    def _call(self, frame: FrameType, stack: list[tuple[FrameType, _Call]]) -> None:
        code = frame.f_code
        module = str(Path(code.co_filename).relative_to(_PACKAGE))
        given = code.co_varnames[: code.co_argcount]
        if code.co_flags & inspect.CO_VARARGS:
            given = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + 1]
        own = frame.f_locals.get("self")
        held = [_held(frame.f_locals[name]) for name in given if name != "self"]
        value = next((text for text in held if text), None) or _held(own)
        if value is None or module.startswith("wire/") or isinstance(own, _VALUES):
            return
        if code is Outbox.emit.__code__:
            stack[-1][1].hands_on = True
            return
        call = _Call(Step(module, code.co_qualname, value))
        call.hands_on = code is MessageDelivery.notify.__code__
        (stack[-1][1].calls if stack else self.calls).append(call)
        stack.append((frame, call))


def _held(value: Any) -> str | None:
    """What it is, if the update is in it."""
    if isinstance(value, str | int | float | type | None):
        return None
    if not _holds(value):
        return None
    if isinstance(value, list | tuple | deque):
        inside = next((_held(one) for one in value if _holds(one)), None)
        return f"{type(value).__name__} of {inside}" if inside else type(value).__name__
    if isinstance(value, msgspec.Struct) and (message := getattr(value, "message", None)):
        return f"{type(value).__name__} with {type(message).__name__}"
    return type(value).__name__


def _holds(value: Any, deep: int = _DEEP) -> bool:
    if isinstance(value, bytes):
        return _OBJECT.encode() in value
    if isinstance(value, str):
        return value == _OBJECT
    if not deep:
        return False
    if isinstance(value, msgspec.Struct):
        return any(_holds(getattr(value, field), deep - 1) for field in value.__struct_fields__)
    if isinstance(value, list | tuple | deque):
        return any(_holds(one, deep - 1) for one in value)
    if isinstance(value, Mapping):
        return any(_holds(one, deep - 1) for one in list(value.values()))
    if isinstance(value, _Group | Announcement):
        slots = [getattr(value, slot, None) for slot in type(value).__slots__]
        return any(_holds(slot, deep - 1) for slot in slots)
    return False


async def _record(directory: Path) -> list[Step]:
    node = NodeConfig(data=directory / "data", port=0, mqtt_port=0, shards=1, trace_one_in=None)
    config = Config(
        node=node, pipeline=PipelineConfig(enabled=False), probe=ProbeConfig(enabled=False)
    )
    data = DataDirectory.open_or_create(node.data, 1)
    listeners = listen_all(config, wanted_ports(config), shared=False)
    recorder = Recorder()
    threading.setprofile(recorder)
    parts = processes(config, 1, directory)
    role = Role(parts[0].name, parts[0].shards, True, parts)
    reloads = Reloads(Source(None, {}), config)
    stop, started = asyncio.Event(), asyncio.Event()
    running = NodeProcess(role, config, data, token_keys(data.path), listeners, reloads)
    with data.serving():
        serving = asyncio.create_task(running.run(stop, started.set))
        await started.wait()
        url = f"http://127.0.0.1:{listeners.ports.http}"
        app, name = _OBJECT.split("/")
        async with (
            roskva.Client(url, app=app) as client,
            roskva.Publisher(url, app=app) as publisher,
        ):
            await client.register(name)
            await anext(aiter(client))
            recorder.awaits = True
            sys.setprofile(recorder)
            await publisher.publish(name, 1)
            await anext(aiter(client))
            sys.setprofile(None)
        threading.setprofile(None)
        stop.set()
        await serving
    found: list[Step] = []
    for call in recorder.calls:
        found += [step for step in call.steps() if step not in found]
    return found


def record() -> list[Step]:
    with tempfile.TemporaryDirectory() as directory:
        return asyncio.run(_record(Path(directory)))


def table(steps: list[Step]) -> str:
    lines = ["| | module | function | is handed |", "|---|---|---|---|"]
    module, number = "", 0
    for step in steps:
        number += step.module != module
        first = f"{number} | `{step.module}`" if step.module != module else " | "
        module = step.module
        lines.append(f"| {first} | `{step.function}` | {step.value} |")
    return "\n".join(lines)


def written(page: str, steps: list[Step]) -> str:
    text = f"{_BEGIN}\n{table(steps)}\n{_END}"
    return re.sub(f"{re.escape(_BEGIN)}.*?{re.escape(_END)}", lambda _: text, page, flags=re.S)


if __name__ == "__main__":
    steps = record()
    if "--write" in sys.argv:
        PAGE.write_text(written(PAGE.read_text(), steps))
        RECORDED.write_bytes(msgspec.json.format(msgspec.json.encode(steps)) + b"\n")
    else:
        print(table(steps))
        print(f"{len({step.module for step in steps})} modules")
