"""`roskva status`: what a node says of itself."""

import time
from collections import Counter
from collections.abc import Iterator

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from roskva.cli.node import AdminOptions
from roskva.cli.options import command
from roskva.cli.outcome import FAILED, table_of
from roskva.server.admin.sentences import list_ways, size
from roskva.wire.admin import (
    DiskNow,
    NodeStatus,
    PipelineNow,
    ProbeNow,
    ProcessNow,
    ShardNow,
    SourceNow,
)

CHANNELS = ("websocket", "mqtt", "events", "own")
_MIB = 1 << 20


@command("roskva status", "roskva status --url http://node-1:7600 --json | jq .shards")
def status(node: AdminOptions = AdminOptions()) -> None:
    """Show a node's processes, sessions, shards and counters, and what its prober measures.

    A shard's lag is what its feed has and its matcher has not taken over yet. Mostly it is 0,
    and after a start or a gap it falls. If a process does not answer, the exit code is 1.
    """
    found = node.show("/v1/status", NodeStatus, show)
    raise typer.Exit(FAILED if any(process.error for process in found.processes) else 0)


def show(found: NodeStatus, console: Console) -> None:
    up = f", up {duration(time.time() - found.started_at)}" if found.started_at else ""
    console.print(f"roskva {found.version}{up}\n", style="bold")
    console.print(processes(found.processes), "")
    console.print(shards(found.shards), "", ways(found.shards))
    if found.disk is not None:
        console.print("", disk(found.disk))
    if found.pipeline is not None:
        console.print("", *pipeline(found.pipeline))
    if found.sources:
        console.print("", *sources(found.sources))
    if found.probe is not None:
        console.print("", *probe(found.probe))
    if counted := counters(found.processes):
        console.print("", counted)


def processes(found: list[ProcessNow]) -> Table:
    table = table_of("process", "role", "pid", "memory", "CPU", *CHANNELS, left=2)
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
    table = table_of(
        "shard", "process", "epoch", "applied", "feed end", "lag", "objects", "links", "collected"
    )
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
            f"{shard.collected:,}, at {shard.collector_share:.0%}",
        )
    return table


def ways(found: list[ShardNow]) -> Text:
    total = sum((Counter(shard.ways) for shard in found), Counter[str]())
    text = Text(f"updates came to their shards: {list_ways(total)}")
    if alone := [str(shard.shard) for shard in found if shard.reads_alone]:
        text.append(
            f"\nno bridge brings what is not on the fast path: shard {', '.join(alone)} reads it",
            style="yellow",
        )
    return text


def disk(found: DiskNow) -> Text:
    said = Text(f"disk: {found.sentence}", style="red" * found.refuses)
    parts = ", ".join(f"{name} {size(taken)}" for name, taken in found.parts.items() if taken)
    rows = ", ".join(f"{count:,} {kind}" for kind, count in found.rows.items())
    return said.append(f"\ntaken by {parts}\nstored, estimated: {rows}", style="default")


def pipeline(found: PipelineNow) -> list[Text | Table]:
    why = f": {found.why}" if found.why else ""
    used = f", {found.rss_bytes / _MIB:,.0f} MiB, {found.cpu_seconds:,.1f} s" if found.pid else ""
    head = Text(f"pipeline {found.state}{why}{used}", style="red" * (found.state == "failed"))
    table = table_of(
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


def sources(found: list[SourceNow]) -> list[Text | Table]:
    table = table_of(
        *("source", "state", "changes", "kept", "behind", "direct flow", "told", "doubts"), left=2
    )
    for one in found:
        table.add_row(
            one.name,
            Text(one.why or one.state, style="red" * (one.state == "refused")),
            f"{one.changes:,}, {one.changes_per_second:,.0f}/s",
            _kept(one),
            _figure(one.lag_seconds, " s"),
            f"{one.last - one.flow:,}, {one.flow_lag_seconds:,.0f} s" if one.direct else "off",
            f"{one.published:,}",
            Text(f"{one.doubts:,}", style="yellow" * bool(one.doubts)),
        )
    return [table, *(said for one in found for said in _said_of(one))]


def _kept(one: SourceNow) -> Text:
    if one.lag_bytes is None:
        return Text()
    return Text(size(one.lag_bytes), style="red" * (one.lag_bytes > one.max_lag_bytes))


def _said_of(one: SourceNow) -> Iterator[Text]:
    where = f"up to {one.position}" if one.position else "nothing yet"
    yield Text(f"{one.name}: read {where} for the app {one.app}, ordinal {one.ordinal}")
    for complaint in one.complaints:
        yield Text(f"{one.name}: {complaint}", style="red")
    if one.doubt:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one.doubted_at))
        yield Text(f"{one.name}: the last doubt was at {at}: {one.doubt}")


def probe(found: ProbeNow) -> list[Text | Table]:
    """What users would see, as the prober of the node measures it."""
    why = f": {found.why}" if found.why else ""
    hurt = any(one.kept is False for one in found.objectives)
    head = Text(f"prober {found.state}{why}. {found.sentence}".strip(), style="red" * hurt)
    table = table_of(
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
    table = table_of("counted since the start", "")
    for name, value in sorted(total.items()):
        if value:
            table.add_row(name, f"{value:,.0f}")
    return table if table.row_count else None


def duration(seconds: float) -> str:
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(0, seconds):.0f} seconds"
