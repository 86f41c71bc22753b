"""What a node says is wrong with it, and what comes first."""

from roskva.config import ProbeConfig, SloConfig
from roskva.probe.objectives import Objectives
from roskva.probe.round import Measurement
from roskva.server.admin.sentences import explain_node, find_troubles
from roskva.wire.admin import Freshness, PartNow, PipelineNow, ProcessNow, ShardNow

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
        "state-0 does not answer: shards 0, 1 take no updates and cannot tell anybody, until it is "
        "back."
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


def test_the_pipeline_says_what_is_wrong_with_it_and_the_worst_comes_first() -> None:
    parts = [
        PartNow("bridge", "running", gaps=[1]),
        PartNow("ingest sales", "failed", last_error="no such table", dead_letters=3),
    ]
    found = said(STATE, REGISTRAR, shards=[SHARD], pipeline=PipelineNow("running", parts=parts))
    assert found[0] == "Ingest sales has failed and is tried again: no such table"
    assert "closing a gap of shard 1" in found[1]
    assert "could not publish 3 rows" in found[2]
    assert said(STATE, REGISTRAR, shards=[SHARD], pipeline=PipelineNow("off")) == []


def test_slow_readers_are_counted() -> None:
    found = said(STATE, REGISTRAR, shards=[SHARD], freshness=Freshness(1, 0, 1, 1, 0, 1))
    assert "1 client does not read" in found[0]


def test_a_path_that_fails_is_worse_than_one_that_was_slow_once() -> None:
    outcomes = [
        Measurement("register", 0.7),
        Measurement("publish", 0.01),
        Measurement("notify-mqtt", None, "nobody is there"),
    ]
    objectives = Objectives(ProbeConfig(), SloConfig(), 1).add_round(outcomes).objectives
    found = find_troubles([STATE, REGISTRAR], [SHARD], WELL, PipelineNow("running"), objectives)
    assert [(one.level, one.text) for one in found] == [
        ("bad", "Notify-mqtt fails (feed → matcher → registrar → MQTT): nobody is there."),
        (
            "warn",
            "Register took 700 ms, over its target of 500 (client → registrar → client's shard).",
        ),
    ]
