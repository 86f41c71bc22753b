"""`make demo`: what Roskva promises, shown on simulated clusters in under a minute."""

import msgspec
from rich.console import Console

from roskva.simulation.campaign import run_seeds
from roskva.simulation.mutants import MUTANTS, hunt
from roskva.simulation.tape import Fault, Tape, tape_of
from roskva.simulation.world import World

SEEDS = 12
PLANTED = "fencing by last write"
SAID = {
    "crash_registrar": "[red]✗ a registrar process dies[/] (it kept the clients' connections)",
    "crash_shard": "[red]✗ the state process dies[/] (it kept versions, rows and the feed)",
    "crash_client": "[red]✗ a client dies[/], and comes back with its identity and its cache",
    "lose_disk": "[red]✗ the whole disk is lost[/]: every version, every registration, the feed",
}


def demo(console: Console, workers: int) -> int:
    console.print(
        "\n[bold]Roskva tells clients that what they cache has changed:[/] “the latest version is "
        "now N”. It keeps no queues. A client that was away is told once per changed object; one "
        "that may have missed something is told [italic]unknown[/]: go and look. What you see now "
        "runs on the code that will serve, in virtual time, on simulated machines.\n"
    )
    held = _story(console)
    console.print(f"\n[bold]{SEEDS} clusters, each with dozens of random faults[/] (see --help):")
    with console.status("about ten seconds …"):
        summary = run_seeds(range(SEEDS), workers)
    console.print(
        f"  {summary.simulated_hours:.1f} simulated hours in {summary.wall_seconds:.0f} s, "
        f"{summary.notifications:,} notifications, "
        f"[bold]{len(summary.violations)} broken promises[/]"
    )
    console.print(f"\n[bold]Would it notice?[/] One line of the code is changed: “{PLANTED}”.")
    with console.status("hunting …"):
        found = hunt(next(mutant for mutant in MUTANTS if mutant.name == PLANTED))
    console.print(f"  caught in cluster {found.seed}: {found.violation}")
    console.print("\nNext: [bold].venv/bin/roskva --help[/], README.md, docs/simulation.md\n")
    return 0 if held and not summary.violations and found.seed is not None else 1


def _story(console: Console) -> bool:
    world = World(_tape())
    world.oracle.trace = []
    report = world.run()
    console.print("[bold]Two clients, two registrars, one shard, one object[/]")
    for line in world.oracle.trace:
        sentence = _sentence(line)
        if sentence and float(line.split()[0]) < world.swarm.fault_time:
            console.print(f"  {float(line.split()[0]):6.1f} s  {sentence}")
    verdict = report.violation or "every client knows the latest version; nobody was told twice"
    console.print(f"  … the faults stop: [bold]{verdict}[/]")
    return report.violation is None


def _tape() -> Tape:
    """Quiet by nature; the four faults are the story."""
    calm = msgspec.structs.replace(
        tape_of(1).swarm,
        clients=2,
        mqtt_clients=0,
        registrars=2,
        shards=1,
        objects=1,
        registrations=1,
        publish_interval=6.0,
        latency=0.001,
        app_delay=0.01,
        sources=False,
        fast_path=True,
        bridge_interval=0.0,
        drift=0.0,
        heartbeat=5.0,
        scan_interval=8.0,
        answer_timeout=2.0,
        feed_tick=1.0,
        handshakes_per_10s=1000,
        fault_time=60.0,
    )
    kinds = ("crash_registrar", "crash_shard", "crash_client", "lose_disk")
    faults = [Fault(12.0 * (i + 1), kind, 3.0, 0, 0.5) for i, kind in enumerate(kinds)]
    return Tape(4, calm, faults)


def _sentence(line: str) -> str | None:
    match line.split()[1:]:
        case ["fault", kind]:
            return SAID[kind]
        case ["published", _, version]:
            return f"[cyan]the backend publishes version {version}[/]"
        case [client, "told", _, "None"]:
            return f"[yellow]{client} is told: unknown, go and look[/]"
        case [client, "told", _, version]:
            return f"[green]{client} is told: version {version}[/]"
        case [client, "registered", _]:
            return f"{client} is registered"
    return None
