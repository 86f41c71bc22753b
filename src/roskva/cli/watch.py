"""`roskva watch`: be a client, and say what it is told.

`--state FILE` remembers the last version told of each object. It has a line per notification, in
the form that `--json` prints; the last word on an object counts. A line is written before its
notification is acked, so what is remembered is never ahead of what the server takes for acked, and
a last line that a crash tore is told again. The identities of the clients lie beside it and mean
nothing without it: a client that kept its identity and lost what it stands for would not be told
again.
"""

import asyncio
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, TextIO

import msgspec
from rich.console import Console
from rich.text import Text
from typer import Argument, Option

from roskva.cli.node import NodeApi, NodeOptions
from roskva.cli.options import command
from roskva.cli.outcome import NodeRefused, complain
from roskva.client.client import Client
from roskva.core import effects
from roskva.errors import BadInput
from roskva.model import Key, ObjectId, is_key, is_version, parse_key

_SPARE_LINES: Final = 1000
"""The file is rewritten when it has so many lines more than objects, and again as many."""

_TRY_AGAIN_S = 1.0


# What is remembered.


class WatchLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A notification as scripts get it; the same as the data of a server-sent event."""

    object: Key
    version: str | None
    epoch: str
    payload: bytes | None = None


def line_of(event: effects.Notify | effects.NotifyUnknown) -> WatchLine:
    match event:
        case effects.Notify(object=key, version=version, epoch=epoch, payload=payload):
            return WatchLine(key, str(version), str(epoch), payload)
        case effects.NotifyUnknown(object=key, epoch=epoch):
            return WatchLine(key, None, str(epoch))


class WatchState:
    """Used as a context; without a path it remembers nothing beyond this run."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[Key, WatchLine] = {}
        self._file: TextIO | None = None
        self._lines = 0

    def __enter__(self) -> "WatchState":
        if self._path is not None:
            try:
                if self._path.exists():
                    self._known = _read(self._path)
                else:
                    for identity in self._path.parent.glob(f"{self._path.name}.*.identity"):
                        identity.unlink()
                self._rewrite(self._path)
            except OSError as error:
                raise BadInput(f"{self._path} cannot be used: {error.strerror}") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def identity(self, app: str) -> Path | None:
        if self._path is None:
            return None
        return self._path.with_name(f"{self._path.name}.{app}.identity")

    def version(self, key: Key) -> int | None:
        known = self._known.get(key)
        return None if known is None or known.version is None else int(known.version)

    def remember(self, line: WatchLine) -> None:
        if self._file is None or self._path is None:
            return
        self._known[line.object] = line
        if self._lines > 2 * len(self._known) + _SPARE_LINES:
            self._rewrite(self._path)
        else:
            self._file.write(_encoded(line))
            self._file.flush()
            self._lines += 1

    def _rewrite(self, path: Path) -> None:
        if self._file is not None:
            self._file.close()
        new = path.with_name(path.name + ".tmp")
        new.write_text("".join(_encoded(line) for line in self._known.values()))
        new.replace(path)
        self._file = path.open("a")
        self._lines = len(self._known)


def _encoded(line: WatchLine) -> str:
    """The payload is not needed to go on."""
    return msgspec.json.encode(msgspec.structs.replace(line, payload=None)).decode() + "\n"


def _read(path: Path) -> dict[Key, WatchLine]:
    known: dict[Key, WatchLine] = {}
    *whole, _torn = path.read_bytes().split(b"\n")
    for number, line in enumerate(whole, 1):
        try:
            found = msgspec.json.decode(line, type=WatchLine)
        except msgspec.DecodeError:
            found = None
        version = "0" if found is None or found.version is None else found.version
        if found is None or not (is_key(found.object) and is_version(version)):
            raise BadInput(f"{path}:{number}: this was not written by `roskva watch --state`")
        known[found.object] = found
    return known


# The command.


@command(
    "roskva watch contacts/alice contacts/bob",
    "roskva watch home/temp --json | jq -r .version",
    "roskva watch contacts/alice --count 1 --state alice.state && ./rebuild",
)
def watch(
    targets: Annotated[list[str], Argument(metavar="APP/NAME", help="What to watch.")],
    json: Annotated[bool, "A JSON object per line."] = False,
    count: Annotated[int | None, Option(min=1, help="Stop after so many notifications.")] = None,
    state: Annotated[
        Path | None,
        Option(
            dir_okay=False,
            metavar="FILE",
            help="Remember across runs what was told: the next run says only what changed.",
        ),
    ] = None,
    node: NodeOptions = NodeOptions(),
) -> None:
    """Print the current version of each object, and every newer one as it is published.

    *Unknown* (a null version in JSON) means: this may have changed, look at its source. When the
    connection is lost, it is made again, and what changed meanwhile is told. Ctrl-C ends it.
    """
    objects = [parse_key(target) for target in targets]
    with NodeApi(node.urls, node.tls) as api:
        api.check()
    with WatchState(state) as remembered:
        watching = Watch(node, remembered, json, count)
        asyncio.run(watching.run(objects))


@dataclass
class Watch:
    """A client for each app that is watched, and one place where they tell what they heard."""

    node: NodeOptions
    state: WatchState
    json: bool
    left: int | None
    """To be told; None: there is no end."""
    console: Console = field(default_factory=lambda: Console(markup=False, highlight=False))
    complaint: str = ""

    async def run(self, objects: list[ObjectId]) -> None:
        """Until enough was told, or one of the clients cannot go on."""
        names: dict[str, list[str]] = {}
        for target in objects:
            names.setdefault(target.app, []).append(target.name)
        following = [asyncio.create_task(self._follow(app, names[app])) for app in names]
        try:
            done, _ = await asyncio.wait(following, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
        for task in done:
            task.result()

    async def _follow(self, app: str, names: list[str]) -> None:
        identity = self.state.identity(app)
        node, jwt = self.node, self.node.secret or None
        client = Client(node.urls, app, identity, tls=node.tls, credential=jwt)
        async with client:
            for name in names:
                await client.register(name, self.state.version(ObjectId(app, name).key))
            async for event in client:
                await self._take(client, event)
                if self.left == 0:
                    return

    async def _take(self, client: Client, event: effects.ClientEvent) -> None:
        match event:
            case effects.Notify() | effects.NotifyUnknown() if self.left != 0:
                line = line_of(event)
                self._print(line)
                self.state.remember(line)
                client.ack(event)
                if self.left is not None:
                    self.left -= 1
            case effects.RegistrationFailure(object=key, transient=False, code=code):
                raise NodeRefused(f"{key} may not be watched ({code})")
            case effects.RegistrationFailure(name=name):
                await asyncio.sleep(_TRY_AGAIN_S)
                await client.register(name, self.state.version(event.object))
            case effects.RegistrationStatus():
                self.complaint = ""
            case effects.Trouble(code=code, text=text):
                self._complain(f"{text} ({code}); trying again")

    def _complain(self, sentence: str) -> None:
        """Once, not at every attempt to connect."""
        if sentence != self.complaint:
            self.complaint = sentence
            complain(sentence)

    def _print(self, line: WatchLine) -> None:
        if self.json:
            print(msgspec.json.encode(line).decode(), flush=True)
            return
        version = Text("unknown", "yellow") if line.version is None else Text(line.version, "green")
        parts = [Text(time.strftime("%H:%M:%S"), "dim"), Text(line.object, "bold"), version]
        if line.payload is not None:
            parts.append(Text(readable(line.payload)))
        self.console.print(Text("  ").join(parts), soft_wrap=True)


def readable(payload: bytes) -> str:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"{len(payload)} bytes: {payload[:32].hex(' ')}"
    return text if text.isprintable() else repr(text)
