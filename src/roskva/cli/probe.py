"""`roskva probe`: measure what users would see."""

import asyncio
import hashlib
import os
import time
from pathlib import Path
from typing import Annotated

import httpx
import msgspec
import typer
from rich.console import Console
from rich.table import Table

from roskva.cli import node
from roskva.cli.options import command
from roskva.cli.outcome import FAILED
from roskva.config import SloConfig, load
from roskva.net.address import http_url
from roskva.net.tls import client_context
from roskva.probe.objectives import missed, sentence
from roskva.probe.paths import Target, what_is_wrong
from roskva.probe.round import PATHS, Measurement, objects, probe
from roskva.wire.admin import PipelineNow, ShardNow


class Round(msgspec.Struct, frozen=True):
    at: float
    kept: bool
    sentence: str
    outcomes: list[Measurement]


class _Seen(msgspec.Struct):
    """What the node tells of itself, if it tells us."""

    at: float = 0.0
    shards: list[ShardNow] = []
    pipeline: PipelineNow = msgspec.field(default_factory=PipelineNow)


@command(
    "",
    "roskva probe --once",
    "roskva probe --once --json --mqtt-port 1883",
    "roskva probe --interval 10",
    "roskva probe --once --url https://node-1:7600 --ca ca.crt --key file:probe.key",
    name="probe",
)
def measure(
    url: node.UrlOption = node.DEFAULT_URL,
    mqtt_port: Annotated[int | None, "Where it speaks MQTT. Not given: MQTT is left out."] = None,
    ca: node.CaOption = None,
    cert: node.CertOption = None,
    cert_key: node.CertKeyOption = None,
    key: Annotated[
        str, node.key_option("ROSKVA_PROBE_KEY", "What [probe] of the node has as key")
    ] = "",
    config: Annotated[Path | None, "A file of settings; its [slo] has the targets."] = None,
    once: Annotated[bool, "One round, and then the exit code."] = False,
    interval: Annotated[float, "Seconds from one round to the next."] = 5.0,
    json: Annotated[bool, "A line of JSON per round."] = False,
) -> None:
    """Be a publisher and a client over each channel, and say which path is hurt.

    Measured are the time to register, to have a publish acknowledged, to be told of it, and to
    catch up after coming back, each on objects of apps of the prober's own. With --once the exit
    code is 1 if a target was missed.
    """
    slo = load(config).slo
    at = http_url(url, "")
    target = Target(
        url=at,
        identities=_identities(at),
        objects=objects([(0, "")], 1),
        mqtt_port=mqtt_port,
        key=node.secret_of(key) or None,
        name=f"at-{os.uname().nodename}",
        context=client_context(at, node.tls_of(ca, cert, cert_key)),
    )
    while True:
        began = time.monotonic()
        found = asyncio.run(_round(target, slo))
        print(msgspec.json.encode(found).decode()) if json else _show(found, slo)
        if once:
            raise typer.Exit(0 if found.kept else FAILED)
        time.sleep(max(0.0, interval - (time.monotonic() - began)))


def _identities(url: str) -> Path:
    """Kept from one run to the next, so that the prober leaves the same few rows in a node."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "roskva" / "probe" / hashlib.sha256(url.encode()).hexdigest()[:16]


async def _round(target: Target, slo: SloConfig) -> Round:
    outcomes = await probe(await _seen(target), slo)
    kept = not any(missed(outcome, slo) for outcome in outcomes)
    return Round(time.time(), kept, sentence(outcomes, slo), outcomes)


async def _seen(target: Target) -> Target:
    """With all that has shards; a node that does not tell us is probed in one place only."""
    verify = target.context or False
    try:
        async with httpx.AsyncClient(base_url=target.url, timeout=5.0, verify=verify) as http:
            answer = (await http.get("/v1/admin/now")).raise_for_status().content
        seen = msgspec.json.decode(answer, type=_Seen)
    except (httpx.HTTPError, msgspec.DecodeError):
        return target
    owners = [(shard.shard, shard.process) for shard in seen.shards]
    pipeline = seen.pipeline.state not in ("off", "starting")
    return msgspec.structs.replace(
        target,
        objects=objects(owners, len(owners)) or target.objects,
        pipeline=pipeline,
        pipeline_trouble=what_is_wrong(seen.pipeline, seen.at) if pipeline else "",
    )


def _show(found: Round, slo: SloConfig) -> None:
    table = Table("measured", "took", "target", "path", box=None)
    for outcome in found.outcomes:
        took = "failed" if outcome.seconds is None else f"{outcome.seconds * 1000:,.1f} ms"
        target = f"{slo.of(outcome.sli).target_ms:,} ms"
        style = "red" if missed(outcome, slo) else ""
        table.add_row(outcome.sli, took, target, PATHS[outcome.sli], style=style)
    console = Console(markup=False, highlight=False)
    console.print(table, "", found.sentence)
