"""`roskva serve`: start a node."""

import asyncio
import ipaddress
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
import uvloop

from roskva.cli.outcome import EXIT_CODES, sentences
from roskva.config import Config, load
from roskva.errors import BadConfig
from roskva.server.directory import DataDirectory
from roskva.server.keys import token_keys
from roskva.server.listening import listen, port_of
from roskva.server.node import Node, Role
from roskva.server.process import log_to_stderr, run
from roskva.server.supervisor import Supervisor

RUNNING: Final = "node.json"
"""In the data directory, while a node serves it: where it listens."""

_EXAMPLES: Final = """Examples:

roskva serve

roskva serve --versions assigned --mqtt-port 1883

roskva serve --data /var/lib/roskva --registrars 2"""


def register(app: typer.Typer) -> None:
    app.command(epilog=f"{_EXAMPLES}\n\n{EXIT_CODES}")(serve)


def serve(
    host: Annotated[str | None, typer.Option(help="The address to listen on. [127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(help="For HTTP and WebSocket; 0: any free one. [7600]")
    ] = None,
    mqtt_port: Annotated[
        str | None, typer.Option(help="For MQTT; 0: any free one; off: no MQTT. [1883]")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The data directory. [./roskva-data]", show_default=False)
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="A file of settings; see `roskva config init`.")
    ] = None,
    shards: Annotated[
        int | None, typer.Option(help="Of a new data directory; it never changes. [4]")
    ] = None,
    registrars: Annotated[
        int | None, typer.Option(help="Processes that serve clients. [one does everything]")
    ] = None,
    matchers: Annotated[
        int | None, typer.Option(help="Processes that share the shards. [one does everything]")
    ] = None,
    versions: Annotated[
        str | None,
        typer.Option(help="Who numbers versions, by default: app (publishers) or assigned."),
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Listen beyond loopback although nothing is secret.")
    ] = False,
) -> None:
    """Start a node. Ctrl-C stops it; clients are told when to come back."""
    log_to_stderr()
    with sentences():
        settings = load(
            config,
            {
                "node.host": host,
                "node.port": port,
                "node.mqtt_port": mqtt_port,
                "node.data": None if data is None else str(data),
                "node.shards": shards,
                "node.registrars": registrars,
                "node.matchers": matchers,
                "defaults.versions": versions,
            },
        )
        _check_address(settings.node.host, insecure)
        _serve(settings)


def _serve(settings: Config) -> None:
    node = settings.node
    several = bool(node.registrars or node.matchers)
    data = DataDirectory.open_or_create(node.data, node.shards)
    if node.matchers > data.meta.shards:
        raise BadConfig(
            f"{node.matchers} matchers cannot share the {data.meta.shards} shards of {data.path}: "
            f"start at most {data.meta.shards}"
        )
    keys = token_keys(data.path)
    http = listen(node.host, node.port, shared=several)
    mqtt = None if node.mqtt_port is None else listen(node.host, node.mqtt_port, shared=several)
    with _announced(settings, http, mqtt) as started:
        if several:
            supervisor = Supervisor(settings, data, http, mqtt)
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(supervisor.run(started))
        else:
            role = Role("node", range(data.meta.shards), front=True)
            run(Node(role, settings, data, keys, http, mqtt), started)


def _check_address(host: str, insecure: bool) -> None:
    try:
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        loopback = False
    if not loopback and not insecure:
        raise BadConfig(
            f"{host} is not loopback, and this node has neither keys nor TLS: listen on 127.0.0.1, "
            "or say --insecure if everybody who can reach it may do everything"
        )


class _Started:
    def __init__(self, file: Path, where: dict[str, object], sentence: str) -> None:
        self._file = file
        self._where = where
        self._sentence = sentence

    def __call__(self) -> None:
        temporary = self._file.with_suffix(".tmp")
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(self._where)))
        os.replace(temporary, self._file)
        typer.echo(self._sentence)


@contextmanager
def _announced(
    settings: Config, http: socket.socket, mqtt: socket.socket | None
) -> Iterator[_Started]:
    host, file = settings.node.host, settings.node.data / RUNNING
    address = f"[{host}]" if ":" in host else host
    url = f"http://{address}:{port_of(http)}"
    where: dict[str, object] = {"pid": os.getpid(), "url": url, "started_at": time.time()}
    sentence = f"Roskva serves {settings.node.data} at {url}"
    if mqtt is not None:
        where["mqtt_port"] = port_of(mqtt)
        sentence += f", and MQTT at {address}:{port_of(mqtt)}"
    try:
        yield _Started(file, where, sentence + ". Ctrl-C stops it.")
    finally:
        file.unlink(missing_ok=True)
