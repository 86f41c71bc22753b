"""Planted bugs: what the oracle must notice, or it is no oracle.

A mutant changes a line or two of the code that serves, for as long as it is planted; the code
itself has no switches for it. If the line is no longer there, planting fails: a mutant that does
nothing would prove nothing.
"""

import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib import import_module
from types import FunctionType
from typing import Any, Final, TypeVar

import msgspec

from roskva.simulation.campaign import run_tape
from roskva.simulation.tape import Profile, tape_of

T = TypeVar("T")
R = TypeVar("R")

MAX_SEEDS: Final = 200


class Change(msgspec.Struct, frozen=True):
    """In `module:Class.method` or `module:function`, replace one piece of source by another."""

    where: str
    old: str
    new: str


class Mutant(msgspec.Struct, frozen=True):
    name: str
    changes: tuple[Change, ...]
    profile: Profile = "node"
    """Of the clusters in which it has to show."""


class Hunt(msgspec.Struct, frozen=True):
    mutant: str
    seed: int | None
    violation: str | None


def _mutants(text: str, profile: Profile = "node") -> Iterator[Mutant]:
    """Under the name of each: where, and under that what is replaced → by what."""
    text = re.sub(r"^#.*\n", "", text.strip(), flags=re.MULTILINE)
    for mutant in re.split(r"\n(?=\S)", text):
        name, *places = re.split(r"\n {4}(?=\S)", mutant)
        yield Mutant(name, tuple(map(_change, places)), profile)


def _change(text: str) -> Change:
    where, *what = text.split()
    old, _, new = " ".join(what).partition(" → ")
    return Change(f"roskva.{where}", old, new)


MUTANTS: Final = tuple(
    _mutants("""
# The feed and the matcher.
marker advanced over a gap
    core.matcher:Matcher._apply
        batch.first <= self.applied + 1 → True
batch answered while only in memory
    core.matcher:Matcher._answer_when_durable
        last <= self.durable → True
    core.matcher:Matcher._answer_with_position
        min(self.durable, self.applied) → self.applied
interest recorded after the load
    core.matcher:Matcher._merge
        entry = objects.get(key)
        → entry = (lambda e: None if e is None or e.load else e)(objects.get(key))
    core.matcher:Matcher._new_entry
        self.unflushed.lay_over(entry, key) → pass
late load hides a newer version
    core.matcher:Matcher._merge_row
        if (row.generation, row.version) > (entry.generation, entry.version()): → if True:
reset from beyond a gap applied again
    core.matcher:Matcher._merge
        if not in_order: → if False:
failed write forgotten
    core.matcher:Matcher._failed
        self.flushing.absorb(self.unflushed) → self.flushing = Unflushed()
restored snapshot keeps its epoch with the feed gone
    core.matcher:Matcher._feed_missing
        self._lose(Loss(missing.lineage, missing.last, missing.why), missing.bits)
        → self.applied = missing.last
recreated feed taken for the old one
    core.matcher:Matcher._feed_end
        self._lose(Loss(feed.lineage, _START, "recreated"), feed.bits)
        → self.lineage, self.applied = feed.lineage, 0
new epoch not announced
    core.matcher:Matcher._check_caught_up
        self._announce_all() → pass
epoch begins without a record
    core.matcher:Matcher._check_caught_up
        if self.loss is None: → if True:
epoch begins as soon as its record is asked for
    core.matcher:Matcher._check_caught_up
        self._effects.append(BeginEpoch(self.asked, self.epoch, self.loss))
        → self._effects.append(BeginEpoch(self.asked, self.epoch, self.loss)); self.loss = None
whoever has lost something goes on speaking
    core.matcher:Matcher._fall_silent
        if self.caught_up: → if False:
registration confirmed from what a silent shard had said
    core.matcher:Matcher._fall_silent
        self._link_down(handle) → pass
    core.matcher:Matcher._fall_silent
        self._effects.append(DropLink(handle)) → pass
second record for a loss counts again
    core.effects:PutShard.after
        if lost <= self.excused: → if False:
losses that are answered for are forgotten over a crash
    store.rows:operations_of
        write.excused, write.loss → -1, write.loss
loss forgotten over a crash
    store.rows:operations_of
        write.excused, write.loss → write.excused, None
record of an epoch counts from beyond a gap
    core.matcher:Matcher._merge
        if in_order: → if True:
marker moved past the record of an epoch
    core.matcher:Matcher._merge
        if in_order: → if in_order and len(batch.updates) == 1:
record of an epoch lost by whoever coalesces
    core.objects:coalesce
        for offset, update in updates:
        → for offset, update in [each for each in updates if each[1].object != WHOLE_SHARD]:
epoch begins for less than was lost
    core.effects:PutShard.after
        self.loss is not None and lost < self.loss.last → False
versions from before an epoch told in it
    core.matcher:Matcher._stands
        entry.epoch == self.epoch → True
record of an epoch that could not be appended forgotten
    host.shard:ShardHost._refuse
        self._match(Failed(asked), now) → pass
answers before catching up
    core.matcher:Matcher.__init__
        self.caught_up = False → self.caught_up = True
reset only merged
    core.objects:ObjectEntry.forget
        self.update = None → pass
    core.objects:Unflushed.forget
        self.updates.pop(key, None) → pass
reset of an app forgotten over a crash
    core.matcher:Matcher._flush
        tuple(self.generations.items()) if self.shard_row_due else () → ()
reset of an app counts from beyond a gap
    core.matcher:Matcher._merge
        in_order and self._reset_app( → self._reset_app(
version of an older generation still stands
    core.matcher:Matcher._stands
        and entry.generation == self.generation_of(key) → and True
older version keeps those out that follow a reset of its app
    core.objects:ObjectEntry.merge
        if generation != self.generation: → if False:
reset of an app that comes twice counts twice
    core.matcher:Matcher._reset_app
        if generation <= self.generations.get(app, NO_GENERATION): → if False:
    core.matcher:Matcher._reset_app
        self.generations[app] = generation
        → self.generations[app] = max(generation, self.generations.get(app, NO_GENERATION) + 1)
reset of an app touches the others
    core.matcher:Matcher.generation_of
        generations.get(app_of(key), NO_GENERATION) → max(generations.values())
client that was away is not told of the reset of its app
    core.matcher:Matcher.epoch_of
        mark_under(entry.mark, self.generation_of(key)) → entry.mark
reset of an app begins anew whenever it is asked for
    host.shard:ShardHost._reset_app
        elif message.generation <= known: → elif not message.generation:
    host.shard:ShardHost._reset_app
        record = Update(app_key(app), message.generation, → record = Update(app_key(app), known + 1,
source named across a gap
    core.matcher:Matcher._push
        update.source if in_order else None → update.source
publish acknowledged before it is on disk
    feed.segment:ActiveSegment.sync
        self._file.sync() → pass

# The table.
notify if different
    core.freshness:due
        known[0] > acked[0] → known[0] != acked[0] and known[0] >= 0
unknown not repeated for a new epoch
    core.freshness:due
        if known[1] != acked[1]: → if acked[1] == NO_EPOCH:
ack stamped with the current epoch
    core.freshness:after_ack
        a, e = acked → a, e = acked; epoch = known[1]
acks from before a reset count after it
    core.freshness:after_ack
        if mark_of(epoch) not in (NO_MARK, mark_of(e)): → if False:
declared version counts although none so high is known
    core.freshness:declared
        known is not None and is_forged(version, epoch, known) → False

# The registrar and the rows.
registration confirmed from the cache of a dead link
    core.interest:Interests.is_current
        not link.up or watched.incarnation != link.incarnation → watched.known is None
    core.interest:Interests.is_current
        return self.now < link.leased_at + self.link_timeout → return True
silent link trusted for ever
    core.interest:Interests.is_current
        return self.now < link.leased_at + self.link_timeout → return True
    core.interest:Interests.in_time
        self.now >= link.leased_at + self.link_timeout → False
    core.interest:Interests.ping
        self.now >= link.leased_at + self.link_timeout → False
lease counted from the answer instead of the question
    core.interest:Interests.answered
        link.leased_at = link.pings.popleft() → link.pings.popleft(); link.leased_at = self.now
owner number not compared
    core.interest:Interests.welcomed
        if owner < link.owner: → if False:
fencing by last write
    core.rows:Rows._holder
        if message.session < holder.session: → if False:
source suppressed although the previous version was missed
    core.registrar:Registrar._authors
        if acked == before → if True
digest not updated on unregister
    core.session:Session.remove
        self.hash_sum = (self.hash_sum - watched.hash) & MASK → pass
registrations never compared
    core.registrations:Registrations.compare_digests
        session.sync_asked_at = self.interests.now → return
nothing sent twice
    core.admission:SessionAdmission._tell_again
        self.registrar.start_walk(session, repeats=True) → pass
row does not learn the number of a session it is older than
    core.rows:Rows._writes
        elif message.session > holder.session: → elif False:
acks that were lost are not written again
    core.row_writes:RowWrites.rewrite_all
        if session.keep and → if False and
ack of what was overtaken counts for the latest
    core.registrar:Registrar._ack_for_many
        held[session] = new → held[session] = known
refused, and still in the row
    core.registrations:Registrations._refuse
        if self.unregister(session, key): → if False:
packet id reused while in flight
    host.mqtt:PacketIds.take
        proposed if proposed not in self.in_flight else self._free() → proposed

one principal may have any number of rows
    core.rows:Rows._count
        if not self.shares.has_room( → if False and not self.shares.has_room(
rows of before a start count for nobody
    core.shares:Shares.read
        self.holds, self.round, self.read_to = self.round, Count(), _NOTHING
        → self.round, self.read_to = Count(), _NOTHING
rows count only once a round has found them
    core.shares:Shares.changed
        self.holds.add(account, clients, registrations) → pass
nobody in particular counts as one
    core.shares:Shares.has_room
        if not account: → if False:
    core.shares:Shares.changed
        if not account: → if False:
# What nobody needs any more.
client collected that is online
    core.rows:Rows._lets_go
        if row.created or not holder.created: → if False:
client collected that was back since its row was read
    core.rows:Rows._collect
        touched, self.touched = self.touched or (), None → touched, self.touched = (), None
client collected whose registrar did not say that it is there
    core.row_writes:RowWrites.tell_owner
        session.held_in != link.incarnation → False
half of a client's row deleted
    store.rows:operations_of
        (DeleteRow(client_key(write.client)),)
        → (DeleteCell(client_key(write.client), _CREATED),
        DeleteCell(client_key(write.client), _SEEN),)
row that belongs to nobody kept
    core.expiry:client_expires_at
        if not row.created: → if False:
end of a session not remembered
    core.rows:Rows._close
        if message.expiry_s is not None: → if False:
session whose end is not known taken for closed
    core.expiry:client_expires_at
        if row.open else → if False else
dropped object told as known
    core.matcher:Matcher.collect
        self.absent = shard_epoch(page.bits) → pass

# The hosts.
older announcement goes on after a newer one
    host.registrar:Fanout._add
        wave.deliveries = deque(each for each in wave.deliveries if each not in served) → pass
    host.registrar:Fanout._add
        waiting.append(_Wave( → waiting.insert(0, _Wave(
slice forgets its rest
    host.registrar:Fanout.work
        if not deliveries: → if True:
publisher answered before its update is applied
    host.shard:ShardHost._appended
        self._effects.append( → self._effects.insert(0,
old news of the feed's end believed
    host.shard:ShardHost._feed_ends
        event.last > self.feed_end → True
gap left for ever to a bridge that brings nothing
    host.shard:ShardHost._read_feed
        self.read_later = now + _GAP_PATIENCE_S, matcher.feed_last → self.read_later = None
waiting bridge not told of what is left to it
    host.shard:ShardHost._tell_of_gap
        if not self.gap_awaited or → if True or
shard reads what a living bridge would bring
    host.shard:ShardHost._note_bridge
        alone = gone or → alone = True or
group that is not durable counted as published
    host.shard:ShardHost._refuse
        self._answer_no(link, number, error)
        → self._effects.append(SendLink(link, UpdatesPublished(number, [0])))
publish on a broken link counted as published
    host.submissions:Submissions.link_down
        outputs += self._hold(request, part, now) → outputs += self.answered(request, [0])
held publish answered before it is durable
    host.submissions:Submissions._hold
        part.held_bytes = size
        → return self.answered(request, [0])
reset that may be in the feed sent again
    host.submissions:Submissions.link_down
        any(update.reset for update in part.updates) → False
held publish forgotten
    host.submissions:Submissions.link_up
        part.shard == shard and part.held_bytes → False
device sent more than its window
    host.mqtt:PacketIds.full
        len(self.in_flight) >= self.receive_maximum → False
connection that drained goes on lagging
    host.delivery:MessageDelivery.resume
        self._joins = not self._ended → pass
window that does not close
    host.batching:Batching.closed
        if now >= window.closes_at → if False
older of two pushes kept
    host.batching:Batching.hold
        held[push.object] = push → held.setdefault(push.object, push)
held over a link that broke
    host.registrar:RegistrarHost._other
        self.batching.take(shard) → pass

# The client.
back before the server heard that it had left, and told nothing
    core.client:ClientMachine._register
        elif key in self.former: → elif False:
late version from before a reset believed
    core.client:ClientMachine._notified
        if key in self.left and epoch in self.left[key]: → if False:
    core.client:ClientMachine._notified
        mark_of(acked[1]) not in (NO_MARK, mark_of(epoch)) → False
late version from before a reset believed when it comes again
    core.client:ClientMachine._notified
        if key in self.left and epoch in self.left[key]: → if False:
client hands on whatever it is told
    core.client:ClientMachine._notified
        told = due(acked, known) → told = Due.VERSION
session that an owner could not place is not told of again
    core.row_writes:RowWrites.tell_owner
        link.requests[request] = (session, ()) → session.held_in = link.incarnation
client is away though its session could not be placed
    core.rows:Rows._failed
        self.note_sessions_unknown(now) → pass
""")
) + tuple(
    _mutants(
        """
# Change sources: what is read.
told before visible
    sources.reader:SourceReader._go_on
        if self._unseen(head): → if False:
    sources.reader:SourceReader._append
        type(head) is not Received or head.xid not in self.visible → type(head) is not Received
doubt told before what it stands for is visible
    sources.reader:SourceReader._unseen
        item.xids - self.visible if type(item) is Doubtful else () → ()
confirmed before durable
    sources.reader:SourceReader._append
        effects.append(AppendChanges(parts))
        → effects += [*([Confirm(self.reaches)] if self.reaches else []), AppendChanges(parts)]
idle log confirmed while something waits
    sources.reader:SourceReader._wait
        self.waiting.append(event)
        → (self.waiting.appendleft if type(event) is LogIdle else self.waiting.append)(event)
TRUNCATE ignored
    sources.reader:SourceReader._append_doubt
        effects.append(AppendDoubt(head.doubt, head.position))
        → effects.append(AppendChanges([])
        if head.doubt.cause == "truncated" else AppendDoubt(head.doubt, head.position))
slot ahead taken for a start
    sources.position:judge
        if server.slot.confirmed > ours.lsn: → if False:
fork not noticed
    sources.position:judge
        if server.timeline != ours.timeline and (doubt := _fork(ours, server)): → if False:

# The log of changes.
ordinal not raised at a doubt
    sources.changes:ChangesLog.next_ordinal
        return max(asked, following) → return max(self.ordinal, 1)
log that was lost begins under the old ordinal
    sources.changes:ChangesLog.next_ordinal
        return max(asked, following) → return following
position confirmed that is not written down
    sources.changes:ChangesLog.reached
        return False → return True

# The direct flow.
reset of an app forgets a shard
    sources.direct:DirectFlow._take
        set(range(self.shards)) → set(range(max(1, self.shards - 1)))
marker falls when what was before a doubt is answered
    sources.direct:DirectFlow._pass_reset
        self.under_way.clear() → pass
doubt passed before every shard has reset
    sources.direct:DirectFlow._go_on
        and not self.reset.waits_for: → and len(self.reset.waits_for) < self.shards:
shard that lost its feed not asked for the last reset
    sources.direct:DirectFlow.step
        reset.waits_for.add(shard) → pass
answer to an earlier reset counts for this one
    sources.direct:DirectFlow._answered
        generation >= reset.message.generation → True
marker moves before it is answered
    sources.direct:DirectFlow._pass_answered
        while self.under_way and not self.under_way[0].updates: → while self.under_way:
hole in the changes log forgotten
    sources.direct:DirectFlow.step
        effects.append(RaiseDoubt(Doubt("log lost", sentence))) → pass
what is refused for now not published again
    sources.direct:DirectFlow._settled
        refused.append(update) → pass

# The shard.
late version under an old ordinal accepted
    host.shard:ShardHost._is_late
        if not self._is_of_source(update): → if True:
late version accepted while the feed is read
    host.shard:ShardHost._publish
        not self.matcher.caught_up and any( → False and any(
""",
        "sources",
    )
)


@contextmanager
def planted(mutant: Mutant) -> Iterator[None]:
    with ExitStack() as stack:
        for change in mutant.changes:
            stack.enter_context(_changed(change))
        yield


@contextmanager
def _changed(change: Change) -> Iterator[None]:
    module_name, _, path = change.where.partition(":")
    module = import_module(module_name)
    owner_name, _, method = path.rpartition(".")
    if owner_name:
        places: list[tuple[Any, str]] = [(getattr(module, owner_name), method)]
    else:
        places = _importers(module.__dict__[method], method)
    original = getattr(places[0][0], places[0][1])
    replacement = _rewritten(original, change)
    for owner, name in places:
        setattr(owner, name, replacement)
    try:
        yield
    finally:
        for owner, name in places:
            setattr(owner, name, original)


def _importers(function: FunctionType, name: str) -> list[tuple[Any, str]]:
    """Every module of ours that holds this function under its name."""
    ours = [module for key, module in list(sys.modules.items()) if key.startswith("roskva.")]
    return [(module, name) for module in ours if getattr(module, name, None) is function]


def _rewritten(function: FunctionType, change: Change) -> Any:
    source = getattr(function, "__mutated__", None) or textwrap.dedent(inspect.getsource(function))
    if source.count(change.old) != 1:
        raise LookupError(f"{change.where} has no single {change.old!r}: renew this mutant")
    source = source.replace(change.old, change.new)
    scope: dict[str, Any] = {}
    exec(source, function.__globals__, scope)
    replacement = scope[function.__name__]
    replacement.__mutated__ = source
    return replacement


def hunt(mutant: Mutant, seeds: Sequence[int] = range(MAX_SEEDS)) -> Hunt:
    with planted(mutant):
        for seed in seeds:
            violation = run_tape(tape_of(seed, profile=mutant.profile)).violation
            if violation is not None:
                return Hunt(mutant.name, seed, violation)
    return Hunt(mutant.name, None, None)


def on_all_cores(work: Callable[[T], R], items: Iterable[T], done: Callable[[], None]) -> list[R]:
    """In the order of the items; `done` is called as each result comes."""
    results = []
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for result in pool.map(work, items, chunksize=1):
            results.append(result)
            done()
    return results
