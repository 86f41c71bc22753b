"""What a node says is wrong with it, and what comes first."""

from typing import Any

from msgspec.structs import replace

from roskva.config import ProbeConfig, SloConfig
from roskva.probe.objectives import Objectives
from roskva.probe.round import Measurement
from roskva.server.admin.sentences import explain_disk, explain_node, find_troubles
from roskva.wire.admin import (
    DiskNow,
    Freshness,
    NodeTrouble,
    PartNow,
    PipelineNow,
    ProcessNow,
    ShardNow,
    SourceNow,
)

STATE = ProcessNow("state-0", "state")
REGISTRAR = ProcessNow("registrar-0", "registrar")
SHARD = ShardNow(0, "state-0", True, "1", 10, 10, True, 1, 1)
WELL = Freshness(10, 10)


def said(*processes: ProcessNow, shards: list[ShardNow], **parts: object) -> list[str]:
    pipeline = parts.get("pipeline", PipelineNow("running"))
    assert isinstance(pipeline, PipelineNow)
    freshness = parts.get("freshness", WELL)
    assert isinstance(freshness, Freshness)
    return [one.text for one in find_troubles(processes, shards, freshness, pipeline)]


def test_nothing_is_wrong_with_a_node_that_works() -> None:
    assert said(STATE, REGISTRAR, shards=[SHARD]) == []
    assert explain_node([], 2, WELL) == (
        "Everything works. All 10 registrations in 2 sessions are fresh."
    )
    assert explain_node([], 0, Freshness()) == "Everything works. Nobody is connected."
    assert "1 are told and not acked yet" in explain_node([], 1, Freshness(10, 9, 1))


def test_a_process_that_does_not_answer_is_named_with_what_it_means() -> None:
    dead = ProcessNow("state-0", error="no answer")
    silent = [ShardNow(0, "state-0", False), ShardNow(1, "state-0", False)]
    assert said(dead, REGISTRAR, shards=silent) == [
        "state-0 does not answer: updates for shards 0, 1 wait, and nobody is told of them, until "
        "it is back."
    ]
    gone = ProcessNow("registrar-0", error="no answer")
    assert "connecting elsewhere" in said(STATE, gone, shards=[])[0]


def test_a_shard_that_is_behind_is_named() -> None:
    behind = ShardNow(0, "state-0", True, "1", 10, 5000, True, 1, 1)
    assert said(STATE, REGISTRAR, shards=[behind]) == ["Shard 0 is 4,990 updates behind its feed."]
    catching_up = ShardNow(0, "state-0", True, "1", 10, 5000, False, 1, 1)
    assert "catching up" in said(STATE, REGISTRAR, shards=[catching_up])[0]
    alone = ShardNow(0, "state-0", True, "1", 10, 10, True, 1, 0)
    assert "linked to 0 of 1" in said(STATE, REGISTRAR, shards=[alone])[0]


def test_a_shard_that_reads_by_itself_although_there_is_a_pipeline_is_named() -> None:
    alone = ShardNow(0, "state-0", True, "1", 10, 10, True, 1, 1, reads_alone=True)
    [text] = said(STATE, REGISTRAR, shards=[alone])
    assert "the bridge has not brought what was left to it" in text
    assert said(STATE, REGISTRAR, shards=[alone], pipeline=PipelineNow("off")) == []


def test_the_pipeline_says_what_is_wrong_with_it_and_the_worst_comes_first() -> None:
    parts = [
        PartNow("bridge", state="running", gaps=[1]),
        PartNow("ingest sales", state="failed", last_error="no such table", dead_letters=3),
    ]
    found = said(STATE, REGISTRAR, shards=[SHARD], pipeline=PipelineNow("running", parts=parts))
    assert found[0] == "Ingest sales has failed and is tried again: no such table"
    assert "closing a gap of shard 1" in found[1]
    assert "could not publish 3 rows" in found[2]
    assert said(STATE, REGISTRAR, shards=[SHARD], pipeline=PipelineNow("off")) == []


def test_clients_that_do_not_read_are_told_of_after_the_service() -> None:
    slow = Freshness(100, 99, 1, 1, 0, slow_sessions=1)
    behind = ShardNow(0, "state-0", True, "1", 10, 5000, True, 1, 1)
    told = "it is skipped, and told the newest when it does."
    note = f"1 client does not read what it is sent: {told}"
    for shard, sentence in [
        (SHARD, "Everything works. Of 100 registrations in 9 sessions, 99 are fresh."),
        (behind, "Shard 0 is 4,990 updates behind its feed."),
    ]:
        found = find_troubles([STATE, REGISTRAR], [shard], slow, PipelineNow("running"))
        assert found[-1] == NodeTrouble("note", note)
        assert explain_node(found, 9, slow) == f"{sentence} {note}"


def test_a_path_that_fails_is_worse_than_one_that_was_slow_once() -> None:
    outcomes = [
        Measurement("register", 0.7),
        Measurement("publish", 0.01),
        Measurement("notify-mqtt", None, "nobody is there"),
    ]
    objectives = (
        Objectives(ProbeConfig(), SloConfig(), 1, 0.0).add_round(outcomes, 5.0)[0].objectives
    )
    found = find_troubles([STATE, REGISTRAR], [SHARD], WELL, PipelineNow("running"), objectives)
    assert [(one.level, one.text) for one in found] == [
        ("bad", "Notify-mqtt fails (feed → matcher → registrar → MQTT): nobody is there."),
        (
            "warn",
            "Register took 700 ms, over its target of 500 (client → registrar → client's shard).",
        ),
    ]


GIB = 1 << 30
ROOMY = DiskNow(total=100 * GIB, free=50 * GIB, floor=GIB, feed_cap=25 * GIB)


def _of_disk(disk: DiskNow) -> list[NodeTrouble]:
    return find_troubles([STATE, REGISTRAR], [SHARD], WELL, PipelineNow("running"), (), disk)


def test_a_disk_is_a_trouble_before_it_is_full_and_when_it_is() -> None:
    assert _of_disk(ROOMY) == []
    assert _of_disk(replace(ROOMY, floor_in_s=30 * 86400.0)) == []
    (soon,) = _of_disk(replace(ROOMY, floor_in_s=4 * 3600.0))
    assert (soon.level, "in 4 h" in soon.text) == ("warn", True)
    (held,) = _of_disk(replace(ROOMY, parts={"feed": 40 * GIB}))
    assert (held.level, "a reader" in held.text) == ("warn", True)
    (full,) = _of_disk(replace(ROOMY, free=GIB // 2, refuses=True))
    assert (full.level, full.text) == (
        "bad",
        "The disk is almost full: nothing is published until more than 1.0 GiB of it are free, and "
        "512.0 MiB are.",
    )


def test_the_limits_of_a_disk_are_said_with_when_they_are_reached() -> None:
    growing = replace(
        ROOMY, parts={"feed": 5 * GIB}, feed_cap_in_s=3 * 86400.0, floor_in_s=20 * 86400.0
    )
    assert explain_disk(growing) == (
        "50.0 GiB of 100.0 GiB are free. The feeds take 5.0 GiB of their cap of 25.0 GiB, and at "
        "the rate of the last hour reach it in 3 days. With less than 1.0 GiB nothing is "
        "published, and at the rate of the last hour it is so in 20 days."
    )
    assert "have reached their cap" in explain_disk(replace(ROOMY, parts={"feed": 25 * GIB}))


def of_source(**parts: Any) -> list[NodeTrouble]:
    source = SourceNow("shop-db", "shop", **{"state": "reading", "written_at": 1000.0, **parts})
    return find_troubles([STATE, REGISTRAR], [SHARD], WELL, PipelineNow("off"), sources=[source])


def test_a_source_says_what_is_wrong_with_it() -> None:
    assert of_source(lag_bytes=10 << 20, max_lag_bytes=1 << 30, doubt_cause="attached") == []
    [refused] = of_source(state="refused", why="another database cluster")
    assert (refused.level, "another database cluster" in refused.text) == ("bad", True)
    [broken] = of_source(complaints=["products has no column id"])
    assert "passes changes over until this is mended: products has no column id" in broken.text
    [waits] = of_source(invisible=True)
    assert "Is a synchronous standby away?" in waits.text
    [behind] = of_source(last=500, flow=100, flow_lag_seconds=75.0)
    assert "The direct flow of shop-db is 75 s, 400 changes behind" in behind.text


def test_a_database_that_keeps_much_is_told_of_before_it_is_too_much() -> None:
    levels = [
        [trouble.level for trouble in of_source(lag_bytes=kept << 20, max_lag_bytes=1 << 30)]
        for kept in (500, 600, 1100)
    ]
    assert levels == [[], ["warn"], ["bad"]]


def test_a_doubt_is_told_of_for_a_day_but_not_that_a_source_begins() -> None:
    why = {"doubt": "the replication slot is gone", "doubted_at": 400.0}
    [note] = of_source(doubt_cause="slot missing", **why)
    assert note.level == "note"
    assert note.text == (
        "10 min ago the source shop-db could not vouch for all changes, and clients of shop were "
        "told to look: the replication slot is gone."
    )
    assert of_source(doubt_cause="attached", **why) == []
    assert of_source(doubt_cause="slot missing", **why, written_at=200_000.0) == []


def test_a_reset_of_a_source_is_repeated_by_it() -> None:
    some = [replace(SHARD, generations={"shop": 7}), replace(SHARD, shard=1)]
    source = SourceNow("shop-db", "shop", "reading")
    found = find_troubles([STATE, REGISTRAR], some, WELL, PipelineNow("off"), sources=[source])
    assert [trouble.text for trouble in found] == [
        "The reset of shop is in 1 of 2 shards: its source asks the others again."
    ]
