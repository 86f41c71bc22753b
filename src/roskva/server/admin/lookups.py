"""One object, or one client, online or away: what the owner of its shard and those who have clients
know of it, put together."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from roskva.channels.mqtt.terms import row_id
from roskva.config import Config, open_to_this_machine
from roskva.core.freshness import Due, due
from roskva.links.framing import ask
from roskva.links.processes import Process
from roskva.model import NOBODY, Key, parse_key, shard_of
from roskva.server.admin.answers import ProcessAnswers, RowSeen, client_id
from roskva.server.admin.pipeline import audited
from roskva.server.admin.sentences import explain_client, explain_object
from roskva.server.admin.sessions import (
    BLIND,
    FRESH,
    PENDING,
    UNKNOWN,
    Listed,
    State,
    slowest_of,
)
from roskva.store.rows import StoredClient
from roskva.wire.admin import ClientNow, ClientsSeen, NoteNow, ObjectNow
from roskva.wire.links import MAX_LINK_PARTS, Ask, CurrentVersion, Registered, Versions

TIMEOUT_S: Final = 2.0
_NOTES: Final = 20
_STATES: Final[dict[Due, State]] = {
    Due.NOTHING: FRESH,
    Due.VERSION: PENDING,
    Due.UNKNOWN: UNKNOWN,
}
T = TypeVar("T")


class NodeProcesses:
    """The processes of a node, as one of them asks the others."""

    def __init__(self, own: str, processes: Sequence[Process], answers: ProcessAnswers) -> None:
        """`answers`: of this process."""
        self.own = own
        self.all = processes
        self.owners = {shard: process for process in self.all for shard in process.shards}
        self.fronts = [process for process in self.all if not process.shards] or list(self.all)
        """Those with clients."""
        self._answers = answers

    def shard_of(self, identity: Key | bytes) -> int:
        return shard_of(identity, len(self.owners))

    def owner(self, identity: Key | bytes) -> Process:
        return self.owners[self.shard_of(identity)]

    async def ask(self, process: Process, question: Ask, kind: type[T]) -> T | None:
        """None: it does not answer."""
        told: Any
        if process.name == self.own:
            told = await self._answers.answer(question)
            return told if isinstance(told, kind) else None
        told = await ask(process.socket, question, TIMEOUT_S)
        return None if "error" in told else msgspec.convert(told, kind)

    async def ask_all(
        self, processes: Sequence[Process], question: Ask, kind: type[T]
    ) -> dict[str, T | None]:
        """By the names of these processes."""
        told = await asyncio.gather(*(self.ask(process, question, kind) for process in processes))
        return dict(zip((process.name for process in processes), told, strict=True))


async def look_at_object(
    processes: NodeProcesses, config: Config, data: Path, key: Key
) -> ObjectNow:
    object, owner = parse_key(key), processes.owner(key)
    asked = list({process.name: process for process in (owner, *processes.fronts)}.values())
    told = await processes.ask_all(asked, Ask("object", name=key), ObjectNow)
    seen = [one for one in told.values() if one is not None]
    found = msgspec.structs.replace(
        told[owner.name] or ObjectNow(),
        app=object.app,
        name=object.name,
        shard=processes.shard_of(key),
        process=owner.name,
        sessions=sum(one.sessions for one in seen),
        fresh=sum(one.fresh for one in seen),
        pending=sum(one.pending for one in seen),
        slow=sum(one.slow for one in seen),
        slowest=slowest_of(session for one in seen for session in one.slowest),
        audit=await asyncio.to_thread(audited, data, key),
        silent=[name for name, one in told.items() if one is None and name != owner.name],
        development=open_to_this_machine(config),
        assigned=config.app(object.app).versions == "assigned",
    )
    return msgspec.structs.replace(found, sentence=explain_object(found, time.time()))


async def look_at_client(processes: NodeProcesses, wanted: str) -> ClientNow:
    """By its id in hexadecimal digits; by its application id while it is online; or by its MQTT
    client id, if that alone names it."""
    told = await processes.ask_all(processes.fronts, Ask("client", name=wanted), ClientsSeen)
    seen = [one for one in told.values() if one is not None]
    online = [client for one in seen for client in one.online]
    notes = sorted((note for one in seen for note in one.notes), key=lambda note: -note.at)
    newest = max(online, key=lambda client: int(client.session), default=None)
    named = client_id(wanted)
    if newest is not None:
        named = bytes.fromhex(newest.client)
    elif named is None:
        noted = next((one.noted for one in seen if one.noted), "")
        named = bytes.fromhex(noted) if noted else None
    by_mqtt = row_id(NOBODY, wanted)
    for client in (by_mqtt,) if named is None else (named, by_mqtt):
        shard = processes.shard_of(client)
        question = Ask("row", shard, client.hex())
        kept = await processes.ask(processes.owners[shard], question, RowSeen)
        if kept is None or kept.row is not None or newest is not None:
            break
    else:
        client = by_mqtt if named is None else named
    found = newest or ClientNow(
        client=client.hex(), presence="hidden" if kept is None else "nobody"
    )
    row = None if kept is None else kept.row
    if row is not None:
        found = _with_row(found, row)
    if found.presence != "online" or found.opening:
        listed = await _compare(processes, row.registered if row else [])
        found = msgspec.structs.replace(
            found, counts=dict(listed.counts), registrations=listed.listed()
        )
    silent = [name for name, one in told.items() if one is None]
    return _explained(processes, found, client, kept is not None, notes, silent)


def _with_row(found: ClientNow, row: StoredClient) -> ClientNow:
    assert row.created_at is not None
    found = msgspec.structs.replace(
        found, created_at=row.created_at / 1e6, seen_at=(row.seen_at or row.created_at) / 1e6
    )
    if found.presence == "online":
        return found
    return msgspec.structs.replace(
        found,
        presence="offline",
        application=row.application or "",
        session=str(row.session),
    )


def _explained(
    processes: NodeProcesses,
    found: ClientNow,
    client: bytes,
    owner_answers: bool,
    notes: list[NoteNow],
    silent: list[str],
) -> ClientNow:
    found = msgspec.structs.replace(found, notes=notes, silent=silent)
    blind = {processes.owner(one.object).name for one in found.registrations if one.state == BLIND}
    sentence = explain_client(
        found,
        time.time(),
        owner=processes.owner(client).name,
        owner_answers=owner_answers,
        blind_owners=sorted(blind),
    )
    return msgspec.structs.replace(found, sentence=sentence, notes=notes[:_NOTES])


async def _compare(processes: NodeProcesses, held: Sequence[Registered]) -> Listed:
    """Registrations of a client that is away with what their objects stand at."""
    stands = await _stands(processes, [one.object for one in held])
    listed = Listed()
    for one in held:
        at = stands.get(one.object)
        if at is None:
            listed.add(one.object, BLIND, one.acked, None)
        else:
            told = due((one.acked, one.epoch), (at.version, at.epoch))
            listed.add(one.object, _STATES[told], one.acked, at.version)
    return listed


async def _stands(processes: NodeProcesses, keys: Sequence[Key]) -> dict[Key, CurrentVersion]:
    by_shard: dict[int, list[Key]] = {}
    for key in keys:
        by_shard.setdefault(processes.shard_of(key), []).append(key)
    found: dict[Key, CurrentVersion] = {}
    for shard, wanted in by_shard.items():
        for i in range(0, len(wanted), MAX_LINK_PARTS):
            question = Ask("stands", shard, objects=wanted[i : i + MAX_LINK_PARTS])
            told = await processes.ask(processes.owners[shard], question, Versions)
            if told is None:
                break
            found.update((one.object, one) for one in told.known)
    return found
