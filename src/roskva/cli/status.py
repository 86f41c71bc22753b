"""`roskva status`: what a node says of itself."""

import time
from collections import Counter
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from roskva.cli.node import (
    DEFAULT_URL,
    AdminKeyOption,
    CaOption,
    CertKeyOption,
    CertOption,
    UrlOption,
    admin_api,
    tls_of,
)
from roskva.cli.outcome import EXIT_CODES, FAILED, sentences
from roskva.wire.admin import NodeStatus, PipelineNow, ProbeNow, ProcessNow, ShardNow

CHANNELS = ("websocket", "mqtt", "http")
_MIB = 1 << 20


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Examples: roskva status\n\n"
        "roskva status --url http://node-1:7600 --json | jq .shards\n\n"
        f"{EXIT_CODES}"
    )(status)


def status(
    url: UrlOption = DEFAULT_URL,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    key: AdminKeyOption = "",
    json: Annotated[bool, typer.Option("--json", help="As the node says it, in JSON.")] = False,
) -> None:
    """Show a node's processes, sessions, shards and counters, and what its prober measures.

    A shard's lag is what its feed has and its matcher has not taken over yet. Mostly it is 0,
    and after a start or a gap it falls. If a process does not answer, the exit code is 1.
    """
    with sentences(), admin_api(url, tls_of(ca, cert, cert_key), key) as node:
        answer = node.get("/v1/status", msgspec.Raw)
        found = node.decoded(answer, NodeStatus)
    if json:
        print(bytes(answer).decode())
    else:
        show(found, Console(markup=False, highlight=False))
    raise typer.Exit(FAILED if any(process.error for process in found.processes) else 0)


def show(found: NodeStatus, console: Console) -> None:
    up = f", up {duration(time.time() - found.started_at)}" if found.started_at else ""
    console.print(f"roskva {found.version}{up}\n", style="bold")
    console.print(processes(found.processes), "")
    console.print(shards(found.shards))
    if found.pipeline is not None:
        console.print("", *pipeline(found.pipeline))
    if found.probe is not None:
        console.print("", *probe(found.probe))
    if counted := counters(found.processes):
        console.print("", counted)


def processes(found: list[ProcessNow]) -> Table:
    table = _table("process", "role", "pid", "memory", "CPU", *CHANNELS, left=2)
    for process in found:
        if process.error:
            table.add_row(process.name, Text(process.error, style="red"))
            continue
        table.add_row(
            process.name,
            process.role,
            str(process.pid),
            f"{process.rss_bytes / _MIB:,.0f} MiB",
            f"{process.cpu_seconds:,.1f} s",
            *(f"{process.sessions.get(channel, 0):,}" for channel in CHANNELS),
        )
    return table


def shards(found: list[ShardNow]) -> Table:
    table = _table("shard", "process", "epoch", "applied", "feed end", "lag", "objects", "links")
    for shard in sorted(found, key=lambda shard: shard.shard):
        lag = max(0, shard.feed_end - shard.applied)
        table.add_row(
            str(shard.shard),
            shard.process,
            shard.epoch,
            f"{shard.applied:,}",
            f"{shard.feed_end:,}",
            Text(f"{lag:,}", style="yellow" if lag else ""),
            f"{shard.objects:,}",
            f"{shard.links:,}",
        )
    return table


def pipeline(found: PipelineNow) -> list[Text | Table]:
    why = f": {found.why}" if found.why else ""
    used = f", {found.rss_bytes / _MIB:,.0f} MiB, {found.cpu_seconds:,.1f} s" if found.pid else ""
    head = Text(f"pipeline {found.state}{why}{used}", style="red" * (found.state == "failed"))
    table = _table(
        *("pipeline", "state", "batches", "batch", "lag", "behind", "published", "dead", "gaps"),
        left=2,
    )
    for part in found.parts:
        table.add_row(
            part.name,
            Text(part.last_error or part.state, style="red" * (part.state == "failed")),
            f"{part.batches:,}",
            _figure(part.batch_ms, " ms"),
            _figure(part.lag_updates),
            _figure(part.lag_seconds, " s"),
            _figure(part.published),
            _figure(part.dead_letters),
            ", ".join(f"shard {shard}" for shard in part.gaps) or f"{part.gaps_closed:,} closed",
        )
    return [head, table] if found.parts else [head]


def probe(found: ProbeNow) -> list[Text | Table]:
    """What users would see, as the prober of the node measures it."""
    why = f": {found.why}" if found.why else ""
    hurt = any(one.kept is False for one in found.objectives)
    head = Text(f"prober {found.state}{why}. {found.sentence}".strip(), style="red" * hurt)
    table = _table(
        *("measured", "took", "target", "kept", "budget left", "burn 1 h", "burn 24 h"), left=1
    )
    for one in found.objectives:
        kept = "" if one.kept is None else "yes" if one.kept else "no"
        table.add_row(
            one.sli,
            _figure(one.took_ms, " ms"),
            f"{one.target_ms:,} ms",
            Text(kept, style="red" * (one.kept is False)),
            f"{one.budget_left:,.1%}",
            f"{one.burn_1h:,.2f}",
            f"{one.burn_24h:,.2f}",
        )
    return [head, table] if found.objectives else [head]


def _figure(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:,}{unit}"


def counters(found: list[ProcessNow]) -> Table | None:
    """Over all processes; those that stand at nothing are left out."""
    total: Counter[str] = Counter()
    for process in found:
        total.update(process.counters)
    table = _table("counted since the start", "")
    for name, value in sorted(total.items()):
        if value:
            table.add_row(name, f"{value:,.0f}")
    return table if table.row_count else None


def duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(0, seconds):.0f} seconds"


def _table(*columns: str, left: int = 1) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right")
    return table
