"""What the processes of a node have counted, as samples, and as the text that Prometheus wants.

See `roskva.metrics`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from roskva.feed.trace import Trace
from roskva.host.batching import Batching
from roskva.host.observer import WAYS
from roskva.metrics import LE, MEASURES, TRAFFIC, Measure, Sample, Times, of_times
from roskva.server.observers import TrafficCounters
from roskva.server.registrar import RegistrarServer, traffic_of
from roskva.server.shard import ShardServer
from roskva.wire.admin import DiskNow, PipelineNow, ProbeNow, ProcessNow, ShardNow, SourceNow

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_NO_LABELS: Final[Mapping[str, str]] = {}
_OF_MATCHER: Final = {
    "old": "updates_old",
    "pushes": "pushes",
    "epochs": "epochs",
    "dropped": "objects_collected",
}
_OF_ROWS: Final = {
    "opened": "sessions_opened",
    "writes": "row_writes",
    "collected": "clients_collected",
    "collected_registrations": "registrations_collected",
    "collected_orphans": "orphans_collected",
}
_OF_REGISTRAR: Final = {
    "broadcasts": "broadcasts",
    "acks": "acks",
    "notified_again": "notifications_resent",
    "suppressed": "notifications_suppressed",
    "lagged": "slow_sessions_skipped",
    "syncs": "sync_repairs",
    "turned_away": "handshakes_turned_away",
    "rejected_tokens": "tokens_rejected",
    "refreshed_tokens": "tokens_refreshed",
    "fenced": "sessions_fenced",
    "expired": "sessions_expired",
    "revoked": "sessions_revoked",
    "over_session_limit": "sessions_over_limit",
    "stale_messages": "messages_stale",
    "links_opened": "links_opened",
    "old_owners": "old_owners",
}


def of_process(
    process: ProcessNow,
    front: RegistrarServer | None,
    shards: Sequence[tuple[ShardServer, ShardNow]],
    counters: TrafficCounters,
    mqtt: Mapping[str, int],
    lag: Times,
    trace: Trace | None,
) -> Iterator[Sample]:
    owned = [shard for shard, _ in shards]
    yield Sample("roskva_process_up", 1, {"role": process.role})
    yield from _samples(
        process_resident_bytes=process.rss_bytes, process_cpu_seconds_total=process.cpu_seconds
    )
    yield of_times("roskva_loop_lag_seconds", [lag])
    for _, now in shards:
        yield from _samples(
            {"shard": str(now.shard)},
            shard_lag_offsets=max(0, now.feed_end - now.applied),
            shard_reads_alone=int(now.reads_alone),  # JSON makes no number of a bool
            shard_unflushed_offsets=max(0, now.applied - now.durable),
            objects=now.objects,
            links=now.links,
            collector_share_ratio=now.collector_share,
        )
        yield from _by("rows", "kind", now.rows, {"shard": str(now.shard)})
    yield from counted(front, owned, counters, mqtt)
    if owned:
        yield from _disks_of(owned)
    if front is not None:
        yield from _online(front)
    if trace is not None:
        for stage, times in trace.since_published.items():
            yield of_times("roskva_stage_seconds", [times], stage=stage)


def counted(
    front: RegistrarServer | None,
    shards: Sequence[ShardServer],
    counters: TrafficCounters,
    mqtt: Mapping[str, int],
) -> Iterator[Sample]:
    """All counters of a process but its processor time; they cost little to ask for."""
    if shards:
        yield from _counted_by_shards(shards, counters)
    if front is not None:
        yield from _counted_by_front(front, counters)
    yield from _by("mqtt_troubles_total", "what", mqtt)


def by_name(samples: Iterable[Sample]) -> dict[str, int]:
    """Counters as `/v1/status` has them: see `ProcessNow.counters`."""
    found: dict[str, int] = {}
    for sample in samples:
        labels = dict(sample.labels)
        if labels.pop("traffic", "users") == "users":
            name = sample.name.removeprefix("roskva_").removesuffix("_total")
            found[".".join([name, *labels.values()])] = int(sample.value)
    return found


def _samples(labels: Mapping[str, str] = _NO_LABELS, /, **values: float) -> Iterator[Sample]:
    for name, value in values.items():
        yield Sample(f"roskva_{name}", value, dict(labels))


def _by(
    name: str, label: str, values: Mapping[str, float], labels: Mapping[str, str] = _NO_LABELS
) -> Iterator[Sample]:
    """One measure, by what a label says."""
    for value, count in values.items():
        yield Sample(f"roskva_{name}", count, {**labels, label: value})


def _renamed(names: Mapping[str, str], counts: Mapping[str, int]) -> Iterator[Sample]:
    for counter, name in names.items():
        yield Sample(f"roskva_{name}_total", counts[counter])


def _counted_by_shards(
    shards: Sequence[ShardServer], counters: TrafficCounters
) -> Iterator[Sample]:
    yield from _by("updates_published_total", "traffic", counters.published)
    ways = [counters.ways[shard.number] for shard in shards]
    applied: dict[str, int] = {way: sum(of_shard[way] for of_shard in ways) for way in WAYS}
    yield from _by("updates_applied_total", "way", applied)
    yield Sample("roskva_gaps_total", counters.gaps)
    matchers, rows = Counter[str](), Counter[str]()
    for shard in shards:
        matchers.update(shard.matcher.counters)
        rows.update(shard.rows.counters)
    yield from _renamed(_OF_MATCHER, matchers)
    yield from _renamed(_OF_ROWS, rows)
    refused = {why: rows[why] for why in ("fenced", "unknown", "over_share")}
    yield from _by("row_writes_refused_total", "why", refused)
    yield from _samples(collector_rounds_total=sum(shard.collector.rounds for shard in shards))
    yield _replaced("shard", [shard.batching for shard in shards])


def _replaced(stage: str, batchings: Iterable[Batching]) -> Sample:
    count = sum(batching.replaced for batching in batchings)
    return Sample("roskva_pushes_replaced_total", count, {"stage": stage})


def _counted_by_front(front: RegistrarServer, counters: TrafficCounters) -> Iterator[Sample]:
    core = front.core
    yield from _renamed(_OF_REGISTRAR, core.counters)
    refused = {why: core.counters[f"{why}_acks"] for why in ("stale", "forged")}
    yield from _by("acks_refused_total", "why", refused)
    for (traffic, kind), count in counters.notifications.items():
        label = {"traffic": traffic, "kind": kind}
        yield Sample("roskva_notifications_total", count, label)
    yield _replaced("registrar", [front.host.batching])
    yield from _by("updates_refused_total", "why", front.refused_updates)
    yield from _samples(
        updates_sent_again_total=front.host.submissions.sent_again,
        reads_refused_total=front.refused_reads,
    )


def _disks_of(shards: Sequence[ShardServer]) -> Iterator[Sample]:
    yield of_times("roskva_feed_append_seconds", [shard.feed.times for shard in shards])
    yield of_times("roskva_feed_fsync_seconds", [shard.fsync_times for shard in shards])
    for name in ("write", "sync", "read"):
        times = [getattr(shard.store, f"{name}_times") for shard in shards]
        yield of_times(f"roskva_store_{name}_seconds", times)
    waiting = sum(shard.store.waiting for shard in shards)
    yield from _samples(store_waiting_operations=waiting)


def _online(front: RegistrarServer) -> Iterator[Sample]:
    core = front.core
    for traffic, by_channel in front.sessions().items():
        yield from _by("sessions", "channel", by_channel, {"traffic": traffic})
    registered = dict.fromkeys(TRAFFIC, 0)
    for session in core.conns.values():
        registered[traffic_of(session)] += len(session.registered)
    yield from _by("registrations", "traffic", registered)
    held = front.host.submissions.held_updates
    yield from _samples(slow_sessions=len(core.slow), updates_held=held)


def of_pipeline(report: PipelineNow) -> Iterator[Sample]:
    """What it last said of itself."""
    if report.state == "off":
        return
    yield from _samples(
        pipeline_running=report.state == "running",
        pipeline_resident_bytes=report.rss_bytes,
        pipeline_cpu_seconds_total=report.cpu_seconds,
    )
    for part in report.parts:
        label = {"part": part.name}
        yield from _samples(label, pipeline_batches_total=part.batches)
        last = part.recent[-1].stages_ms if part.recent else {}
        seconds = {stage: ms / 1000 for stage, ms in last.items()}
        yield from _by("pipeline_batch_seconds", "stage", seconds, label)
        if part.rows is not None:
            yield from _samples(label, pipeline_rows_total=part.rows)
        if part.dead_letters is not None:
            yield from _samples(label, pipeline_dead_letters_total=part.dead_letters)
        if part.name == "bridge":
            yield from _samples(
                pipeline_lag_updates=part.lag_updates or 0,
                pipeline_lag_seconds=part.lag_seconds or 0,
                pipeline_gaps_closed_total=part.gaps_closed,
                pipeline_ranges_delivered_total=part.delivered or 0,
            )


def of_sources(reports: Sequence[SourceNow], pipeline: PipelineNow) -> Iterator[Sample]:
    """With their flows: those on Spark are parts of the pipeline."""
    for report in reports:
        label = {"source": report.name}
        yield from _samples(
            label,
            source_reading=int(report.state == "reading"),
            source_changes_total=report.changes,
            source_doubts_total=report.doubts,
            source_invisible=int(report.invisible),
            source_published_total=report.published,
            source_superseded_total=report.superseded,
            source_tables_broken=len(report.complaints),
            source_lag_limit_bytes=report.max_lag_bytes,
        )
        if report.ordinal:
            yield from _samples(label, source_ordinal=report.ordinal)
        if report.lag_bytes is not None:
            yield from _samples(label, source_lag_bytes=report.lag_bytes)
        if report.lag_seconds is not None:
            yield from _samples(label, source_lag_seconds=report.lag_seconds)
        yield from _samples(
            {**label, "flow": "direct"},
            flow_lag_changes=max(0, report.last - report.flow),
            flow_lag_seconds=report.flow_lag_seconds,
        )
    for part in pipeline.parts:
        if part.source:
            yield from _samples(
                {"source": part.source, "flow": part.name},
                flow_lag_changes=part.lag_updates or 0,
                flow_lag_seconds=part.lag_seconds or 0,
            )


def of_disk(disk: DiskNow) -> Iterator[Sample]:
    yield from _samples(
        disk_size_bytes=disk.total,
        disk_free_bytes=disk.free,
        disk_floor_bytes=disk.floor,
        disk_refuses=int(disk.refuses),
    )
    yield from _by("disk_used_bytes", "part", disk.parts)
    if disk.feed_cap is not None:
        yield from _samples(feed_cap_bytes=disk.feed_cap)


def of_probe(report: ProbeNow) -> Iterator[Sample]:
    """What it found in its last round, and since it started."""
    if report.state == "running":
        yield from _samples(probe_rounds_total=report.rounds)
    for one in report.objectives:
        label = {"sli": one.sli}
        yield Sample("roskva_probe_seconds", one.total_seconds, label, one.counts)
        yield from _samples(
            label,
            probe_missed_total=one.missed,
            slo_target_seconds=one.target_ms / 1000,
            slo_budget_left_ratio=one.budget_left,
        )
        if one.kept is not None:
            yield from _samples(label, slo_kept=one.kept)
        yield from _by("slo_burn_rate", "window", {"1h": one.burn_1h, "24h": one.burn_24h}, label)


# As text.


def exposition(told: Mapping[str | None, Iterable[Sample]]) -> bytes:
    """`told`: by every process. None: what belongs to no process."""
    from prometheus_client import generate_latest  # nothing else of a process needs it

    by_name: dict[str, list[tuple[str | None, Sample]]] = {}
    for process, samples in told.items():
        for sample in samples:
            by_name.setdefault(sample.name, []).append((process, sample))
    return generate_latest(_Collected(by_name))


class _Collected:
    def __init__(self, by_name: Mapping[str, list[tuple[str | None, Sample]]]) -> None:
        self._by_name = by_name

    def collect(self) -> Iterator["Metric"]:
        for measure in MEASURES:
            if measure.name in self._by_name:
                yield _family(measure, self._by_name[measure.name])


def _family(measure: Measure, samples: list[tuple[str | None, Sample]]) -> "Metric":
    from prometheus_client import core

    names = [*(("process",) if measure.by_process else ()), *measure.labels]
    if measure.kind == "histogram":
        histogram = core.HistogramMetricFamily(measure.name, measure.help, labels=names)
        for process, sample in samples:
            buckets, count = [], 0
            for le, n in zip(LE, sample.counts, strict=True):
                count += n
                buckets.append((le, float(count)))
            histogram.add_metric(_values(measure, process, sample), buckets, sample.value)
        return histogram
    kind: Any = core.CounterMetricFamily
    if measure.kind == "gauge":
        kind = core.GaugeMetricFamily
    family = kind(measure.name, measure.help, labels=names)
    for process, sample in samples:
        family.add_metric(_values(measure, process, sample), sample.value)
    found: Metric = family
    return found


def _values(measure: Measure, process: str | None, sample: Sample) -> list[str]:
    own = [process or ""] if measure.by_process else []
    return [*own, *(sample.labels.get(label, "") for label in measure.labels)]
