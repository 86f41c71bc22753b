"""The second part: files become updates, Spark alone delivers them, and a process is kept down.

Things in stock: a client follows them, and backends publish them.
"""

import asyncio
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

import roskva
from roskva.cli.demo.crashes import KEY
from roskva.cli.demo.node import Deliveries, DemoNode

APP: Final = "stock"
_GOODS: Final = (
    *("anvils", "bells", "candles", "drums", "easels", "flutes", "gloves", "hammers", "inks"),
    *("jars", "kettles", "lamps", "mugs", "needles", "oars", "pans", "quilts", "ropes", "saws"),
)
_EACH: Final = 4
_PAUSE_S: Final = 0.2

_LONGEST_S: Final = 480.0
"""On a machine that does nothing else a tenth of that will do."""
_DOWN_S: Final = 2.0
"""With the start that follows it is less than publishes are held for."""
_LAST: Final = 1_000_000

_SETTINGS: Final = """\
[apps.stock]
fast_path = false    # clients are told by way of Spark

[ingest.stock]
format = "json"
path = "{incoming}"
columns = "item STRING, revision BIGINT"
app = "'stock'"
name = "item"
version = "revision"
"""


def items_of(node: DemoNode, state: str) -> list[str]:
    """A few goods that this state process has."""
    return [item for item in _GOODS if node.owner_of(f"{APP}/{item}").name == state][:_EACH]


class Shelf:
    """What a client knows of its items."""

    def __init__(self, client: roskva.Client, items: list[str]) -> None:
        self.items = items
        self.versions: dict[str, int] = {}
        self.heard_at: dict[tuple[str, int], float] = {}
        self._client = client
        self._changed = asyncio.Condition()

    async def watch(self) -> None:
        """Until cancelled."""
        for item in self.items:
            await self._client.register(item)
        async for event in self._client:
            if isinstance(event, roskva.Notify):
                await self._note(event.name, event.version)

    async def until_it_knows(self, versions: dict[str, int]) -> None:
        """These, or newer ones."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: all(self.versions.get(item, -1) >= v for item, v in versions.items())
            )

    async def _note(self, item: str, version: int) -> None:
        async with self._changed:
            self.versions[item] = version
            self.heard_at[item, version] = time.monotonic()
            self._changed.notify_all()


class Backend:
    """Publishes ever newer versions of its items."""

    def __init__(self, items: list[str]) -> None:
        self.acknowledged = dict.fromkeys(items, 1)
        self.repeated = 0
        self.longest_s = 0.0
        self._published_at: dict[tuple[str, int], float] = {}
        self._changed = asyncio.Condition()

    async def publish(self, url: str) -> None:
        """Until cancelled."""
        async with roskva.Publisher(url, app=APP) as publisher:
            while True:
                for item in self.acknowledged:
                    version = self.acknowledged[item] + 1
                    began = self._published_at[item, version] = time.monotonic()
                    await publisher.publish(item, version)
                    self.longest_s = max(self.longest_s, time.monotonic() - began)
                    self.repeated = publisher.repeated
                    async with self._changed:
                        self.acknowledged[item] = version
                        self._changed.notify_all()
                await asyncio.sleep(_PAUSE_S)

    async def until_beyond(self, versions: dict[str, int]) -> None:
        """Something newer than these is acknowledged."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: any(self.acknowledged[item] > v for item, v in versions.items())
            )

    def delays(self, shelf: Shelf, since: float) -> list[float]:
        """Of what was published since then and is known to the client: how long that took."""
        return [
            heard_at - self._published_at[key]
            for key, heard_at in shelf.heard_at.items()
            if self._published_at.get(key, -1.0) >= since
        ]


def write_settings(directory: Path) -> tuple[Path, Path]:
    """The file of settings, and the directory that is ingested."""
    settings, incoming = directory / "roskva.toml", directory / "incoming"
    incoming.mkdir()
    settings.write_text(_SETTINGS.format(incoming=incoming))
    return settings, incoming


async def show_pipeline(console: Console, node: DemoNode, incoming: Path) -> bool:
    """Whether every client knew what it should."""
    console.print(
        "[bold]The pipeline.[/] So far a backend called Roskva, and Roskva told clients at once. "
        "Beside the node runs Apache Spark. It makes updates of what other programs write, and "
        "it brings everything in the [italic]feed[/], the log of all updates on disk, to whom it "
        "concerns, also when the quick way fails. The app [bold]stock[/] has the quick way "
        "switched off, to see Spark work alone:\n"
    )
    _show(console, _SETTINGS.format(incoming="incoming/"), "dim")
    down, up = _two_states(node)
    items = [*items_of(node, up), *items_of(node, down)]
    async with roskva.Client(node.url, app=APP, auto_ack=True) as client:
        shelf = Shelf(client, items)
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(shelf.watch())
            held = await _PipelineStory(console, node, incoming, shelf).run(down, up)
            watching.cancel()
        return held and await _audit(console, node)


def _two_states(node: DemoNode) -> tuple[str, str]:
    """Not the one that was killed before: its next start is held back for longer."""
    spared = node.owner_of(KEY).name
    other = next(state.name for state in node.states() if state.name != spared)
    return other, spared


class _PipelineStory:
    def __init__(self, console: Console, node: DemoNode, incoming: Path, shelf: Shelf) -> None:
        self._say, self._node = console.print, node
        self._incoming, self._shelf = incoming, shelf
        self._deliveries = Deliveries(node)

    async def run(self, down: str, up: str) -> bool:
        try:
            async with asyncio.timeout(_LONGEST_S):
                await self._files_become_updates()
                others_went_on = await self._a_matcher_is_down(down, up)
                await self._files_again()
                alone = await self._by_spark_alone()
        except TimeoutError:
            self._say(f"  [red]the client still believes in {self._shelf.versions}[/]")
            pipeline = (await self._node.status())["pipeline"]
            self._say(f"the pipeline says: {pipeline}", markup=False)
            return False
        return others_went_on and alone

    async def _files_become_updates(self) -> None:
        items = self._shelf.items
        self._say(
            f"A client wants to know about {len(items)} items. Another program, which has never "
            "heard of Roskva, writes a file of JSON:"
        )
        self._say(f"  [dim]incoming/1.json: {_line(items[0], 1)}, …[/]")
        self._say("  [dim](Spark is starting, which takes a while)[/]")
        await self._node.until_bridged()
        await self._deliveries.taken()
        self._write("1.json", 1)
        await self._shelf.until_it_knows(dict.fromkeys(items, 1))
        self._say(f"  [green]✓[/] the client knows version 1 of all {len(items)} items\n")

    async def _a_matcher_is_down(self, down: str, up: str) -> bool:
        """Whether the others went on."""
        mine, others = items_of(self._node, down), items_of(self._node, up)
        self._say(
            f"{len(others)} of the items are at one state process, {len(mine)} at the other. Their "
            "backends now publish a few versions of each per second."
        )
        pid = await self._node.pid(down)
        going_on, waiting = Backend(others), Backend(mine)
        async with asyncio.TaskGroup() as tasks:
            url = self._node.url
            publishing = [tasks.create_task(one.publish(url)) for one in (going_on, waiting)]
            await self._shelf.until_it_knows(dict.fromkeys(self._shelf.items, 5))
            await self._deliveries.count()
            began = time.monotonic()
            self._say(
                f"\n[red]✗ kill −9[/] of the second one, and of whoever takes its place, for "
                f"{_DOWN_S:.0f} seconds: its updates on disk wait, and so does its backend."
            )
            times = await self._node.keep_down(pid, _DOWN_S)
            acknowledged = dict(waiting.acknowledged)
            await waiting.until_beyond(acknowledged)
            away_s = time.monotonic() - began
            delays = going_on.delays(self._shelf, began)
            self._say(
                f"  It was killed {times} times. The {len(others)} items of the other process went "
                f"on: {len(delays)} notifications meanwhile, half of them within "
                f"{1000 * statistics.median(delays or [0.0]):.0f} ms of publishing."
            )
            self._say(
                f"  It is back, {away_s:.1f} s after the first kill. The longest wait of its "
                f"backend was {waiting.longest_s:.1f} s, and it got "
                f"{'an' if waiting.repeated else 'no'} error."
            )
            for task in publishing:
                task.cancel()
        acknowledged = going_on.acknowledged | waiting.acknowledged
        await self._shelf.until_it_knows(acknowledged)
        self._say(
            "  [green]✓[/] its gap is closed: the client knows the last version of all "
            f"{len(acknowledged)} items that was acknowledged\n"
        )
        return bool(delays)

    async def _files_again(self) -> None:
        self._say(f"Another file, with version {_LAST:,} of everything:")
        self._write("2.json", _LAST)
        await self._shelf.until_it_knows(dict.fromkeys(self._shelf.items, _LAST))
        self._say("  [green]✓[/] the client knows it.\n")

    async def _by_spark_alone(self) -> bool:
        ways = await self._deliveries.taken()
        alone = not ways["own"] and not ways["fast"]
        self._say(
            f"How they came to the state processes: {ways['start']:,} were read from the feed as "
            "the killed one started again; and the others"
        )
        verdict = "[green]✓[/]" if alone else "[red]✗[/]"
        self._say(f"  {verdict} by Spark: {ways['bridge']:,}, by itself: {ways['own']:,}\n")
        return alone

    def _write(self, name: str, revision: int) -> None:
        """Under its name when it is complete."""
        lines = "".join(f"{_line(item, revision)}\n" for item in self._shelf.items)
        temporary = self._incoming / f".{name}"
        temporary.write_text(lines)
        temporary.rename(self._incoming / name)


def _line(item: str, revision: int) -> str:
    return json.dumps({"item": item, "revision": revision})


async def _audit(console: Console, node: DemoNode) -> bool:
    console.print(
        "Who has not heard? Spark compares what every client has acknowledged with what there is. "
        "[italic]Stale[/] would be a client that is online and was not told.\n"
    )
    console.print("[dim]$ roskva job audit[/]")
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "roskva", "job", "audit", str(node.data)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    told, complained = await process.communicate()
    _show(console, told.decode())
    if process.returncode:
        _show(console, complained.decode(), "red")
    return process.returncode == 0


def _show(console: Console, text: str, style: str = "") -> None:
    """As it is, a little to the right."""
    console.print(Padding(Text(text.rstrip(), style), (0, 4), expand=False))
    console.print()
