"""Why things are as they are, in a sentence: the one place that makes it.

Pure functions over what `gathering.py` has found. The console, the admin API and `roskva explain`
all say what is said here.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from roskva.errors import Fenced, TokenRejected, Unauthorised, Unavailable
from roskva.server.inside.facts import NoteFacts, ObjectFacts
from roskva.server.inside.sessions import BLIND, FRESH, PENDING, SLOW, UNKNOWN
from roskva.wire.admin import ObjectAudit

_LATELY_S: Final = 600.0
_CHASE: Final = 3
"""So many ends by each other within a minute are no coincidence."""


class ClientSituation(msgspec.Struct, frozen=True, kw_only=True):
    now: float
    owner: str
    """The process that keeps its row."""
    owner_answers: bool
    connected: bool
    known: bool
    """It has a row."""
    silent: Sequence[str] = ()
    """Processes with clients that do not answer."""
    away_s: float = 0.0
    channel: str = ""
    opening: bool = False
    slow: bool = False
    quiet_s: float = 0.0
    """Since it was last heard."""
    unsaved: int = 0
    counts: dict[str, int] = {}
    blind_owners: Sequence[str] = ()
    """The processes of the objects whose shards do not answer."""
    notes: Sequence[NoteFacts] = ()


def explain_client(at: ClientSituation) -> str:
    if at.connected:
        said = _online(at)
    elif not at.owner_answers:
        said = (
            f"{at.owner} keeps its row and does not answer, and nobody else has seen it: where it "
            f"stands is not known until {at.owner} is back."
        )
    elif not at.known:
        said = _nobody(at)
    else:
        said = _offline(at)
    return " ".join([said, *_lately(at)])


def _nobody(at: ClientSituation) -> str:
    said = (
        "No client has this id: it never registered for anything, or it was away for so long that "
        "it was forgotten."
    )
    if at.silent:
        said += f" {_names(at.silent)} does not answer, and it may be connected there."
    return said


def _offline(at: ClientSituation) -> str:
    total, due = sum(at.counts.values()), _due(at)
    said = f"Offline for {span(at.away_s)}; "
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
    return said + _blind(at, total)


def _online(at: ClientSituation) -> str:
    total, due = sum(at.counts.values()), _due(at)
    where = f"over {at.channel}" if at.channel else ""
    if at.opening:
        waits = "is reading it" if at.owner_answers else "does not answer"
        return f"Connected {where}, and waiting for its row: {at.owner} keeps it and {waits}."
    if not total:
        return f"Online {where}, and registered for nothing."
    if at.slow:
        said = f"Online {where}, and a slow reader: it does not take what it is sent. "
        if due:
            said += f"{_objects(due)} will be told at the newest version once it reads again."
        else:
            said += "It has not missed anything yet."
        return said + _blind(at, total)
    said = ""
    if at.counts.get(PENDING):
        again = "when it reconnects" if at.channel == "mqtt" else "within a minute"
        said += (
            f"Online {where}, and pending: it was told {_objects(at.counts[PENDING])} of {total} "
            f"and has not acked (last heard {span(at.quiet_s)} ago). What is not acked is told "
            f"again {again}."
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
    return (said or f"Online {where}.") + _blind(at, total)


def _due(at: ClientSituation) -> int:
    return sum(at.counts.get(state, 0) for state in (PENDING, UNKNOWN, SLOW))


def _blind(at: ClientSituation, total: int) -> str:
    blind = at.counts.get(BLIND, 0)
    if not blind:
        return ""
    owners = _names(at.blind_owners) or "their shard"
    return (
        f" What {blind} of its {_objects(total)} stand{'s' if blind == 1 else ''} at is not known: "
        f"{owners} does not answer. It will be compared when {owners} is back, and nothing that "
        "was accepted is lost."
    )


def _lately(at: ClientSituation) -> list[str]:
    """What it was told in the last minutes, in words."""
    recent = [note for note in at.notes if at.now - note.at < _LATELY_S]
    said = []
    fenced = [note for note in recent if note.code == Fenced.code]
    if len([note for note in fenced if at.now - note.at < 60]) >= _CHASE:
        said.append(
            f"Fenced {len(fenced)} times: two programs use its identity and end each other's "
            "sessions."
        )
    elif fenced:
        said.append(
            f"Fenced {span(at.now - fenced[0].at)} ago: an older session was ended, because this "
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


class ObjectSituation(msgspec.Struct, frozen=True, kw_only=True):
    now: float
    owner: str
    shard: int
    stands: ObjectFacts | None
    """None: its owner does not answer."""
    sessions: int = 0
    counts: dict[str, int] = {}
    silent: Sequence[str] = ()
    audit: ObjectAudit | None = None


def explain_object(at: ObjectSituation) -> str:
    said = [_stands(at)]
    if at.stands is not None:
        said.append(_registered(at))
    if at.silent:
        said.append(f"{_names(at.silent)} does not answer: who is connected there is not counted.")
    if at.audit is not None and (total := sum(at.audit.states.values())):
        behind = at.audit.states.get("pending", 0) + at.audit.states.get("stale", 0)
        said.append(
            f"At the last audit, {span(at.now - at.audit.at)} ago, {behind:,} of "
            f"{_many(total, 'client')}, online or not, had yet to hear of it."
        )
    return " ".join(said)


def _stands(at: ObjectSituation) -> str:
    stands = at.stands
    if stands is None:
        told = f"; {_many(at.sessions, 'session')} will be compared then" if at.sessions else ""
        return (
            f"What it stands at is not known: {at.owner}, which keeps shard {at.shard}, does not "
            f"answer. Publishing is refused until it is back{told}. Nothing that was accepted is "
            "lost."
        )
    if not stands.caught_up:
        return f"{at.owner} is catching up with the feed of shard {at.shard}, and says nothing yet."
    if stands.version >= 0:
        return (
            f"Stands at version {stands.version} for {span(at.now - stands.published_at_us / 1e6)}."
        )
    if stands.lower_bound >= 0:
        return (
            f"Its version is unknown: shard {at.shard} has lost something after version "
            f"{stands.lower_bound}. Everybody is told to look, until the next one is published."
        )
    if stands.reset:
        return "It was reset: its version is unknown until the next one is published."
    return "Nothing was published to it yet."


def _registered(at: ObjectSituation) -> str:
    if not at.sessions:
        return "Nobody who is online is registered for it."
    fresh, slow = at.counts.get(FRESH, 0), at.counts.get(SLOW, 0)
    if at.sessions == 1:
        return f"The one session that is registered is {'fresh' if fresh else 'pending'}" + (
            ", a slow reader." if slow else "."
        )
    if fresh == at.sessions:
        return f"All {fresh:,} sessions are fresh."
    said = f"{fresh:,} of {at.sessions:,} sessions are fresh, {at.sessions - fresh:,} pending"
    return said + (f", {slow:,} of them slow readers." if slow else ".")


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
