"""What is measured, by name: the one table, and the numbers behind it.

A process counts in plain integers, and in `Times` where a distribution matters; nothing is written
down per delivery. Only when somebody asks, every process makes `Sample`s of what it has counted,
and the one that was asked puts them together: see `server/admin/samples.py`. docs/metrics.md is
made of this table.
"""

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Literal

import msgspec

TRAFFIC: Final = ("users", "probe")
"""What the prober of the node itself does is told apart by the app of the object."""
BOUNDS: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Of the buckets of every histogram, in seconds."""
_RATE_OVER: Final = 6
"""Samples, and thus one second less."""
LE: Final = (*(f"{bound:g}" for bound in BOUNDS), "+Inf")


class Times:
    """How long something took, in buckets. One thread observes, any may look."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * len(LE)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.total += seconds


class Rates:
    """Counters as rates: how fast they have risen over the last seconds."""

    def __init__(self, counters: Callable[[], Mapping[str, int]]) -> None:
        self._counters = counters
        self._samples: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=_RATE_OVER)

    def sample(self) -> None:
        """Once a second."""
        self._samples.append((time.monotonic(), self._counters()))

    def per_second(self) -> dict[str, float]:
        if len(self._samples) < 2:
            return {}
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        took = ended - began
        return {name: round((value - first.get(name, 0)) / took, 2) for name, value in last.items()}


class Measure(msgspec.Struct, frozen=True):
    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    """Beside `process`, which each has that a process counts."""
    by_process: bool = True


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One number of a measure; of a histogram the sum, with how many are in each bucket."""

    name: str
    value: float
    labels: dict[str, str] = {}
    counts: list[int] = []


def of_times(name: str, times: Iterable[Times], **labels: str) -> Sample:
    """One distribution of several."""
    counts, total = [0] * len(LE), 0.0
    for each in times:
        counts = [a + b for a, b in zip(counts, each.counts, strict=True)]
        total += each.total
    return Sample(name, total, labels, counts)


def _counter(name: str, help: str, *labels: str) -> Measure:
    return Measure(f"roskva_{name}_total", "counter", help, labels)


def _gauge(name: str, help: str, *labels: str) -> Measure:
    return Measure(f"roskva_{name}", "gauge", help, labels)


def _times(name: str, help: str, *labels: str) -> Measure:
    return Measure(f"roskva_{name}_seconds", "histogram", help, labels)


def _of_node(*measures: Measure) -> tuple[Measure, ...]:
    return tuple(msgspec.structs.replace(measure, by_process=False) for measure in measures)


GROUPS: Final[dict[str, tuple[Measure, ...]]] = {
    "Processes": (
        _gauge("process_up", "1 if the process answered, 0 if it did not.", "role"),
        _gauge("process_resident_bytes", "Memory in use."),
        _counter("process_cpu_seconds", "Processor time used."),
        _times("loop_lag", "How late the event loop came to what was due."),
    ),
    "Updates": (
        _counter("updates_published", "Updates made durable in the feed.", "traffic"),
        _gauge("updates_held", "Published to a shard that is away, and waiting for it."),
        _counter("updates_sent_again", "To a shard that is back: it may have had them."),
        _counter(
            "updates_refused",
            "Not taken: more than allowed, load was shed, or the disk full.",
            "why",
        ),
        _counter("updates_applied", "Newer than what the matcher knew, by how they came.", "way"),
        _counter("updates_old", "Updates dropped: the matcher knew something as new."),
        _counter("pushes", "Objects that changed and that somebody online cares about."),
        _counter("pushes_replaced", "Pushes overtaken while they waited (`batch_ms`).", "stage"),
        _counter("gaps", "Gaps in what was handed to matchers, and not left to the bridge."),
        _counter("epochs", "New epochs: what a shard knew could not be vouched for any more."),
        _gauge("shard_lag_offsets", "How far a matcher stands behind the feed.", "shard"),
        _gauge("shard_unflushed_offsets", "Applied and not on disk in the store.", "shard"),
        _gauge("shard_reads_alone", "1 if a shard reads its feed for lack of a bridge.", "shard"),
        _gauge("objects", "Objects in memory: those that somebody online cares about.", "shard"),
        _gauge("links", "Registrars linked to a shard.", "shard"),
        _counter("links_opened", "By registrars, to shards: all sessions are then compared anew."),
        _counter("old_owners", "Links dropped because another has taken the shard over since."),
    ),
    "Disk": (
        _times("feed_append", "To append a group of updates and make it durable."),
        _times("feed_fsync", "To sync a file of the feed: a part of appending."),
        _times("store_write", "To write a group of rows, without the sync."),
        _times("store_sync", "To make a group of rows durable."),
        _times("store_read", "To answer a read, or another call of the store."),
        _gauge("collector_share_ratio", "Of its rows, how far a shard's collector is.", "shard"),
        _counter("collector_rounds", "Times that a shard was looked through for what expired."),
        _counter("clients_collected", "Clients forgotten that were away for too long."),
        _counter("registrations_collected", "Registrations of these."),
        _counter("orphans_collected", "Of these clients, those whose rows belonged to nobody."),
        _counter("objects_collected", "Objects dropped that nobody had asked for for long."),
        _gauge("store_waiting_operations", "Writes asked for and not durable yet."),
        _gauge("rows", "In the store, estimated from the first few of a kind.", "shard", "kind"),
        *_of_node(
            _gauge("disk_size_bytes", "Of the disk with the data."),
            _gauge("disk_free_bytes", "Of it, what is left for the node."),
            _gauge("disk_floor_bytes", "With less free than this nothing is published."),
            _gauge("disk_refuses", "1 if that is so, and 0 if not."),
            _gauge("disk_used_bytes", "What the data directory takes.", "part"),
            _gauge("feed_cap_bytes", "Beyond this the oldest updates of all feeds are dropped."),
        ),
    ),
    "Notifications": (
        _counter("notifications", "Handed to clients: a version, or unknown.", "traffic", "kind"),
        _counter("notifications_resent", "Of these, those that the regular check found not acked."),
        _counter("notifications_suppressed", "Left out: the session made the change itself."),
        _counter("broadcasts", "Changes told to all sessions of an object together."),
        _counter("acks", "Acks taken."),
        _counter("acks_refused", "Acks of what is gone (stale) or was never sent (forged).", "why"),
    ),
    "Sessions": (
        _gauge("sessions", "Connections of clients.", "channel", "traffic"),
        _gauge("registrations", "Registrations of sessions that are online.", "traffic"),
        _gauge("slow_sessions", "Sessions that read too slowly, and are left out for now."),
        _counter("slow_sessions_skipped", "Times that a session began to lag."),
        _counter("sync_repairs", "Times a client said its registrations again: digests differed."),
        _counter("sessions_opened", "Sessions numbered by the owner of their row."),
        _counter("sessions_fenced", "Sessions ended because their client opened a newer one."),
        _counter("sessions_expired", "Ended for silence, or because no hello came in time."),
        _counter("sessions_revoked", "Sessions ended because their rights were."),
        _counter("sessions_over_limit", "Refused: their principal has as many as it may have."),
        _counter("handshakes_turned_away", "Told to come back later: too many, or load was shed."),
        _counter("reads_refused", "HTTP requests to read or watch, refused as load was shed."),
        _counter("tokens_rejected", "Hellos refused: a token that is not good, or revoked rights."),
        _counter("tokens_refreshed", "Tokens replaced before they expired."),
        _counter("messages_stale", "Messages of an older session, or overtaken ones."),
        _counter("row_writes", "Registrations and acks written to client rows, by the batch."),
        _counter(
            "row_writes_refused",
            "A newer session (fenced), no row (unknown), too much of one principal (over_share).",
            "why",
        ),
        _counter("mqtt_troubles", "MQTT: what went wrong with connections.", "what"),
    ),
    "Latency": (
        _times("stage", "Since publishing, until an update that is followed was there.", "stage"),
    ),
    "Pipeline": _of_node(
        _gauge("pipeline_running", "1 if the pipeline runs, 0 if it should and does not."),
        _gauge("pipeline_lag_updates", "In the feed, and not at the matchers."),
        _gauge("pipeline_lag_seconds", "How old the oldest of these is."),
        _counter("pipeline_batches", "Micro-batches.", "part"),
        _gauge("pipeline_batch_seconds", "What the last batch took.", "part", "stage"),
        _counter("pipeline_ranges_delivered", "Taken from the bridge by matchers."),
        _counter("pipeline_gaps_closed", "Gaps closed by reading the feed again."),
        _counter("pipeline_rows", "Rows ingested.", "part"),
        _counter("pipeline_dead_letters", "Rows that did not translate.", "part"),
        _gauge("pipeline_resident_bytes", "Memory of all its processes."),
        _counter("pipeline_cpu_seconds", "Processor time of all its processes."),
    ),
    "Sources": _of_node(
        _gauge("source_reading", "1 if its database is read.", "source"),
        _counter("source_changes", "Changes of rows that were read.", "source"),
        _counter("source_published", "Of these, told by the direct flow.", "source"),
        _counter("source_superseded", "And left out for a later one of the same row.", "source"),
        _counter("source_doubts", "Times that changes may be missing: an app was reset.", "source"),
        _gauge("source_ordinal", "It rises at each doubt, whatever is restarted.", "source"),
        _gauge("source_tables_broken", "Tables that cannot be read for now.", "source"),
        _gauge("source_lag_bytes", "Of its log, which the database keeps for us.", "source"),
        _gauge("source_lag_limit_bytes", "What that should not pass: `max_lag_bytes`.", "source"),
        _gauge("source_lag_seconds", "Since all was read that had been committed.", "source"),
        _gauge("flow_lag_changes", "Read, and not yet passed on by a flow.", "source", "flow"),
        _gauge("flow_lag_seconds", "How old the oldest of these is.", "source", "flow"),
        _gauge(
            "source_invisible",
            "1 while a transaction is committed that nobody can see: nothing is passed on.",
            "source",
        ),
    ),
    "Prober": _of_node(
        _counter("probe_rounds", "Rounds of the prober."),
        _times("probe", "What users would see, if it did not fail.", "sli"),
        _counter("probe_missed", "Rounds that failed, or took too long.", "sli"),
        _gauge("slo_target_seconds", "What it may take.", "sli"),
        _gauge("slo_kept", "1 if the last round kept it, 0 if not.", "sli"),
        _gauge(
            "slo_budget_left_ratio",
            "Of the error budget of a day, time without a node missed.",
            "sli",
        ),
        _gauge("slo_burn_rate", "At 1 the budget lasts just as long.", "sli", "window"),
    ),
}

MEASURES: Final = tuple(measure for group in GROUPS.values() for measure in group)
