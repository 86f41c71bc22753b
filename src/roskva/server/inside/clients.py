"""One client, online or away, as its row's owner and those who have clients see it."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence

from roskva.channels.mqtt.terms import row_id
from roskva.core.freshness import Due, due
from roskva.model import NOBODY, Key
from roskva.server.inside.asking import Processes
from roskva.server.inside.explaining import ClientSituation, explain_client
from roskva.server.inside.facts import (
    Compared,
    FrontClient,
    Held,
    NoteFacts,
    ObjectFacts,
    RowFacts,
    RowSeen,
    SessionFacts,
    Stands,
    as_text,
)
from roskva.server.inside.sessions import BLIND, FRESH, LISTED, PENDING, UNKNOWN
from roskva.server.inside.stored import client_id
from roskva.wire.admin import ClientNow, NoteNow, RegistrationNow
from roskva.wire.links import MAX_LINK_PARTS, Ask


async def look_at_client(processes: Processes, wanted: str) -> ClientNow:
    """By its id in hexadecimal digits; by its application id while it is online; or by its MQTT
    client id, if that alone names it."""
    told = await asyncio.gather(
        *(
            processes.ask(process, Ask("client", name=wanted), FrontClient)
            for process in processes.fronts
        )
    )
    silent = [p.name for p, facts in zip(processes.fronts, told, strict=True) if facts is None]
    seen = [facts for facts in told if facts is not None]
    sessions = [session for facts in seen for session in facts.sessions]
    notes = [note for facts in seen for note in facts.notes]
    newest = max(sessions, key=lambda session: session.number, default=None)
    named = client_id(wanted)
    if newest is not None:
        named = bytes.fromhex(newest.client)
    elif named is None and notes:
        named = bytes.fromhex(notes[0].client)
    by_mqtt = row_id(NOBODY, wanted)
    for client in (by_mqtt,) if named is None else (named, by_mqtt):
        shard = processes.shard_of(client)
        kept = await processes.ask(
            processes.owners[shard], Ask("row", shard, client.hex()), RowSeen
        )
        if kept is None or kept.row is not None or newest is not None:
            break
    else:
        client = by_mqtt if named is None else named
    row = None if kept is None else kept.row
    return await _client(processes, client, newest, kept is not None, row, notes, silent)


async def _client(
    processes: Processes,
    client: bytes,
    session: SessionFacts | None,
    owner_answers: bool,
    row: RowFacts | None,
    notes: Sequence[NoteFacts],
    silent: list[str],
) -> ClientNow:
    now = time.time()
    if session is not None and session.open:
        counts, compared = session.counts, session.registrations
    else:
        counts, compared = await _compare(processes, row.registered if row else [])
    blind = {processes.owner(one.object).name for one in compared if one.state == BLIND}
    seen_at = None if row is None else row.seen_at_us / 1e6
    notes = sorted(notes, key=lambda note: -note.at)
    situation = ClientSituation(
        now=now,
        owner=processes.owner(client).name,
        owner_answers=owner_answers,
        connected=session is not None,
        known=row is not None,
        silent=silent,
        away_s=0.0 if seen_at is None else now - seen_at,
        channel="" if session is None else session.channel,
        opening=session is not None and not session.open,
        slow=session is not None and session.slow,
        quiet_s=0.0 if session is None else session.silent_s,
        unsaved=0 if session is None else session.unsaved,
        counts=counts,
        blind_owners=sorted(blind),
        notes=notes,
    )
    presence = "online" if session else "offline" if row else "nobody"
    if session is None and not owner_answers:
        presence = "hidden"
    return ClientNow(
        client=client.hex(),
        sentence=explain_client(situation),
        presence=presence,  # type: ignore[arg-type]  # one of its words
        application=session.application if session else row.application if row else "",
        principal="" if session is None else session.principal,
        channel="" if session is None else session.channel,
        process="" if session is None else session.process,
        session=str(session.number) if session else str(row.session) if row else "",
        silent_seconds=None if session is None else session.silent_s,
        created_at=None if row is None else row.created_at_us / 1e6,
        seen_at=seen_at,
        counts=counts,
        registrations=[
            RegistrationNow(
                one.object,
                one.state,  # type: ignore[arg-type]  # one of its words
                as_text(one.acked),
                None if one.version is None else as_text(one.version),
            )
            for one in compared
        ],
        notes=[NoteNow(note.at, note.code, note.object, note.process) for note in notes[:20]],
        silent=silent,
    )


async def _compare(
    processes: Processes, held: Sequence[Held]
) -> tuple[dict[str, int], list[Compared]]:
    """Registrations of a client that is away with what their objects stand at."""
    stands = await _stands(processes, [one.object for one in held])
    counts, behind, fresh = Counter[str](), list[Compared](), list[Compared]()
    for one in held:
        at = stands.get(one.object)
        if at is None or not at.caught_up:
            compared = Compared(one.object, BLIND, one.acked)
        else:
            told = due((one.acked, one.epoch), (at.version, at.epoch))
            state = {Due.NOTHING: FRESH, Due.VERSION: PENDING, Due.UNKNOWN: UNKNOWN}[told]
            compared = Compared(one.object, state, one.acked, at.version)
        counts[compared.state] += 1
        into = fresh if compared.state == FRESH else behind
        if len(into) < LISTED:
            into.append(compared)
    return dict(counts), [*behind, *fresh][:LISTED]


async def _stands(processes: Processes, keys: Sequence[Key]) -> dict[Key, ObjectFacts]:
    by_shard: dict[int, list[Key]] = {}
    for key in keys:
        by_shard.setdefault(processes.shard_of(key), []).append(key)
    found: dict[Key, ObjectFacts] = {}
    for shard, wanted in by_shard.items():
        for i in range(0, len(wanted), MAX_LINK_PARTS):
            question = Ask("stands", shard, objects=wanted[i : i + MAX_LINK_PARTS])
            told = await processes.ask(processes.owners[shard], question, Stands)
            if told is None:
                break
            found.update(told.objects)
    return found
