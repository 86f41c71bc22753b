"""What the jobs found, as tables on the terminal."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

from roskva.cli.outcome import table_of

if TYPE_CHECKING:
    from roskva.pipeline.jobs.audit import Audit
    from roskva.pipeline.jobs.gc import Collected
    from roskva.pipeline.jobs.latency import Latency
    from roskva.pipeline.jobs.plan import Plan
    from roskva.pipeline.jobs.replay import Replayed

_MIB: Final = 1 << 20
console = Console(markup=False, highlight=False)


def show_audit(found: "Audit") -> None:
    table = table_of("state", "registrations", "")
    for state, count in found.states.items():
        share = f"{count / max(1, found.registrations):.2%}"
        table.add_row(state, f"{count:,}", share)
    table.add_row("all", f"{found.registrations:,}", f"for {found.objects:,} objects")
    console.print(table)
    if found.worst:
        console.print(f"\nPending since {_moment(found.pending_since)}; most of it for:")
        table = table_of("object", "due", "of", "published")
        for worst in found.worst:
            row = (worst.object, f"{worst.due:,}", f"{worst.registrations:,}")
            table.add_row(*row, _moment(worst.since))
        console.print(table)
    for key, client in found.stale:
        console.print(f"stale: {key} at client {client}", style="red")
    repaired = f", {found.repaired:,} repaired" if found.repaired else ""
    stale = found.states["stale"]
    console.print(f"\n{stale:,} stale{repaired}", style="bold red" if stale else "bold green")


def show_gc(found: "Collected") -> None:
    table = table_of("clients", "", "")
    table.add_row("all", f"{found.clients:,}", "")
    table.add_row("away for long", f"{found.away:,}", f"since {_moment(found.seen_at)}")
    table.add_row("rows of nobody", f"{found.orphaned:,}", "")
    console.print(table)
    if found.forgotten is None:
        doomed = found.away + found.orphaned
        words = f"{doomed:,} would be forgotten, with {found.registrations:,} registrations"
    else:
        kept = found.away + found.orphaned - found.forgotten
        words = f"{found.forgotten:,} forgotten"
        words += f", {kept:,} kept: they were back" if kept else ""
    console.print(f"\n{words}", style="bold")


def show_latency(made: Sequence[Path], found: "Latency") -> None:
    table = table_of("milliseconds", "mean", "p50", "p90", "p99", "p99.9", "share")
    for stage in found.stages:
        times = (stage.mean, *stage.percentiles)
        table.add_row(stage.stage, *(f"{time:,.2f}" for time in times), f"{stage.share:.0%}")
    for name, whole in (("publish to sent", found.sent), ("publish to ack", found.acked)):
        times = (whole.mean, *whole.percentiles)
        share = f"{whole.mean / found.acked.mean:.0%}" if found.acked.mean else ""
        table.add_row(name, *(f"{time:,.2f}" for time in times), share, style="bold")
    console.print(table)
    console.print(
        f"\n{found.deliveries:,} deliveries of {found.updates:,} updates, "
        f"{_moment(found.first)} to {_moment(found.last)}; "
        f"the longest took {found.acked.longest:,.1f} ms"
    )
    console.print(f"drawn: {', '.join(map(str, made))}")


def show_replay(shard: int, found: "Replayed") -> None:
    console.print(
        f"shard {shard}: {found.objects:,} objects up to offset {found.last:,}; the versions of "
        f"{found.known:,} are known",
        style="bold",
    )
    if found.lost_up_to:
        console.print(f"the feed does not reach back, or is damaged, up to {found.lost_up_to:,}")
    console.print(f"epoch {found.epoch} begins: start the node")


def show_plan(found: "Plan") -> None:
    console.print(
        f"{found.clients:,} clients, {found.registrations:,} registrations for "
        f"{found.objects:,} objects, {found.updates_per_second:,.1f} updates/s\n",
        style="bold",
    )
    columns = ("sessions", "registrations", "objects", "sent/s", "cores", "memory")
    table = table_of("process", *columns)
    for load in found.processes:
        table.add_row(
            load.process,
            f"{load.sessions:,}" if load.sessions else "",
            f"{load.registrations:,}" if load.registrations else "",
            f"{load.objects:,}",
            f"{load.per_second:,.0f}",
            f"{load.busy:.2f}",
            f"{load.bytes / _MIB:,.0f} MiB",
        )
    console.print(table, "")
    table = table_of("clients", "registrars", "matchers", "memory")
    for factor, registrars, matchers, memory in found.growth:
        size = f"{memory / _MIB:,.0f} MiB"
        table.add_row(f"{factor * found.clients:,}", f"{registrars:,}", f"{matchers:,}", size)
    console.print(table)


def _moment(time: datetime | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S") if time is not None else "–"
