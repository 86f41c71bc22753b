"""One object, as its owner and those who have clients see it."""

import asyncio
import time
from collections import Counter
from pathlib import Path

from roskva.config import Config, open_to_this_machine
from roskva.model import Key, parse_key
from roskva.server.inside.asking import Processes
from roskva.server.inside.explaining import ObjectSituation, explain_object
from roskva.server.inside.facts import ObjectSeen, as_text
from roskva.server.inside.pipeline import audited
from roskva.server.inside.sessions import BLIND, FRESH, SLOW, SLOWEST
from roskva.wire.admin import ObjectNow, SlowSession
from roskva.wire.links import Ask


async def look_at_object(processes: Processes, config: Config, data: Path, key: Key) -> ObjectNow:
    object, now = parse_key(key), time.time()
    shard = processes.shard_of(key)
    owner = processes.owners[shard]
    asked = list({process.name: process for process in (owner, *processes.fronts)}.values())
    told = await asyncio.gather(
        *(processes.ask(process, Ask("object", name=key), ObjectSeen) for process in asked)
    )
    seen = dict(zip((process.name for process in asked), told, strict=True))
    silent = [name for name, facts in seen.items() if facts is None and name != owner.name]
    owned = seen[owner.name]
    stands = None if owned is None else owned.stands
    counts, sessions = Counter[str](), 0
    slowest: list[SlowSession] = []
    for name, facts in seen.items():
        if facts is not None:
            counts.update(facts.front.counts)
            sessions += facts.front.sessions
            slowest += [
                SlowSession(
                    one.client,
                    one.application,
                    one.channel,
                    name,
                    as_text(one.acked),
                    one.state,
                    one.silent_s,
                )
                for one in facts.front.slowest
            ]
    audit = await asyncio.to_thread(audited, data, key)
    situation = ObjectSituation(
        now=now,
        owner=owner.name,
        shard=shard,
        stands=stands,
        sessions=sessions,
        counts=counts,
        silent=silent,
        audit=audit,
    )
    slowest.sort(key=lambda one: (int(one.acked or -1), -one.silent_seconds))
    return ObjectNow(
        app=object.app,
        name=object.name,
        sentence=explain_object(situation),
        shard=shard,
        process=owner.name,
        answers=stands is not None,
        version=None if stands is None else as_text(stands.version),
        epoch="" if stands is None else str(stands.epoch),
        lower_bound=None if stands is None else as_text(stands.lower_bound),
        reset=stands is not None and stands.reset,
        published_at=stands.published_at_us / 1e6 if stands and stands.published_at_us else None,
        source=None if stands is None else stands.source,
        payload_bytes=None if stands is None else stands.payload_bytes,
        sessions=sessions,
        fresh=counts[FRESH],
        pending=sessions - counts[FRESH] - counts[BLIND],
        slow=counts[SLOW],
        slowest=slowest[:SLOWEST],
        audit=audit,
        silent=silent,
        development=open_to_this_machine(config),
        assigned=config.app(object.app).versions == "assigned",
    )
