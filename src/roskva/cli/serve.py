"""`roskva serve`: start a node."""

import asyncio
import logging
import os
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
import uvloop
from typer import Option

from roskva import __version__
from roskva.channels.own import own_channel
from roskva.cli.config import check_start
from roskva.cli.options import command
from roskva.config import Config, Source
from roskva.errors import BadConfig
from roskva.feed.recovery import SKIP
from roskva.links.processes import (
    Process,
    RunningNode,
    announce,
    pack_assignment,
    running,
    withdraw,
)
from roskva.logs import log_to_stderr
from roskva.net.address import Ports, in_url
from roskva.probe.history import KEPT, forget
from roskva.probe.job import ProbeJob
from roskva.server.access.keys import token_keys
from roskva.server.admin.pipeline import (
    PIPELINE_REPORT,
    PROBE_REPORT,
    source_report,
    why_no_prober,
)
from roskva.server.directory import META, DataDirectory
from roskva.server.listeners import listen_all, wanted_ports
from roskva.server.node import NodeProcess, Role
from roskva.server.processes import Child, Supervisor, processes, run, run_directory
from roskva.server.reload import Reloads
from roskva.sources.work import SourceJob

_log = logging.getLogger(__name__)


@command(
    "",
    "roskva serve",
    "roskva serve --versions assigned --mqtt-port 1883",
    "roskva serve --data /var/lib/roskva --registrars 2",
)
def serve(
    host: Annotated[str | None, "The address to listen on. [127.0.0.1]"] = None,
    port: Annotated[int | None, "For HTTP and WebSocket; 0: any free one. [7600]"] = None,
    mqtt_port: Annotated[str | None, "For MQTT; 0: any free one; off: no MQTT. [1883]"] = None,
    data: Annotated[Path | None, "The data directory. [./roskva-data]"] = None,
    config: Annotated[Path | None, "A file of settings; see `roskva config init`."] = None,
    shards: Annotated[int | None, "Of a new data directory; it never changes. [4]"] = None,
    registrars: Annotated[int | None, "Processes that serve clients. [one does everything]"] = None,
    matchers: Annotated[
        int | None, "Processes that share the shards. [one does everything]"
    ] = None,
    versions: Annotated[
        str | None, "Who numbers versions, by default: app (publishers) or assigned."
    ] = None,
    no_pipeline: Annotated[bool, "Leave Spark out: no bridge, nothing is ingested."] = False,
    no_probe: Annotated[bool, "Leave the prober out: nobody measures the node."] = False,
    no_fast_path: Annotated[
        bool, "Leave delivery to the pipeline while it is alive, by default. For tests."
    ] = False,
    behind_proxy: Annotated[
        str | None,
        Option(
            metavar="ADDRESS,…",
            help="Addresses or networks of proxies that end TLS in front of it.",
        ),
    ] = None,
    log: Annotated[
        str | None, Option(help="Log lines as text or json. [text]", metavar="FORM")
    ] = None,
    insecure: Annotated[bool, "Start although something is open to everybody."] = False,
) -> None:
    """Start a node. Ctrl-C stops it; clients are told when to come back."""
    source = Source(
        config,
        {
            "node.host": host,
            "node.port": port,
            "node.mqtt_port": mqtt_port,
            "node.data": None if data is None else str(data),
            "node.shards": shards,
            "node.registrars": registrars,
            "node.matchers": matchers,
            "node.behind_proxy": behind_proxy,
            "node.log": log,
            "defaults.versions": versions,
            "defaults.fast_path": False if no_fast_path else None,
            "pipeline.enabled": False if no_pipeline else None,
            "probe.enabled": False if no_probe else None,
        },
    )
    settings = source.load()
    log_to_stderr(settings.node.log, "parent" if settings.node.several else "node")
    check_start(settings, insecure)
    _serve(settings, source)


def _serve(settings: Config, source: Source) -> None:
    os.umask(0o077)  # also for what the store writes, and all processes of the node
    node = settings.node
    if node.channel is not None:
        own_channel(node.channel)
    is_new = not (node.data / META).exists()
    data = DataDirectory.open_or_create(node.data, node.shards)
    shards = data.meta.shards
    if node.matchers > shards:
        raise BadConfig(
            f"{node.matchers} matchers cannot share the {shards} shards of {data.path}: start at "
            f"most {shards}"
        )
    keys = token_keys(data.path)
    listeners = listen_all(settings, wanted_ports(settings), shared=node.several)
    with data.serving(), run_directory(data.path) as run_dir:
        _say_how_it_starts(data, is_new)
        parts = processes(settings, shards, run_dir)
        started = partial(_started, settings, parts, listeners.ports)
        beside = list(_beside(settings, parts, listeners.ports, run_dir))
        try:
            if node.several:
                supervisor = Supervisor(settings, source, parts, listeners.ports, beside)
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    runner.run(supervisor.run(started))
            else:
                role = Role(parts[0].name, parts[0].shards, True, parts)
                reloads = Reloads(source, settings)
                node_itself = NodeProcess(role, settings, data, keys, listeners, reloads)
                run(node_itself, started, beside)
        finally:
            withdraw(data.path)


def _beside(
    settings: Config, parts: tuple[Process, ...], ports: Ports, run_dir: Path
) -> Iterator[Child]:
    """What runs with a node, which serves without it, and before it is there."""
    report, scratch = run_dir / PIPELINE_REPORT, run_dir / "pipeline"
    if settings.pipeline.enabled:
        scratch.mkdir(exist_ok=True)
        work = settings, report, scratch
        yield Child("pipeline", "roskva.pipeline.child", partial(pack_assignment, work))
    for name, source in settings.source.items():
        if source.with_node:
            reports = source_report(run_dir, name)
            reading = SourceJob(name, settings, settings.node.data.absolute(), parts, reports)
            yield Child(f"source {name}", "roskva.sources.child", partial(pack_assignment, reading))
    if not why_no_prober(settings):
        data = settings.node.data.absolute()
        job = ProbeJob(settings, data, ports, parts, run_dir / PROBE_REPORT, report)
        yield Child("prober", "roskva.probe.child", partial(pack_assignment, job))
    else:
        forget(settings.node.data / KEPT)


def _say_how_it_starts(data: DataDirectory, is_new: bool) -> None:
    """A node that is stopped withdraws what it has announced."""
    crashed = running(data.path)
    if crashed is not None:
        how = f"after a crash: process {crashed.pid} did not get to stop in order"
    elif any((place.feed_path / SKIP).exists() for place in data.places()):
        how = "as it was restored from a backup"
    else:
        how = "for the first time" if is_new else "after it was stopped in order"
    _log.log(
        logging.INFO if crashed is None else logging.WARNING,
        *("Roskva %s starts on %s %s", __version__, data.path, how),
    )


def _started(
    settings: Config,
    parts: tuple[Process, ...],
    ports: Ports,
) -> None:
    data, scheme = settings.node.data, "https" if settings.tls.enabled else "http"
    address = in_url(settings.node.host)
    url = f"{scheme}://{address}:{ports.http}"
    certificate = (
        None if settings.tls.certificate is None else str(settings.tls.certificate.absolute())
    )
    now = time.time()
    announce(data, RunningNode(os.getpid(), url, now, list(parts), ports.mqtt, certificate))
    said = f"Roskva serves {data} at {url}"
    if ports.mqtt is not None:
        said += f", and MQTT at {address}:{ports.mqtt}"
    if ports.admin is not None:
        said += f". Its console is at {scheme}://{in_url(settings.admin.host)}:{ports.admin}"
    if settings.node.log == "json":
        _log.info("%s", said)
    else:
        typer.echo(f"{said}. Ctrl-C stops it.")
