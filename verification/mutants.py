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
from roskva.simulation.tape import tape_of

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


class Hunt(msgspec.Struct, frozen=True):
    mutant: str
    seed: int | None
    violation: str | None


def _mutants(text: str) -> Iterator[Mutant]:
    """Under the name of each: where, and under that what is replaced → by what."""
    text = re.sub(r"^#.*\n", "", text.strip(), flags=re.MULTILINE)
    for mutant in re.split(r"\n(?=\S)", text):
        name, *places = re.split(r"\n {4}(?=\S)", mutant)
        yield Mutant(name, tuple(map(_change, places)))


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
        if row.version > entry.version(): → if True:
reset from beyond a gap applied again
    core.matcher:Matcher._merge
        if not in_order: → if False:
failed write forgotten
    core.matcher:Matcher._failed
        self.flushing.absorb(self.unflushed) → self.flushing = Unflushed()
restored snapshot keeps its epoch with the feed gone
    core.matcher:Matcher._feed_missing
        self._new_epoch(missing.lineage, missing.last, missing.bits) → self.applied = missing.last
recreated feed taken for the old one
    core.matcher:Matcher._feed_end
        self._new_epoch(feed.lineage, 0, feed.bits) → self.lineage, self.applied = feed.lineage, 0
new epoch not announced
    core.matcher:Matcher._new_epoch
        self.announcing = dict.fromkeys(self.objects) → pass
answers before catching up
    core.matcher:Matcher.__init__
        self.caught_up = False → self.caught_up = True
reset only merged
    core.objects:ObjectEntry.forget
        self.update = None → pass
    core.objects:Unflushed.forget
        self.updates.pop(key, None) → pass
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
        return self.now < link.heard_at + self.link_timeout → return True
silent link trusted for ever
    core.interest:Interests.is_current
        return self.now < link.heard_at + self.link_timeout → return True
    core.interest:Interests.note_heard
        self.now >= link.heard_at + self.link_timeout → False
    core.interest:Interests.ping
        self.now >= link.heard_at + self.link_timeout → False
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
    core.admission:SessionAdmission._check
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
        proposed if proposed not in self.in_flight else self._free_id() → proposed

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
group that is not durable counted as published
    host.shard:ShardHost._refuse
        self._answer_no(link, number, error)
        → self._effects.append(SendLink(link, UpdatesPublished(number, [0])))
publish on a broken link counted as published
    host.registrar:RegistrarHost._link_down
        self._settle(request, gone) → self._settle(request, [0])
device sent more than its window
    host.mqtt:PacketIds.full
        len(self.in_flight) >= self.receive_maximum → False
connection that drained goes on lagging
    host.delivery:MessageDelivery.resume
        self._joins = not self._ended → pass

# The client.
client hands on whatever it is told
    core.client:ClientMachine._notified
        told = due(self.acked.get(key, NEVER), known) → told = Due.VERSION
""")
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
            violation = run_tape(tape_of(seed)).violation
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
