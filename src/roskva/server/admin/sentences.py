"""Why things are as they are, in a sentence: the one place that makes it.

Pure functions over what was found. The console, the admin API and `roskva explain`
all say what is said here.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from roskva.errors import Fenced, TokenRejected, Unauthorised, Unavailable
from roskva.server.admin.sessions import BLIND, PENDING, SLOW, UNKNOWN
from roskva.wire.admin import (
    ClientNow,
    Freshness,
    NodeTrouble,
    Objective,
    ObjectNow,
    PipelineNow,
    ProcessNow,
    ShardNow,
)

_LATELY_S: Final = 600.0
_LAG_UPDATES: Final = 1000
_LAG_S: Final = 10.0
_CHASE: Final = 3
"""So many ends by each other within a minute are no coincidence."""


def explain_client(
    at: ClientNow,
    now: float,
    *,
    owner: str,
    owner_answers: bool = True,
    blind_owners: Sequence[str] = (),
) -> str:
    """`owner`: the process that keeps its row. `blind_owners`: those of the objects whose shards do
    not answer."""
    blind = _blind(at, blind_owners)
    match at.presence:
        case "online":
            said = _online(at, owner, owner_answers, blind)
        case "offline":
            said = _offline(at, now, blind)
        case "nobody":
            said = _nobody(at)
        case "hidden":
            said = (
                f"{owner} keeps its row and does not answer, and nobody else has seen it: where it "
                f"stands is not known until {owner} is back."
            )
    return " ".join([said, *_lately(at, now)])


def _nobody(at: ClientNow) -> str:
    said = (
        "No client has this id: it never registered for anything, or it was away for so long that "
        "it was forgotten."
    )
    if at.silent:
        said += f" {_names(at.silent)} does not answer, and it may be connected there."
    return said


def _offline(at: ClientNow, now: float, blind: str) -> str:
    total, due = sum(at.counts.values()), _due(at)
    away_s = 0.0 if at.seen_at is None else now - at.seen_at
    said = f"Offline for {span(away_s)}; "
    if not total:
        return said + "registered for nothing."
    if due:
        said += f"will be told {_objects(due)} when it returns"
        unknown = at.counts.get(UNKNOWN, 0)
        if unknown:
            said += f", {'all' if unknown == due else unknown} of them as unknown"
        said += "."
    elif not at.counts.get(BLIND):
        said += f"it has acked the latest of {_all(total)}, and has nothing to be told."
    else:
        said += "nothing else is due that can be seen."
    return said + blind


def _online(at: ClientNow, owner: str, owner_answers: bool, blind: str) -> str:
    total, due = sum(at.counts.values()), _due(at)
    where = f"over {at.channel}" if at.channel else ""
    if at.opening:
        waits = "is reading it" if owner_answers else "does not answer"
        return f"Connected {where}, and waiting for its row: {owner} keeps it and {waits}."
    if not total:
        return f"Online {where}, and registered for nothing."
    if at.slow:
        said = f"Online {where}, and a slow reader: it does not take what it is sent. "
        if due:
            said += f"{_objects(due)} will be told at the newest version once it reads again."
        else:
            said += "It has not missed anything yet."
        return said + blind
    said = ""
    if at.counts.get(PENDING):
        again = "when it reconnects" if at.channel == "mqtt" else "within a minute"
        said += (
            f"Online {where}, and pending: it was told {_objects(at.counts[PENDING])} of {total} "
            f"and has not acked (last heard {span(at.silent_seconds or 0.0)} ago). What is not "
            f"acked is told again {again}."
        )
    if at.counts.get(UNKNOWN):
        said = said or f"Online {where}."
        said += (
            f" Of {_objects(at.counts[UNKNOWN])} the version is unknown: it was told to look, and "
            "has not said that it did."
        )
    if not said and not at.counts.get(BLIND):
        said = f"Fresh: online {where}, and has acked the latest of {_all(total)}."
    if at.unsaved:
        written = "is" if at.unsaved == 1 else "are"
        said += f" {_many(at.unsaved, 'registration')} {written} on the way to its row."
    return (said or f"Online {where}.") + blind


def _due(at: ClientNow) -> int:
    return sum(at.counts.get(state, 0) for state in (PENDING, UNKNOWN, SLOW))


def _blind(at: ClientNow, blind_owners: Sequence[str]) -> str:
    blind, total = at.counts.get(BLIND, 0), sum(at.counts.values())
    if not blind:
        return ""
    owners = _names(blind_owners) or "their shard"
    return (
        f" What {blind} of its {_objects(total)} stand{'s' if blind == 1 else ''} at is not known: "
        f"{owners} does not answer. It will be compared when {owners} is back, and nothing that "
        "was accepted is lost."
    )


def _lately(at: ClientNow, now: float) -> list[str]:
    """What it was told in the last minutes, in words."""
    recent = [note for note in at.notes if now - note.at < _LATELY_S]
    said = []
    fenced = [note for note in recent if note.code == Fenced.code]
    if len([note for note in fenced if now - note.at < 60]) >= _CHASE:
        said.append(
            f"Fenced {len(fenced)} times: two programs use its identity and end each other's "
            "sessions."
        )
    elif fenced:
        said.append(
            f"Fenced {span(now - fenced[0].at)} ago: an older session was ended, because this "
            "client connected again with the same identity."
        )
    refused = list(dict.fromkeys(n.object for n in recent if n.code == Unauthorised.code))
    if any(refused):
        named = _names([key for key in refused if key][:3])
        more = f" and {len(refused) - 3} more" if len(refused) > 3 else ""
        said.append(f"Unauthorised: it may not register for {named}{more}, and is not told of it.")
    elif refused:
        said.append("Unauthorised: its credential was not accepted.")
    undecided = {n.object for n in recent if n.code == Unavailable.code and n.object}
    if undecided:
        said.append(f"The app's backend could not be asked about {_objects(len(undecided))}.")
    if any(note.code == TokenRejected.code for note in recent):
        said.append("Its token was rejected: it has to come back with a new credential.")
    return said


def explain_object(at: ObjectNow, now: float) -> str:
    said = [_stands(at, now)]
    if at.answers:
        said.append(_registered(at))
    if at.silent:
        said.append(f"{_names(at.silent)} does not answer: who is connected there is not counted.")
    if at.audit is not None and (total := sum(at.audit.states.values())):
        behind = at.audit.states.get("pending", 0) + at.audit.states.get("stale", 0)
        said.append(
            f"At the last audit, {span(now - at.audit.at)} ago, {behind:,} of "
            f"{_many(total, 'client')}, online or not, had yet to hear of it."
        )
    return " ".join(said)


def _stands(at: ObjectNow, now: float) -> str:
    if not at.answers:
        told = f"; {_many(at.sessions, 'session')} will be compared then" if at.sessions else ""
        return (
            f"What it stands at is not known: {at.process}, which keeps shard {at.shard}, does not "
            f"answer. Publishing is refused until it is back{told}. Nothing that was accepted is "
            "lost."
        )
    if not at.caught_up:
        return (
            f"{at.process} is catching up with the feed of shard {at.shard}, and says nothing yet."
        )
    if at.version is not None:
        return f"Stands at version {at.version} for {span(now - (at.published_at or 0.0))}."
    if at.lower_bound is not None:
        return (
            f"Its version is unknown: shard {at.shard} has lost something after version "
            f"{at.lower_bound}. Everybody is told to look, until the next one is published."
        )
    if at.reset:
        return "It was reset: its version is unknown until the next one is published."
    return "Nothing was published to it yet."


def _registered(at: ObjectNow) -> str:
    if not at.sessions:
        return "Nobody who is online is registered for it."
    fresh, slow = at.fresh, at.slow
    if at.sessions == 1:
        return f"The one session that is registered is {'fresh' if fresh else 'pending'}" + (
            ", a slow reader." if slow else "."
        )
    if fresh == at.sessions:
        return f"All {fresh:,} sessions are fresh."
    said = f"{fresh:,} of {at.sessions:,} sessions are fresh, {at.sessions - fresh:,} pending"
    return said + (f", {slow:,} of them slow readers." if slow else ".")


# The node.

_bad = partial(NodeTrouble, "bad")
_warn = partial(NodeTrouble, "warn")


def find_troubles(
    processes: Sequence[ProcessNow],
    shards: Sequence[ShardNow],
    freshness: Freshness,
    pipeline: PipelineNow,
    objectives: Sequence[Objective] = (),
) -> list[NodeTrouble]:
    """The worst first."""
    found = [*_processes(processes, shards), *_pipeline(pipeline)]
    found += [_missed(one) for one in objectives if one.kept is False]
    registrars = sum("registrar" in process.role for process in processes)
    for shard in shards:
        found += _shard(shard, registrars)
    if freshness.slow_sessions:
        found.append(
            _warn(
                f"{_many(freshness.slow_sessions, 'client')} "
                f"{'does' if freshness.slow_sessions == 1 else 'do'} not read what they are sent: "
                "they are skipped, and told the newest when they do."
            )
        )
    return sorted(found, key=lambda trouble: trouble.level != "bad")


def explain_node(found: Sequence[NodeTrouble], sessions: int, freshness: Freshness) -> str:
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return found[0].text + more
    if not sessions:
        return "Everything works. Nobody is connected."
    who = _many(sessions, "session")
    if freshness.pending:
        return (
            f"Everything works. Of {freshness.registrations:,} registrations in {who}, "
            f"{freshness.pending:,} are told and not acked yet."
        )
    return f"Everything works. All {freshness.registrations:,} registrations in {who} are fresh."


def _processes(
    processes: Sequence[ProcessNow], shards: Sequence[ShardNow]
) -> Iterator[NodeTrouble]:
    for process in processes:
        if not process.error:
            continue
        owned = [str(shard.shard) for shard in shards if shard.process == process.name]
        effect = "its clients are connecting elsewhere"
        if owned:
            named = f"shard{'s' * (len(owned) > 1)} {', '.join(owned)}"
            effect = f"{named} take{'s' * (len(owned) == 1)} no updates and cannot tell anybody"
        yield _bad(f"{process.name} does not answer: {effect}, until it is back.")


def _shard(shard: ShardNow, registrars: int) -> Iterator[NodeTrouble]:
    if not shard.answers:
        return  # its process does not, and that is said
    lag = shard.feed_end - shard.applied
    if not shard.caught_up:
        yield _warn(
            f"Shard {shard.shard} is catching up with its feed, and is silent until then: "
            f"{lag:,} updates to go."
        )
    elif lag > _LAG_UPDATES:
        yield _warn(f"Shard {shard.shard} is {lag:,} updates behind its feed.")
    elif shard.links < registrars:
        yield _warn(
            f"Shard {shard.shard} is linked to {shard.links} of {registrars} registrars: "
            "clients of the others wait."
        )


def _pipeline(pipeline: PipelineNow) -> Iterator[NodeTrouble]:
    if pipeline.state == "failed":
        yield _bad(f"The pipeline has failed: {pipeline.why or 'see its log'}.")
        return
    for part in pipeline.parts:
        name = part.name[:1].upper() + part.name[1:]
        if part.state == "failed":
            yield _bad(f"{name} has failed and is tried again: {part.last_error}")
        if part.gaps:
            shards = ", ".join(map(str, part.gaps))
            yield _warn(f"The bridge is closing a gap of shard {shards}.")
        elif (part.lag_seconds or 0.0) > _LAG_S:
            behind = f"{span(part.lag_seconds or 0.0)}, {part.lag_updates or 0:,} updates"
            yield _warn(f"{name} is {behind} behind the feed.")
        if part.dead_letters:
            yield _warn(f"{name} could not publish {part.dead_letters:,} rows: see why.")


def _missed(objective: Objective) -> NodeTrouble:
    """One that was only slow may be so once; one that fails, users notice."""
    text = objective.text[:1].upper() + objective.text[1:]
    return _bad(text) if objective.took_ms is None else _warn(text)


# Words.


def span(seconds: float) -> str:
    for unit, length in (("days", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s" if seconds >= 1 else "less than 1 s"


def _many(count: int, word: str) -> str:
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def _objects(count: int) -> str:
    return _many(count, "object")


def _all(count: int) -> str:
    return "its object" if count == 1 else f"all {_objects(count)}"


def _names(names: Sequence[str]) -> str:
    *most, last = list(names) or [""]
    return f"{', '.join(most)} and {last}" if most else last
