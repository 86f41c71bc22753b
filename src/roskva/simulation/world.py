"""One simulated cluster: built from a tape, broken as the tape says, healed and judged.

Safety is checked while it runs. Then the faults stop, one registrar stays dead where there are
several, and everybody else must be fresh within `bound()`; once more after another round of
updates, and after each of a few histories that chance seldom brings about; then nothing more may be
said, and when the clients leave, nothing of them may be left in memory.
"""

import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from random import Random
from typing import ClassVar, Final

import msgspec

from roskva.core.effects import Recheck
from roskva.core.identity import Standing, TokenKeys
from roskva.feed.base import START, Batch, Marker
from roskva.host.shard import GAP_CLOSED_S
from roskva.model import NO_VERSION, NOBODY, Key, Principal, Update, shard_of
from roskva.simulation import histories
from roskva.simulation.clients import APP, AnyClient, ClientNode, OwnChannelNode
from roskva.simulation.devices import MqttNode
from roskva.simulation.faults import NODE_FAULTS, inject
from roskva.simulation.hoarder import Hoarder
from roskva.simulation.network import Network
from roskva.simulation.operators import Operator
from roskva.simulation.oracle import Oracle, Violation
from roskva.simulation.peer import FeedPeer
from roskva.simulation.pipeline import FORGED, Bridge, ObjectPublisher
from roskva.simulation.process import Clock
from roskva.simulation.registrar import RegistrarNode
from roskva.simulation.shard import ShardNode
from roskva.simulation.tape import Tape
from roskva.simulation.zombie import Zombie

MAX_HELD_BYTES: Final = 64 * 1024
_KEY: Final = b"an even simpler simulation key!!"

COUNTED: Final = (
    *("early", "epochs", "fenced", "unknown", "syncs", "suppressed", "lagged", "turned_away"),
    *("rejected_tokens", "stale_messages", "stale_acks", "resent", "repeated", "expired"),
)
"""Recovery paths of the machines themselves."""


class Report(msgspec.Struct, frozen=True):
    seed: int
    violation: str | None
    trace_hash: str
    simulated_seconds: float
    notifications: int
    sometimes: dict[str, int]
    faults: dict[str, int]


class World:
    source_apps: frozenset[str] = frozenset()
    """Those that have a change source."""
    faults: ClassVar = NODE_FAULTS

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.swarm = swarm = tape.swarm
        self.dice = Random(tape.seed + 1)
        self.pen = Random(tape.seed + 2)
        """When an identity is written; apart, so that kept tapes stay what they are."""
        self.clock = Clock()
        self.oracle = Oracle()
        self.net = Network(self)
        self.keys = TokenKeys({1: _KEY}, 1)
        self.token_lifetime = 90 * 86400.0
        self.standing = Standing()
        self.notifications = 0
        self.acknowledged_updates: list[Update] = []
        self.skews: dict[str, float] = {}
        self.ids = 0
        self.denied: set[Key] = set()
        self.straggled: set[Key] = set()
        """Objects of which a late copy of a version followed a newer one that was acknowledged."""
        self.healed = False
        self.restored_at = -inf
        """When a store last came back as it had been before."""
        self.dropped: set[Key] = set()
        """Objects whose rows were dropped because nobody needs them."""
        self.objects = self.make_objects()
        self.shards = [ShardNode(self, i) for i in range(swarm.shards)]
        self.registrars = [RegistrarNode(self, i) for i in range(swarm.registrars)]
        self.clients = [ClientNode(self, i, self._some_objects()) for i in range(swarm.clients)]
        self.clients += [
            OwnChannelNode(self, i, self._some_objects()) for i in range(swarm.own_clients)
        ]
        self.devices = [MqttNode(self, i, self._some_objects()) for i in range(swarm.mqtt_clients)]
        last = dict(zip(self.objects, tape.last_changes, strict=False))
        self.publishers = self.make_publishers(last)
        self.bridge = Bridge(self)
        self.operator = Operator(self)
        self.hoarder = Hoarder(self)
        self.twins: list[ClientNode] = []
        self.zombies: dict[int, Zombie] = {}
        """Those awake, by their shard."""
        self.peers = [FeedPeer(self, shard) for shard in self.shards]

    def make_objects(self) -> list[Key]:
        return [f"{APP}/object-{i}" for i in range(self.swarm.objects)]

    def make_publishers(self, last_changes: dict[Key, float]) -> dict[Key, ObjectPublisher]:
        return {key: ObjectPublisher(self, key, last_changes.get(key, inf)) for key in self.objects}

    def histories(self) -> Iterator[histories.History]:
        return histories.of(self.tape.seed)

    def everybody(self) -> list[AnyClient]:
        return [*self.clients, *self.devices]

    def _some_objects(self) -> list[Key]:
        return self.dice.sample(self.objects, min(self.swarm.registrations, len(self.objects)))

    # The run.

    def run(self) -> Report:
        violation = None
        try:
            self._run()
        except Violation as found:
            violation = str(found)
        except Exception as error:  # a crash of the code under test is a finding like any other
            where = traceback.extract_tb(error.__traceback__)[-1]
            violation = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
        for node in [*self.shards, *self.peers, *self.registrars, *self.everybody()]:
            node.end()
        return Report(
            self.tape.seed,
            violation,
            self.oracle.digest(),
            self.clock.now,
            self.notifications,
            dict(self.oracle.sometimes),
            dict(Counter(fault.kind for fault in self.tape.faults)),
        )

    def _run(self) -> None:
        self.start()
        for fault in self.tape.faults:
            self.clock.after(fault.at, partial(inject, self, fault))
        self.clock.run(self.swarm.fault_time)
        self.heal()
        self.finish_resets()
        if self.operator.went_back and not all(shard.intact for shard in self.shards):
            self.operator.reset_when_quiet(goes_back=False)  # it was lost with a part of the feed
            self.finish_resets()
        self.clock.run(self.clock.now + self.bound())
        self.check_liveness(self.vouches_to)
        self.check_rows()
        self.hoarder.check()
        self.check_prompt()
        for history in self.histories():
            history(self)
            self.clock.run(self.clock.now + self.bound())
            self.check_liveness(lambda client, key: True)
        self.operator.reset_other()
        self.check_quiet()
        self.check_feeds()
        self.check_empty()

    def finish_resets(self) -> None:
        busy = self.publishers.values()
        while self.operator.busy or any(publisher.busy_resetting for publisher in busy):
            self.clock.run(self.clock.now + 5.0)

    def start(self) -> None:
        for shard, peer in zip(self.shards, self.peers, strict=True):
            shard.start()
            peer.start()
        for registrar in self.registrars:
            registrar.start()
        for client in self.everybody():
            self.clock.after(self.dice.random() * 3, client.start)
        for publisher in self.publishers.values():
            self.clock.after(self.dice.random() * 5, publisher.run)
        self.bridge.run()
        self.hoarder.run()

    def principal(self) -> Principal:
        """Of whoever says hello now, with a credential that the login has just issued."""
        return Principal("somebody", APP, int(self.clock.now)) if self.standing.keyed else NOBODY

    def revoke(self) -> None:
        """Everybody has to show a credential of now; the login's clock is the true one."""
        self.standing = Standing(keyed=True, apps={APP: int(self.clock.now)})
        for registrar in self.registrars:
            if registrar.alive:
                registrar.reload()

    def heal(self) -> None:
        """Faults stop. What they left behind stays; one registrar of several stays dead."""
        self.healed = True
        for publisher in self.publishers.values():
            publisher.stopped = True
        for twin in self.twins:
            twin.crash()
        nodes = [*self.shards, *self.registrars, *self.everybody()]
        self.clock.run(max([self.clock.now, *(node.paused_until for node in nodes)]) + 1.0)
        self.net.lossy = self.net.slow = 0.0
        self.net.cuts.clear()
        self.denied.clear()
        for node in nodes:
            node.slowness = 0.0
        for shard in self.shards:
            shard.heal()
        stays_dead = None
        if len(self.registrars) > 1:
            stays_dead = self.registrars[self.dice.randrange(len(self.registrars))]
            stays_dead.crash()
        for registrar in self.registrars:
            if registrar is not stays_dead:
                registrar.start_again()
        for publisher in self.publishers.values():
            if self.lost_history(publisher.key):
                publisher.reset_again()
        for client in self.everybody():
            if client.reads_slowly:
                client.read_again()
            if not client.alive:
                client.start()

    def bound(self) -> float:
        """How long it may take from healed to fresh: every timer that may have to run out, once."""
        swarm = self.swarm
        link = 4 * swarm.ping_interval + 2.0
        herd = 10.0 * (1 + len(self.everybody()) / swarm.handshakes_per_10s)
        connect = 1.2 * (8.0 + 4.0) + 2 * swarm.answer_timeout + herd
        notice = 1.2 * swarm.heartbeat + swarm.answer_timeout + swarm.sync_timeout
        retry = 2 * (1.2 * (swarm.answer_timeout + 8.0))
        feed = swarm.feed_tick + 2.0 * 4 + 2.0 + GAP_CLOSED_S
        tell = 2 * swarm.scan_interval + 2.0 + 3 * swarm.app_delay + 5.0
        return (link + connect + notice + retry + feed + tell) * (1 + swarm.drift)

    # Judgement.

    def check_liveness(self, due: Callable[[AnyClient, Key], bool]) -> None:
        for client in self.everybody():
            for key in client.app.wanted:
                if due(client, key):
                    self.oracle.check_fresh(client.name, key, client.app.knows.get(key, 0))

    def check_prompt(self) -> None:
        """When all is well nobody waits for a timer that would find what was forgotten: updates
        come at once by the fast path, or soon by the bridge, and by no other way."""
        bridged = self.bridge.is_at_work()
        self.change_all()
        swarm = self.swarm
        own = [shard.ways.counts["own"] for shard in self.shards]
        self.clock.run(self.clock.now + self.told_within())
        if swarm.fast_path:
            self.check_liveness(self.vouches_to)
        elif bridged:
            self.seen("told by the bridge alone")
            self.clock.run(self.clock.now + swarm.feed_tick + 2 * swarm.bridge_interval + 1.0)
            self.check_liveness(self.vouches_to)
            if own != [shard.ways.counts["own"] for shard in self.shards]:
                raise Violation("a shard read by itself what a living bridge would have brought")

    def check_quiet(self) -> None:
        before = [client.deliveries for client in self.clients]
        syncs = self._syncs()
        swarm = self.swarm
        self.clock.run(self.clock.now + 2 * swarm.scan_interval + 2 * swarm.heartbeat + 5.0)
        for client, count in zip(self.clients, before, strict=True):
            if client.deliveries != count:
                raise Violation(f"{client.name} was told again although nothing had changed")
        if self._syncs() != syncs:
            raise Violation("registrations were compared again although they agreed")

    def _syncs(self) -> int:
        return sum(node.core.counters["syncs"] for node in self.registrars if node.alive)

    def check_rows(self) -> None:
        """When all acks are written again, the rows say what the sessions do."""
        registrars = [registrar for registrar in self.registrars if registrar.alive]
        for registrar in registrars:
            registrar.step(Recheck())
        swarm = self.swarm
        self.clock.run(self.clock.now + (2 * swarm.ack_flush + 10.0) * (1 + swarm.drift))
        for registrar in registrars:
            for session in registrar.core.sessions.values():
                if session.keep and session.created:
                    held = self.shards[session.owner].acked(session.client)
                    acked = {key: session.acked(key) for key in session.registered}
                    if acked.items() - held.items():
                        raise Violation(f"a row has {held}, and its session {acked}")

    def check_feeds(self) -> None:
        for peer in self.peers:
            peer.check_speaks()
        for shard in self.shards:
            if not shard.intact:
                continue
            held: set[tuple[Key, int]] = set()
            after = START
            while isinstance(read := shard.reader.read(Marker(shard.log.lineage, after)), Batch):
                held.update((update.object, update.version) for update in read.updates())
                after = read.last
            for update in self.acknowledged_updates:
                mine = shard_of(update.object, self.swarm.shards) == shard.index
                if mine and (update.object, update.version) not in held:
                    raise Violation(f"{update.object} {update.version} vanished from its feed")

    def check_empty(self) -> None:
        for client in self.everybody():
            client.crash()
        swarm = self.swarm
        gone = 5 * swarm.heartbeat + swarm.scan_interval + swarm.linger
        within = max(shard.collected_within() for shard in self.shards)
        gone += swarm.client_keep + within
        self.clock.run(self.clock.now + (gone + 10.0) * (1 + 2 * swarm.drift))
        for registrar in self.registrars:
            if registrar.alive:
                core = registrar.core
                dirty = [session for link in core.interests.links for session in link.dirty]
                if any((core.conns, core.sessions, core.watched, dirty)):
                    raise Violation(f"{registrar.name} remembers clients that are gone")
        for shard in self.shards:
            if shard.matcher.objects or shard.rows.holders:
                raise Violation(f"{shard.name} remembers clients that are gone")
            shard.check_expired(within)

    def check_bounded(self, held: int) -> None:
        if held > MAX_HELD_BYTES:
            raise Violation(f"{held} bytes wait for a client that does not read")

    def check_answer(self, shard: ShardNode, lineage: int, offset: int) -> None:
        self.seen("bridge answered")
        on_disk = shard.durable_marker
        if on_disk is not None and lineage == on_disk.lineage and offset > on_disk.applied:
            raise Violation(
                f"{shard.name} answered for {offset}; on disk it is at {on_disk.applied}"
            )

    def check_own_writes(self, registrar: RegistrarNode, update: Update) -> None:
        """Who is told yes reads, where it was told so, what it has published."""
        key, shard = update.object, self.shard_of(update.object)
        link, watched = registrar.links.get(shard.index), registrar.core.watched.get(key)
        if link is None or watched is None or watched.known is None or self.publishers[key].forged:
            return
        if link.id not in shard.told_to.get((key, update.version), ()):
            return
        self.seen("own write read")
        known = watched.known[0]
        if registrar.core.interests.is_current(watched) and NO_VERSION < known < update.version:
            raise Violation(f"{key} {update.version} was confirmed where {known} is the latest")

    def confirmed(self, client: AnyClient, key: Key) -> None:
        """A confirmation must rest on a link that was up: see `Oracle.check_confirmed`.

        The shard that answered had caught up with all that was acknowledged before it started, so
        that is known at once; what it was not handed since, only after its next look at the feed.
        """
        swarm, net, life = self.swarm, self.net, client.life
        asked_at = client.app.asked_at.get(key, self.clock.now)
        slack = 4 * swarm.ping_interval + 3.0 * net.slow + 2 * net.lossy
        since = min(asked_at, self.clock.now) - slack

        def check(since: float) -> None:
            online = client.life == life and client.conn is not None and not client.reads_slowly
            same = key in client.app.wanted and client.app.asked_at.get(key, asked_at) == asked_at
            if online and same and self.vouches_to(client, key):
                knows = client.app.knows.get(key, 0)
                self.oracle.check_confirmed(client.name, key, knows, since)

        looked = swarm.batch_s + 2 * swarm.app_delay + max(client.busy_until - self.clock.now, 0.0)
        fed = 2 * swarm.feed_tick + 3.0 + GAP_CLOSED_S
        self.clock.after(fed + looked, partial(check, since - 5.0))
        lost = client.conn is not None and client.conn.was_deaf_after(asked_at)
        if not (net.lossy or net.slow or lost):  # else what it was told may be lost, and come again
            answered = max(self.shard_of(key).started_by(since), since - 5.0 - fed)
            self.clock.after(looked + 0.5, partial(check, answered))

    def check_told(self, who: str, key: Key, stamp: int) -> None:
        """When an application is told of a change."""

    # Small services.

    def look(self, key: Key) -> int:
        """What somebody sees who looks at the backend of an object."""
        return self.oracle.stamp.get(key, 0)

    def change_all(self) -> None:
        for publisher in self.publishers.values():
            publisher.change()

    def known_within(self) -> float:
        """Registrars, of a change that comes by the fast path."""
        return 1.0 + 20 * self.swarm.latency + self.swarm.batch_s

    def told_within(self) -> float:
        """Clients, some of which take one thing after the other."""
        swarm = self.swarm
        slices = len(self.everybody()) * swarm.objects * (swarm.slice_delay + 0.01)
        return self.known_within() + slices + swarm.registrations * swarm.app_delay

    def shard_of(self, key: Key) -> ShardNode:
        return self.shards[shard_of(key, self.swarm.shards)]

    def owner_found(self, registrar: RegistrarNode, shard: int) -> ShardNode | Zombie:
        """By a registrar that dials. One that has not heard of the successor finds no zombie: that
        answers nobody for long by a clock that counts the time asleep, and ours does not."""
        zombie = self.zombies.get(shard)
        if zombie is not None and zombie.owner < registrar.owners[shard]:
            return zombie
        return self.shards[shard]

    def lost_history(self, key: Key) -> bool:
        return not self.shard_of(key).intact

    def vouches(self, key: Key) -> bool:
        """Whether what is told of an object is exact at once, and not only after its next update.

        With a part of the feed a reset may be lost, until the operator repeats it; and of versions
        that were published out of order the higher one, of which nothing tells any more.
        """
        went_back = self.publishers[key].forged > 0 or self.operator.went_back
        doubtful = went_back or not self.swarm.ordered or key in self.straggled
        return not (doubtful and self.lost_history(key))

    def keeps_order(self, key: Key, version: int) -> bool:
        """Of a gap nobody knows whether a reset is in it. So a forged version from it may be told
        after what followed the reset and came early: as a version it is the higher one."""
        early = self.shard_of(key).matcher.counters["early"]
        return self.vouches(key) and not (early and version > FORGED)

    def vouches_to(self, client: AnyClient, key: Key) -> bool:
        """With an old store a registration may come back that was given up since, and with it what
        was acked then: whoever registers again is on record, and told nothing before it changes."""
        left_at = client.app.left_at.get(key, inf)
        return self.vouches(key) and self.restored_at < left_at

    def seen(self, what: str) -> None:
        self.oracle.sometimes[what] += 1

    def count(self, counters: dict[str, int]) -> None:
        self.oracle.sometimes.update(
            {f"core: {name}": count for name, count in counters.items() if name in COUNTED}
        )

    def next_id(self) -> int:
        self.ids += 1
        return self.ids

    def skew_of(self, name: str) -> float:
        return self.skews.setdefault(name, self.dice.uniform(-3600, 3600))

    def pick_registrar(self) -> RegistrarNode | None:
        able = [registrar for registrar in self.registrars if registrar.alive]
        return self.dice.choice(able) if able else None

    def pick_author(self, key: Key) -> ClientNode | None:
        """Sometimes a client makes the change itself."""
        if not self.swarm.sources or self.dice.random() < 0.5:
            return None
        able = [client for client in self.clients if client.alive and key in client.app.wanted]
        return self.dice.choice(able) if able else None
