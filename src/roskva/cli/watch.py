"""`roskva watch`: be a client, and say what it is told."""

import asyncio
import time
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from roskva.cli.node import (
    DEFAULT_URL,
    CaOption,
    CertKeyOption,
    CertOption,
    KeyOption,
    NodeApi,
    UrlOption,
    secret_of,
    tls_of,
)
from roskva.cli.outcome import EXIT_CODES, NodeRefused, complain, sentences
from roskva.cli.watch_state import WatchLine, WatchState, told
from roskva.client.client import Client
from roskva.core.effects import (
    ClientEvent,
    Notify,
    NotifyUnknown,
    RegistrationFailure,
    RegistrationStatus,
    Trouble,
)
from roskva.model import ObjectId, parse_key
from roskva.net.tls import Tls

_TRY_AGAIN_S = 1.0


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Examples: roskva watch contacts/alice contacts/bob\n\n"
        "roskva watch home/temp --json | jq -r .version\n\n"
        "roskva watch contacts/alice --count 1 --state alice.state && ./rebuild\n\n"
        f"{EXIT_CODES}"
    )(watch)


def watch(
    targets: Annotated[
        list[str],
        typer.Argument(metavar="APP/NAME", help="What to watch.", show_default=False),
    ],
    json: Annotated[bool, typer.Option("--json", help="A JSON object per line.")] = False,
    count: Annotated[
        int | None,
        typer.Option(min=1, help="Stop after so many notifications.", show_default=False),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            metavar="FILE",
            help="Remember across runs what was told: the next run says only what changed.",
            show_default=False,
        ),
    ] = None,
    url: UrlOption = DEFAULT_URL,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    key: KeyOption = "",
) -> None:
    """Print the current version of each object, and every newer one as it is published.

    *Unknown* (a null version in JSON) means: this may have changed, look at its source. When the
    connection is lost, it is made again, and what changed meanwhile is told. Ctrl-C ends it.
    """
    with sentences():
        objects = [parse_key(target) for target in targets]
        tls = tls_of(ca, cert, cert_key)
        with NodeApi(url, tls) as node:
            node.check()
        with WatchState(state) as remembered:
            asyncio.run(Watch(url, tls, secret_of(key), remembered, json, count).run(objects))


class Watch:
    """A client for each app that is watched, and one place where they tell what they heard."""

    def __init__(
        self, url: str, tls: Tls | None, jwt: str, state: WatchState, json: bool, count: int | None
    ) -> None:
        self._url = url
        self._tls = tls
        self._jwt = jwt or None
        self._state = state
        self._json = json
        self._left = count
        self._complaint = ""
        self._console = Console(markup=False, highlight=False)

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
        identity = self._state.identity(app)
        client = Client(self._url, app, identity, tls=self._tls, credential=self._jwt)
        async with client:
            for name in names:
                await client.register(name, self._state.version(ObjectId(app, name).key))
            async for event in client:
                await self._take(client, event)
                if self._left == 0:
                    return

    async def _take(self, client: Client, event: ClientEvent) -> None:
        match event:
            case Notify() | NotifyUnknown() if self._left != 0:
                line = told(event)
                self._print(line)
                self._state.remember(line)
                client.ack(event)
                if self._left is not None:
                    self._left -= 1
            case RegistrationFailure(object=key, transient=False, code=code):
                raise NodeRefused(f"{key} may not be watched ({code})")
            case RegistrationFailure(name=name):
                await asyncio.sleep(_TRY_AGAIN_S)
                await client.register(name, self._state.version(event.object))
            case RegistrationStatus():
                self._complaint = ""
            case Trouble(code=code, text=text):
                self._complain(f"{text} ({code}); trying again")

    def _complain(self, sentence: str) -> None:
        """Once, not at every attempt to connect."""
        if sentence != self._complaint:
            self._complaint = sentence
            complain(sentence)

    def _print(self, line: WatchLine) -> None:
        if self._json:
            print(msgspec.json.encode(line).decode(), flush=True)
            return
        version = Text("unknown", "yellow") if line.version is None else Text(line.version, "green")
        parts = [Text(time.strftime("%H:%M:%S"), "dim"), Text(line.object, "bold"), version]
        if line.payload is not None:
            parts.append(Text(readable(line.payload)))
        self._console.print(Text("  ").join(parts), soft_wrap=True)


def readable(payload: bytes) -> str:
    try:
        text = payload.decode()
    except UnicodeDecodeError:
        return f"{len(payload)} bytes: {payload[:32].hex(' ')}"
    return text if text.isprintable() else repr(text)
