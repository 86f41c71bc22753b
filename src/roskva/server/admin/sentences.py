"""Why things are as they are, in a sentence: the one place that makes it.

Pure functions over what was found. The console, the admin API and `roskva explain`
all say what is said here.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from roskva.errors import Fenced, TokenRejected, Unauthorised, Unavailable
from roskva.model import MAX_SOURCE_BYTES
from roskva.server.admin.sessions import BLIND, PENDING, SLOW, UNKNOWN
from roskva.wire import admin

_NO_DISK: Final = admin.DiskNow()
_LATELY_S: Final = 600.0
_SOON_S: Final = 86_400.0
_FAR_S: Final = 10 * 365 * 86_400.0
_HELD: Final = 1.25
"""Times its cap: whole files are dropped, so a feed is often a little above it."""
_LAG_UPDATES: Final = 1000
_LAG_S: Final = 10.0
_EARLY: Final = 0.5
"""Of what a database should keep for a source: time to see to it."""
_CHASE: Final = 3
"""So many ends by each other within a minute are no coincidence."""


def explain_client(
    at: admin.ClientNow,
    now: float,
    *,
    owner: str,
    owner_answers: bool = True,
    blind_owners: Sequence[str] = (),
    looked_at: int | None = None,
) -> str:
    """`owner`: the process that keeps its row. `blind_owners`: those of the objects whose shards do
    not answer. `looked_at`: so many rows of those that are away; None: all that matter."""
    blind = _blind(at, blind_owners)
    match at.presence:
        case "online":
            said = _online(at, owner, owner_answers, blind)
        case "offline":
            said = _offline(at, now, blind)
        case "nobody":
            said = _nobody(at, looked_at)
        case "hidden":
            said = (
                f"{owner} keeps its row and does not answer, and nobody else has seen it: where it "
                f"stands is not known until {owner} is back."
            )
    return " ".join([said, *_others(at, looked_at), *_lately(at, now)])


def _nobody(at: admin.ClientNow, looked_at: int | None) -> str:
    if looked_at is None:
        said = (
            "No client has this id: it never registered for anything, or it was away for so long "
            "that it was forgotten."
        )
    else:
        said = (
            f"Nobody who is online has this id, and none of the {looked_at:,} clients whose rows "
            "were looked through; there are more: ask again to go on."
        )
    said += (
        " Clients are found by their own id (32 hexadecimal digits) or by the one that their "
        f"application gave, of at most {MAX_SOURCE_BYTES} bytes: over MQTT the client id. Streams "
        "of events and polls have none."
    )
    if at.silent:
        said += f" {_names(at.silent)} does not answer, and may know it."
    return said


def _others(at: admin.ClientNow, looked_at: int | None) -> Iterator[str]:
    if at.others:
        yield f"Others whose application gave the same id: {', '.join(at.others)}."
    if looked_at is not None and at.presence != "nobody":
        yield f"There may be others: {looked_at:,} rows were looked through, and not all."


def _offline(at: admin.ClientNow, now: float, blind: str) -> str:
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


def _online(at: admin.ClientNow, owner: str, owner_answers: bool, blind: str) -> str:
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


def _due(at: admin.ClientNow) -> int:
    return sum(at.counts.get(state, 0) for state in (PENDING, UNKNOWN, SLOW))


def _blind(at: admin.ClientNow, blind_owners: Sequence[str]) -> str:
    blind, total = at.counts.get(BLIND, 0), sum(at.counts.values())
    if not blind:
        return ""
    owners = _names(blind_owners) or "their shard"
    return (
        f" What {blind} of its {_objects(total)} stand{'s' if blind == 1 else ''} at is not known: "
        f"{owners} does not answer. It will be compared when {owners} is back, and nothing that "
        "was accepted is lost."
    )


def _lately(at: admin.ClientNow, now: float) -> list[str]:
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


def list_ways(ways: Mapping[str, int]) -> str:
    """By which updates came."""
    words = ("fast", "by the fast path"), ("bridge", "by the bridge"), ("own", "by itself")
    said = [f"{ways.get(way, 0):,} {word}" for way, word in words]
    return ", ".join(said) + f" ({ways.get('start', 0):,} when it started)"


def explain_object(at: admin.ObjectNow, now: float) -> str:
    said = [_stands(at, now)]
    if at.origin is not None:
        said.append(_came_from(at, at.origin))
    if at.answers and not at.fast_path:
        said.append(
            f"Its app is off the fast path, and no bridge brings its updates: shard {at.shard} "
            "reads them from its feed by itself, about once a second."
            if at.reads_alone
            else "Its app is off the fast path: its updates are left to the bridge."
        )
    if at.answers:
        said.append(_registered(at))
    if at.silent:
        said.append(f"{_names(at.silent)} does not answer: who is connected there is not counted.")
    if at.audit is not None and (total := sum(at.audit.states.values())):
        behind = sum(at.audit.states.get(state, 0) for state in (PENDING, SLOW, "stale"))
        said.append(
            f"At the last audit, {span(now - at.audit.at)} ago, {behind:,} of "
            f"{_many(total, 'client')}, online or not, had yet to hear of it."
        )
    return " ".join(said)


def _stands(at: admin.ObjectNow, now: float) -> str:
    if not at.answers:
        told = f"; {_many(at.sessions, 'session')} will be compared then" if at.sessions else ""
        return (
            f"What it stands at is not known: {at.process}, which keeps shard {at.shard}, does not "
            f"answer. Publishes wait for it, for some seconds, and are refused then{told}. Nothing "
            "that was accepted is lost."
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


_DONE: Final = {"insert": "inserted", "update": "updated", "delete": "deleted"}


def _came_from(at: admin.ObjectNow, origin: admin.OriginNow) -> str:
    if origin.why:
        return f"Which transaction of {origin.source} it came from cannot be said: {origin.why}."
    key = f"{at.app}/{at.name}"
    what = "it" if origin.object == key else f"the row {origin.object}"
    return f"Transaction {origin.transaction} of {origin.source} has {_DONE[origin.op]} {what}."


def _registered(at: admin.ObjectNow) -> str:
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


# One app.


def explain_app(at: admin.AppNow) -> str:
    if at.generation == "0" and not at.silent:
        return "It was never reset."
    said = f"Generation {at.generation} is in {at.have} of {_many(at.shards, 'shard')}."
    if at.silent:
        many = len(at.silent) > 1
        numbers = _names([str(shard) for shard in at.silent])
        said += f" Shard{'s' * many} {numbers} do{'es' * (not many)} not answer: ask again."
    return said


# The node.

_bad = partial(admin.NodeTrouble, "bad")
_warn = partial(admin.NodeTrouble, "warn")
_note = partial(admin.NodeTrouble, "note")
_LEVELS: Final = ("bad", "warn", "note")


def find_troubles(
    processes: Sequence[admin.ProcessNow],
    shards: Sequence[admin.ShardNow],
    freshness: admin.Freshness,
    pipeline: admin.PipelineNow,
    objectives: Sequence[admin.Objective] = (),
    disk: admin.DiskNow = _NO_DISK,
    sources: Sequence[admin.SourceNow] = (),
) -> list[admin.NodeTrouble]:
    """The worst first."""
    found = [*_processes(processes, shards), *_pipeline(pipeline), *_disk(disk)]
    found += [trouble for source in sources for trouble in _source(source)]
    found += [_missed(one) for one in objectives if one.kept is False]
    registrars = sum("registrar" in process.role for process in processes)
    for shard in shards:
        found += _shard(shard, registrars)
        if shard.reads_alone and pipeline.state == "running":
            found.append(
                _warn(
                    f"Shard {shard.shard} reads its feed by itself: the bridge has not brought "
                    "what was left to it."
                )
            )
    found += _resets(shards, {source.app for source in sources})
    if freshness.slow_sessions:
        found.append(_slow(freshness.slow_sessions))
    return sorted(found, key=lambda trouble: _LEVELS.index(trouble.level))


def _disk(disk: admin.DiskNow) -> Iterator[admin.NodeTrouble]:
    if disk.refuses:
        yield _bad(
            f"The disk is almost full: nothing is published until more than {size(disk.floor)} of "
            f"it are free, and {size(disk.free)} are."
        )
    elif disk.floor_in_s is not None and disk.floor_in_s < _SOON_S:
        yield _warn(
            f"The disk fills up: at the rate of the last hour nothing is published any more in "
            f"{span(disk.floor_in_s)}."
        )
    feeds = disk.parts.get("feed", 0)
    if disk.feed_cap is not None and feeds > _HELD * disk.feed_cap:
        yield _warn(
            f"The feeds take {size(feeds)} and should take {size(disk.feed_cap)}: a reader that "
            "does not come on still needs them."
        )


def explain_disk(at: admin.DiskNow) -> str:
    """How much is left, and which limits are ahead."""
    said = f"{size(at.free)} of {size(at.total)} are free."
    feeds = at.parts.get("feed", 0)
    if at.feed_cap is None:
        said += f" The feeds take {size(feeds)}."
    elif feeds >= at.feed_cap:
        said += f" The feeds have reached their cap of {size(at.feed_cap)}: the oldest updates go."
    else:
        said += f" The feeds take {size(feeds)} of their cap of {size(at.feed_cap)}"
        said += _ahead(at.feed_cap_in_s, "reach it") + "."
    if at.refuses:
        return f"{said} Nothing is published until {size(at.floor)} are free."
    ahead = _ahead(at.floor_in_s, "it is so")
    return f"{said} With less than {size(at.floor)} nothing is published{ahead}."


def _ahead(seconds: float | None, what: str) -> str:
    if seconds is None or seconds > _FAR_S:
        return ""
    return f", and at the rate of the last hour {what} in {span(seconds)}"


def _slow(clients: int) -> admin.NodeTrouble:
    if clients == 1:
        said = "1 client does not read what it is sent: it is skipped, and told the newest when it"
        return _note(f"{said} does.")
    return _note(
        f"{clients:,} clients do not read what they are sent: they are skipped, and told the "
        "newest when they do."
    )


def explain_node(
    found: Sequence[admin.NodeTrouble], sessions: int, freshness: admin.Freshness
) -> str:
    """First of the service, then of single clients."""
    wrong = [trouble.text for trouble in found if trouble.level != "note"]
    notes = [trouble.text for trouble in found if trouble.level == "note"]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        return " ".join([wrong[0] + more, *notes])
    return " ".join(["Everything works.", _well(sessions, freshness), *notes])


def _well(sessions: int, freshness: admin.Freshness) -> str:
    if not sessions:
        return "Nobody is connected."
    who = _many(sessions, "session")
    if waiting := freshness.pending - freshness.slow:
        return (
            f"Of {freshness.registrations:,} registrations in {who}, {waiting:,} are told and not "
            "acked yet."
        )
    if freshness.slow:
        return (
            f"Of {freshness.registrations:,} registrations in {who}, {freshness.fresh:,} are fresh."
        )
    return f"All {freshness.registrations:,} registrations in {who} are fresh."


def _processes(
    processes: Sequence[admin.ProcessNow], shards: Sequence[admin.ShardNow]
) -> Iterator[admin.NodeTrouble]:
    for process in processes:
        if not process.error:
            continue
        owned = [str(shard.shard) for shard in shards if shard.process == process.name]
        effect = "its clients are connecting elsewhere"
        if owned:
            named = f"shard{'s' * (len(owned) > 1)} {', '.join(owned)}"
            effect = f"updates for {named} wait, and nobody is told of them"
        yield _bad(f"{process.name} does not answer: {effect}, until it is back.")


def _shard(shard: admin.ShardNow, registrars: int) -> Iterator[admin.NodeTrouble]:
    if not shard.answers:
        return  # its process does not, and that is said
    lag = shard.feed_end - shard.applied
    if not shard.caught_up and lag <= 0:
        yield _bad(
            f"Shard {shard.shard} has lost a part of its feed, and is silent until a new epoch is "
            "in it: is its disk full?"
        )
    elif not shard.caught_up:
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


def _resets(
    shards: Sequence[admin.ShardNow], of_sources: Collection[str]
) -> Iterator[admin.NodeTrouble]:
    answering = [shard for shard in shards if shard.answers]
    for app in sorted({app for shard in answering for app in shard.generations}):
        generations = [shard.generations.get(app, 0) for shard in answering]
        have = generations.count(max(generations))
        if have < len(generations):
            again = f"run `roskva reset --app {app}` again"
            if app in of_sources:
                again = "its source asks the others again"
            yield _warn(f"The reset of {app} is in {have} of {len(generations)} shards: {again}.")


def _pipeline(pipeline: admin.PipelineNow) -> Iterator[admin.NodeTrouble]:
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
            what = f"the changes of {part.source}" if part.source else "the feed"
            yield _warn(f"{name} is {behind} behind {what}.")
        if part.dead_letters:
            yield _warn(f"{name} could not publish {part.dead_letters:,} rows: see why.")


def _source(source: admin.SourceNow) -> Iterator[admin.NodeTrouble]:
    name = f"The source {source.name}"
    if source.state == "refused":
        yield _bad(f"{name} does not read: {source.why}")
    elif source.why:
        yield _warn(f"{name} does not read: {source.why}")
    for complaint in source.complaints:
        yield _bad(f"{name} passes changes over until this is mended: {complaint}.")
    if source.invisible:
        yield _bad(
            f"{name} waits: a transaction is committed, and nobody can see it. Is a synchronous "
            "standby away?"
        )
    if (source.lag_bytes or 0) > _EARLY * source.max_lag_bytes > 0:
        tell = _bad if (source.lag_bytes or 0) > source.max_lag_bytes else _warn
        yield tell(
            f"The database of {source.name} keeps {size(source.lag_bytes or 0)} of its log for it: "
            "if that is more than it may keep, changes are lost."
        )
    if source.direct and source.flow_lag_seconds > _LAG_S:
        behind = f"{span(source.flow_lag_seconds)}, {_many(source.last - source.flow, 'change')}"
        yield _warn(f"The direct flow of {source.name} is {behind} behind what was read.")
    ago = source.written_at - source.doubted_at
    if source.doubt and source.doubt_cause != "attached" and ago < _SOON_S:
        yield _note(
            f"{span(ago)} ago {name[:1].lower()}{name[1:]} could not vouch for all changes, and "
            f"clients of {source.app} were told to look: {source.doubt}."
        )


def _missed(objective: admin.Objective) -> admin.NodeTrouble:
    """One that was only slow may be so once; one that fails, users notice."""
    text = objective.text[:1].upper() + objective.text[1:]
    return _bad(text) if objective.took_ms is None else _warn(text)


# Words.


def size(count: int) -> str:
    for unit, bytes in (("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= bytes:
            return f"{count / bytes:,.1f} {unit}"
    return f"{count / 1024:,.0f} KiB"


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
