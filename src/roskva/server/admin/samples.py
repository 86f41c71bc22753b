"""What the processes of a node have counted, as samples: see `roskva.metrics`."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from roskva.feed.trace import Trace
from roskva.metrics import TRAFFIC, Sample, Times, of_times
from roskva.server.observers import Counters
from roskva.server.registrar import RegistrarServer, traffic_of
from roskva.server.shard import ShardServer
from roskva.wire.admin import PipelineNow, ProbeNow, ProcessNow, ShardNow

_OF_MATCHER: Final = {
    "applied": "updates_applied",
    "old": "updates_old",
    "pushes": "pushes",
    "gaps": "gaps",
    "epochs": "epochs",
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
    "stale_messages": "messages_stale",
    "links_opened": "links_opened",
}


def of_process(
    process: ProcessNow,
    front: RegistrarServer | None,
    shards: Sequence[tuple[ShardServer, ShardNow]],
    counters: Counters,
    mqtt: Mapping[str, int],
    lag: Times,
    trace: Trace | None,
) -> Iterator[Sample]:
    yield Sample("roskva_process_up", 1, {"role": process.role})
    yield Sample("roskva_process_resident_bytes", process.rss_bytes)
    yield Sample("roskva_process_cpu_seconds_total", process.cpu_seconds)
    yield of_times("roskva_loop_lag_seconds", [lag])
    for _, now in shards:
        yield from _of_shard(now)
    if shards:
        yield from _of_shards([shard for shard, _ in shards], counters)
    if front is not None:
        yield from _of_front(front, counters)
    for what, count in mqtt.items():
        yield Sample("roskva_mqtt_troubles_total", count, {"what": what})
    if trace is not None:
        for stage, times in trace.since_published.items():
            yield of_times("roskva_stage_seconds", [times], stage=stage)


def _of_shard(now: ShardNow) -> Iterator[Sample]:
    number = {"shard": str(now.shard)}
    yield Sample("roskva_shard_lag_offsets", max(0, now.feed_end - now.applied), number)
    yield Sample("roskva_shard_unflushed_offsets", max(0, now.applied - now.durable), number)
    yield Sample("roskva_objects", now.objects, number)
    yield Sample("roskva_links", now.links, number)


def _of_shards(shards: Sequence[ShardServer], counters: Counters) -> Iterator[Sample]:
    def matched(counter: str) -> int:
        return sum(shard.matcher.counters[counter] for shard in shards)

    def rows(counter: str) -> int:
        return sum(shard.rows.counters[counter] for shard in shards)

    for traffic in TRAFFIC:
        published = counters.published[traffic]
        yield Sample("roskva_updates_published_total", published, {"traffic": traffic})
    for counter, name in _OF_MATCHER.items():
        yield Sample(f"roskva_{name}_total", matched(counter))
    yield of_times("roskva_feed_append_seconds", [shard.append_times for shard in shards])
    yield of_times("roskva_feed_fsync_seconds", [shard.fsync_times for shard in shards])
    for name in ("write", "sync", "read"):
        times = [getattr(shard.store, f"{name}_times") for shard in shards]
        yield of_times(f"roskva_store_{name}_seconds", times)
    waiting = sum(shard.store.waiting for shard in shards)
    yield Sample("roskva_store_waiting_operations", waiting)
    yield Sample("roskva_sessions_opened_total", rows("opened"))
    yield Sample("roskva_row_writes_total", rows("writes"))
    for why in ("fenced", "unknown"):
        yield Sample("roskva_row_writes_refused_total", rows(why), {"why": why})


def _of_front(front: RegistrarServer, counters: Counters) -> Iterator[Sample]:
    core = front.core
    for counter, name in _OF_REGISTRAR.items():
        yield Sample(f"roskva_{name}_total", core.counters[counter])
    for why in ("stale", "forged"):
        yield Sample("roskva_acks_refused_total", core.counters[f"{why}_acks"], {"why": why})
    for (traffic, kind), count in counters.notifications.counts.items():
        label = {"traffic": traffic, "kind": kind}
        yield Sample("roskva_notifications_total", count, label)
    for traffic, by_channel in front.sessions().items():
        for channel, count in by_channel.items():
            yield Sample("roskva_sessions", count, {"channel": channel, "traffic": traffic})
    registered = {"users": 0, "probe": 0}
    for session in core.conns.values():
        registered[traffic_of(session)] += len(session.registered)
    for traffic, count in registered.items():
        yield Sample("roskva_registrations", count, {"traffic": traffic})
    yield Sample("roskva_slow_sessions", len(core.slow))


def of_pipeline(report: PipelineNow) -> Iterator[Sample]:
    """What it last said of itself."""
    if report.state == "off":
        return
    yield Sample("roskva_pipeline_running", report.state == "running")
    yield Sample("roskva_pipeline_resident_bytes", report.rss_bytes)
    yield Sample("roskva_pipeline_cpu_seconds_total", report.cpu_seconds)
    for part in report.parts:
        label = {"part": part.name}
        yield Sample("roskva_pipeline_batches_total", part.batches, label)
        for stage, ms in part.recent[-1].stages_ms.items() if part.recent else ():
            yield Sample("roskva_pipeline_batch_seconds", ms / 1000, {**label, "stage": stage})
        for value, name in ((part.rows, "rows"), (part.dead_letters, "dead_letters")):
            if value is not None:
                yield Sample(f"roskva_pipeline_{name}_total", value, label)
        if part.name == "bridge":
            yield Sample("roskva_pipeline_lag_updates", part.lag_updates or 0)
            yield Sample("roskva_pipeline_lag_seconds", part.lag_seconds or 0)
            yield Sample("roskva_pipeline_gaps_closed_total", part.gaps_closed)
            yield Sample("roskva_pipeline_ranges_delivered_total", part.delivered or 0)


def of_probe(report: ProbeNow) -> Iterator[Sample]:
    """What it found in its last round, and since it started."""
    if report.state == "running":
        yield Sample("roskva_probe_rounds_total", report.rounds)
    for one in report.objectives:
        label = {"sli": one.sli}
        yield Sample("roskva_probe_seconds", one.total_seconds, label, one.counts)
        yield Sample("roskva_probe_missed_total", one.missed, label)
        yield Sample("roskva_slo_target_seconds", one.target_ms / 1000, label)
        if one.kept is not None:
            yield Sample("roskva_slo_kept", one.kept, label)
        yield Sample("roskva_slo_budget_left_ratio", one.budget_left, label)
        for window, burn in (("1h", one.burn_1h), ("24h", one.burn_24h)):
            yield Sample("roskva_slo_burn_rate", burn, {**label, "window": window})
