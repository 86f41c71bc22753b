"""What is wrong with a node, in words, from what its processes say of themselves."""

from collections.abc import Sequence
from typing import Final

from roskva.server.inside.explaining import span
from roskva.wire.admin import Freshness, Objective, PipelineNow, ProcessNow, ShardNow, Trouble

_LAG_UPDATES: Final = 1000
_LAG_S: Final = 10.0


def troubles(
    processes: Sequence[ProcessNow],
    shards: Sequence[ShardNow],
    freshness: Freshness,
    pipeline: PipelineNow,
    objectives: Sequence[Objective] = (),
) -> list[Trouble]:
    """The worst first."""
    found = [*_processes(processes, shards), *_pipeline(pipeline)]
    found += [_missed(one) for one in objectives if one.kept is False]
    registrars = sum("registrar" in process.role for process in processes)
    for shard in shards:
        found += _shard(shard, registrars)
    if freshness.slow_sessions:
        one = freshness.slow_sessions == 1
        found.append(
            Trouble(
                "warn",
                f"{freshness.slow_sessions:,} {'client does' if one else 'clients do'} not read "
                "what they are sent: they are skipped, and told the newest when they do.",
            )
        )
    return sorted(found, key=lambda trouble: trouble.level != "bad")


def sentence(found: Sequence[Trouble], sessions: int, freshness: Freshness) -> str:
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return found[0].text + more
    if not sessions:
        return "Everything works. Nobody is connected."
    who = f"{sessions:,} {'session' if sessions == 1 else 'sessions'}"
    if freshness.pending:
        return (
            f"Everything works. Of {freshness.registrations:,} registrations in {who}, "
            f"{freshness.pending:,} are told and not acked yet."
        )
    return f"Everything works. All {freshness.registrations:,} registrations in {who} are fresh."


def _processes(processes: Sequence[ProcessNow], shards: Sequence[ShardNow]) -> list[Trouble]:
    found = []
    for process in processes:
        if not process.error:
            continue
        owned = [str(shard.shard) for shard in shards if shard.process == process.name]
        if owned:
            named = f"shard {owned[0]}" if len(owned) == 1 else f"shards {', '.join(owned)}"
            effect = f"{named} take{'s' * (len(owned) == 1)} no updates and cannot tell anybody"
        else:
            effect = "its clients are connecting elsewhere"
        found.append(Trouble("bad", f"{process.name} does not answer: {effect}, until it is back."))
    return found


def _shard(shard: ShardNow, registrars: int) -> list[Trouble]:
    if not shard.answers:
        return []  # its process does not, and that is said
    lag = shard.feed_end - shard.applied
    if not shard.caught_up:
        return [
            Trouble(
                "warn",
                f"Shard {shard.shard} is catching up with its feed, and is silent until then: "
                f"{lag:,} updates to go.",
            )
        ]
    if lag > _LAG_UPDATES:
        return [Trouble("warn", f"Shard {shard.shard} is {lag:,} updates behind its feed.")]
    if shard.links < registrars:
        return [
            Trouble(
                "warn",
                f"Shard {shard.shard} is linked to {shard.links} of {registrars} registrars: "
                "clients of the others wait.",
            )
        ]
    return []


def _pipeline(pipeline: PipelineNow) -> list[Trouble]:
    if pipeline.state == "failed":
        return [Trouble("bad", f"The pipeline has failed: {pipeline.why or 'see its log'}.")]
    found = []
    for part in pipeline.parts:
        name = part.name[:1].upper() + part.name[1:]
        if part.state == "failed":
            found.append(Trouble("bad", f"{name} has failed and is tried again: {part.last_error}"))
        if part.gaps:
            shards = ", ".join(map(str, part.gaps))
            found.append(Trouble("warn", f"The bridge is closing a gap of shard {shards}."))
        elif (part.lag_seconds or 0.0) > _LAG_S:
            behind = f"{span(part.lag_seconds or 0.0)}, {part.lag_updates or 0:,} updates"
            found.append(Trouble("warn", f"{name} is {behind} behind the feed."))
        if part.dead_letters:
            found.append(
                Trouble("warn", f"{name} could not publish {part.dead_letters:,} rows: see why.")
            )
    return found


def _missed(objective: Objective) -> Trouble:
    """One that was only slow may be so once; one that fails, users notice."""
    text = objective.text[:1].upper() + objective.text[1:]
    return Trouble("bad" if objective.took_ms is None else "warn", text)
