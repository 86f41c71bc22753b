"""`roskva serve`: start a node."""

import asyncio
import ipaddress
import os
import socket
import time
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer
import uvloop

from roskva.cli.outcome import EXIT_CODES, sentences
from roskva.config import Config, load
from roskva.errors import BadConfig
from roskva.links.parent import told
from roskva.links.running import Process, Running, announce, withdraw
from roskva.server.directory import DataDirectory
from roskva.server.keys import token_keys
from roskva.server.listening import listen, port_of
from roskva.server.node import Node, Role
from roskva.server.process import log_to_stderr, run
from roskva.server.status import PIPELINE_REPORT
from roskva.server.supervisor import Child, Supervisor, keep, processes, run_directory

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
    no_pipeline: Annotated[
        bool, typer.Option("--no-pipeline", help="Leave Spark out: no bridge, nothing is ingested.")
    ] = False,
    no_fast_path: Annotated[
        bool,
        typer.Option(
            "--no-fast-path", help="Let the pipeline alone deliver, by default. For tests."
        ),
    ] = False,
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
                "defaults.fast_path": False if no_fast_path else None,
                "pipeline.enabled": False if no_pipeline else None,
            },
        )
        _check_address(settings.node.host, insecure)
        _serve(settings)


def _serve(settings: Config) -> None:
    node = settings.node
    data = DataDirectory.open_or_create(node.data, node.shards)
    shards = data.meta.shards
    if node.matchers > shards:
        raise BadConfig(
            f"{node.matchers} matchers cannot share the {shards} shards of {data.path}: start at "
            f"most {shards}"
        )
    keys = token_keys(data.path)
    several = bool(node.registrars or node.matchers)
    http = listen(node.host, node.port, shared=several)
    mqtt = None if node.mqtt_port is None else listen(node.host, node.mqtt_port, shared=several)
    with data.serving(), run_directory(data.path) as run_dir:
        parts = processes(settings, shards, run_dir)
        started = partial(_started, settings, parts, http, mqtt)
        pipeline = _pipeline(settings, run_dir) if settings.pipeline.enabled else None
        try:
            if several:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(Supervisor(settings, parts, http, mqtt, pipeline).run(started))
            else:
                role = Role(parts[0].name, parts[0].shards, True, parts)
                beside = None if pipeline is None else partial(keep, pipeline)
                run(Node(role, settings, data, keys, http, mqtt), started, beside)
        finally:
            withdraw(data.path)


def _pipeline(settings: Config, run_dir: Path) -> Child:
    """A node serves without it, and before it is there."""
    scratch = run_dir / "pipeline"
    scratch.mkdir()
    report = run_dir / PIPELINE_REPORT
    return Child("pipeline", "roskva.pipeline.child", told((settings, report, scratch)))


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


def _started(
    settings: Config,
    parts: tuple[Process, ...],
    http: socket.socket,
    mqtt: socket.socket | None,
) -> None:
    host, data = settings.node.host, settings.node.data
    address = f"[{host}]" if ":" in host else host
    url = f"http://{address}:{port_of(http)}"
    mqtt_port = None if mqtt is None else port_of(mqtt)
    announce(data, Running(os.getpid(), url, time.time(), list(parts), mqtt_port))
    devices = "" if mqtt is None else f", and MQTT at {address}:{mqtt_port}"
    typer.echo(f"Roskva serves {data} at {url}{devices}. Ctrl-C stops it.")
