"""The core without codec, sockets or disk: the price of a notified session, an ack, an update.

Times are CPU time of the thread, with the garbage collector off: what else the machine does is not
the core's doing, and when to collect is the server's choice.
"""

import gc
import time
import tracemalloc
from collections.abc import Iterable

from benchmarks.result import Result, Settings
from roskva.core.backoff import Rate
from roskva.core.effects import (
    Apply,
    Broadcast,
    Closed,
    Effect,
    Event,
    FeedEnd,
    FromConnection,
    FromLink,
    LinkUp,
    Opened,
    Persist,
    Persisted,
    PutShard,
    SendLink,
    Tick,
)
from roskva.core.identity import TokenKeys
from roskva.core.matcher import Matcher, MatcherConfig
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.model import Update, object_epoch
from roskva.wire.links import (
    MAX_LINK_PARTS,
    CurrentVersion,
    Interest,
    LinkHello,
    OpenSession,
    Push,
    Pushes,
    Registered,
    SessionOpened,
    Versions,
)
from roskva.wire.messages import PROTOCOL, Ack, ClientMessage, Hello

SESSIONS = 10_000
EPOCH = object_epoch(7, 0)
LINEAGE = 1


class Bench:
    """A registrar, with shards that answer at once; remembers its longest step."""

    def __init__(self) -> None:
        keys = TokenKeys({1: bytes(16)}, 1)
        config = RegistrarConfig("bench", 1, heartbeat=1e6, handshakes=Rate(60_000, 60_000))
        self.registrar = Registrar(config, keys, 0, 0.0)
        self.now = 0.0
        self.longest = 0.0
        self.sessions = 0
        self.step(LinkUp(0))

    def step(self, event: Event) -> list[Effect]:
        started = time.thread_time()
        effects = self.registrar.step(event, self.now)
        self.longest = max(self.longest, time.thread_time() - started)
        return effects

    def settle(self) -> None:
        while self.registrar.next_deadline() == 0.0:
            self.answer(self.step(Tick()))

    def answer(self, effects: Iterable[Effect]) -> None:
        """As a shard that has every object at version 1."""
        for effect in effects:
            if isinstance(effect, SendLink) and isinstance(effect.message, Interest):
                known = [CurrentVersion(key, 1, EPOCH) for key in effect.message.add]
                self.answer(self.step(FromLink(0, Versions(known))))

    def open(self, conn: int, registered: list[Registered]) -> None:
        self.step(Opened(conn, conn.to_bytes(16) + bytes(12)))
        hello = Hello(PROTOCOL, bytes(8), "app", application=f"application-{conn}")
        [asked] = self.step(FromConnection(conn, hello))
        assert isinstance(asked, SendLink)
        assert isinstance(asked.message, OpenSession)
        self.sessions += 1
        for i in range(0, len(registered), MAX_LINK_PARTS):
            part = registered[i : i + MAX_LINK_PARTS]
            more = i + MAX_LINK_PARTS < len(registered)
            opened = SessionOpened(asked.message.request, self.sessions, True, part, more)
            self.answer(self.step(FromLink(0, opened)))
        self.settle()


def fresh(*keys: str) -> list[Registered]:
    return [Registered(key, 1, EPOCH) for key in keys]


def ack(session: int, number: int, key: str, version: int) -> ClientMessage:
    return ClientMessage(PROTOCOL, session, number, None, [], [Ack(key, version, EPOCH)])


def fan_out() -> list[Result]:
    bench = Bench()
    for conn in range(SESSIONS):
        bench.open(conn, fresh("app/hot"))
    rounds, notified, acked = 20, 0.0, 0.0
    for version in range(2, 2 + rounds):
        push = FromLink(0, Pushes([Push("app/hot", version, EPOCH)]))
        started = time.thread_time()
        effects = bench.step(push)
        notified += time.thread_time() - started
        [broadcast] = effects
        assert isinstance(broadcast, Broadcast)
        assert len(broadcast.conns) == SESSIONS
        acks = [
            FromConnection(conn, ack(conn + 1, version, "app/hot", version))
            for conn in range(SESSIONS)
        ]
        step, now = bench.registrar.step, bench.now
        started = time.thread_time()
        for event in acks:
            step(event, now)
        acked += time.thread_time() - started
    bench.longest = 0.0
    for moment in range(1, 70):
        bench.now = float(moment)
        bench.step(FromLink(0, Pushes([Push("app/hot", 1000 + moment, EPOCH)])))
        bench.step(Tick())
        bench.settle()
    bench.step(FromLink(0, Versions([CurrentVersion("app/hot", 1000, object_epoch(8, 0))])))
    bench.settle()
    return [
        Result("cost per notified session", notified / rounds / SESSIONS * 1e6, "µs", 0.5),
        Result("cost per ack, one in a message", acked / rounds / SESSIONS * 1e6, "µs", 2.0),
        Result("longest step, 10,000 sessions", bench.longest * 1e3, "ms", 10.0),
    ]


def memory() -> list[Result]:
    bench = Bench()
    objects = [f"app/object-{i}" for i in range(5000)]
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for conn in range(SESSIONS):
        first = conn * 5 % len(objects)
        bench.open(conn, fresh(*objects[first : first + 5]))
    gc.collect()
    online = tracemalloc.get_traced_memory()[0]
    for conn in range(SESSIONS):
        bench.step(Closed(conn))
    for moment in range(1, 130):
        bench.now = float(moment)
        bench.step(Tick())
        bench.step(FromLink(0, Versions([])))
    bench.settle()
    gc.collect()
    offline = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return [
        Result("bytes per online client, 5 registrations", (online - before) / SESSIONS, "B", 2048),
        Result(
            "bytes per offline client",
            (offline - before) / SESSIONS,
            "B",
            note="nothing but the size that emptied tables keep",
        ),
    ]


def large_hello() -> list[Result]:
    bench = Bench()
    bench.open(0, [Registered(f"app/object-{i}", 0, EPOCH) for i in range(50_000)])
    return [Result("longest step, hello with 50,000", bench.longest * 1e3, "ms", 10.0)]


def matching() -> list[Result]:
    matcher = Matcher(MatcherConfig(0, 1), PutShard(7, LINEAGE, 0))
    matcher.step(FeedEnd(LINEAGE, 0, 0), 0.0)
    matcher.step(FromLink("link", LinkHello("1.0", "bench", 0, 1)), 0.0)
    matcher.step(FromLink("link", Interest([f"app/{i}" for i in range(1000)])), 0.0)
    rows = [(offset, Update(f"app/{offset % 100_000}", offset)) for offset in range(1, 300_001)]
    batches = [
        Apply(LINEAGE, rows[i][0], rows[i + 999][0], rows[i : i + 1000])
        for i in range(0, len(rows), 1000)
    ]
    spent = 0.0
    for batch in batches:
        started = time.thread_time()
        effects = matcher.step(batch, 0.0)
        spent += time.thread_time() - started
        for effect in effects:
            if isinstance(effect, Persist):
                matcher.step(Persisted(effect.id), 0.0)
    rate = len(rows) / spent
    return [Result("updates applied by a matcher", rate, "/s", 300_000, better="higher")]


def run(settings: Settings) -> list[Result]:
    gc.collect()
    gc.disable()
    try:
        return [*fan_out(), *large_hello(), *matching(), *memory()]
    finally:
        gc.enable()
