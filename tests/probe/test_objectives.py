"""What is made of the outcomes of rounds: words, budgets, and what the node tells."""

import pytest

from roskva.config import SLIS, ProbeConfig, SloConfig
from roskva.model import PROBE_APP, ObjectId, shard_of
from roskva.probe.history import DAY_S
from roskva.probe.objectives import HOUR_S, Budget, Objectives, missed, sentence
from roskva.probe.paths import what_is_wrong
from roskva.probe.round import PATHS, Measurement, objects
from roskva.wire.admin import PartNow, PipelineNow

SLO = SloConfig()
ROUND_S = 5.0


def test_the_sentence_names_what_was_too_slow_and_what_failed() -> None:
    slow, good = Measurement("publish", 0.4), Measurement("register", 0.1)
    failed = Measurement("notify-mqtt", None, "not within 2 s")
    assert missed(slow, SLO)
    assert not missed(good, SLO)
    assert sentence([good], SLO) == "All 1 paths are well."
    assert sentence([good, slow, failed], SLO) == (
        "publish took 400 ms, over its target of 250 (publisher → feed). "
        "notify-mqtt fails (feed → matcher → registrar → MQTT): not within 2 s."
    )


def test_every_path_has_an_objective() -> None:
    assert set(PATHS) == set(SLIS)
    assert all(SLO.of(sli).target_ms > 0 for sli in SLIS)


def spent(rounds: int, every: int, share: float = 0.99) -> tuple[Budget, float]:
    """A budget after so many rounds, of which one in `every` was missed; and the time."""
    budget, now = Budget(share, 0.0), 0.0
    for number in range(rounds):
        now += ROUND_S
        budget.count(number % every == 0, now)
    return budget, now


def test_a_share_that_is_just_kept_spends_the_budget_of_a_day_in_a_day() -> None:
    budget, now = spent(int(DAY_S / ROUND_S), every=100)
    assert budget.burn(HOUR_S, now) == pytest.approx(1.0, rel=0.05)
    assert budget.burn(DAY_S, now) == pytest.approx(1.0, rel=0.01)
    assert budget.left(now) == pytest.approx(0.0, abs=0.01)


def test_an_hour_of_failure_burns_a_hundred_times_too_fast() -> None:
    budget, now = spent(int(HOUR_S / ROUND_S), every=1)
    assert budget.burn(HOUR_S, now) == pytest.approx(100.0)
    assert budget.left(now) == pytest.approx(1 - 100 / 24)


def test_one_slow_round_of_a_node_that_just_started_spends_little() -> None:
    budget, now = spent(1, every=1)
    assert budget.left(now) > 0.9
    assert budget.burn(HOUR_S, now) < 2


def test_what_is_longer_ago_than_a_day_is_forgotten_and_takes_no_room() -> None:
    budget, now = spent(int(HOUR_S / ROUND_S), every=1)
    for _ in range(int(DAY_S / ROUND_S)):
        now += ROUND_S
        budget.count(False, now)
    assert budget.left(now) == 1.0
    assert len(budget._minutes) <= DAY_S / 60


def test_what_was_not_measured_is_neither_kept_nor_missed() -> None:
    watch = Objectives(ProbeConfig(), SLO, 1, 0.0)
    watch.add_round([Measurement("publish", 0.01), Measurement("notify-mqtt", 0.02)], 5.0)
    found, _ = watch.add_round([Measurement("publish", None, "the disk is full")], 10.0)
    publish, mqtt = found.objectives
    assert (publish.kept, publish.measured, publish.missed) == (False, 2, 1)
    assert publish.text == "publish fails (publisher → feed): the disk is full."
    assert sum(publish.counts) == 1
    assert publish.budget_left < 1
    assert (mqtt.kept, mqtt.took_ms, mqtt.measured, mqtt.missed) == (None, None, 1, 0)
    assert mqtt.budget_left == 1


def test_each_process_with_shards_has_an_object_in_one_of_them() -> None:
    owners = [(0, "state-0"), (1, "state-0"), (2, "state-1"), (3, "state-1")]
    found = objects(owners, 4)
    assert list(found.values()) == ["state-0", "state-1"]
    assert [shard_of(ObjectId(PROBE_APP, name).key, 4) for name in found] == [0, 2]


def test_a_pipeline_that_is_silent_or_failing_is_named() -> None:
    running = PipelineNow("running", written_at=100.0, parts=[PartNow("bridge", "running")])
    assert what_is_wrong(running, 101.0) == ""
    assert what_is_wrong(running, 104.0) == "the pipeline does not answer"
    assert what_is_wrong(None, 0.0) == "the pipeline does not answer"
    failing = PartNow("bridge", "failed", last_error="no space")
    running.parts = [failing]
    assert what_is_wrong(running, 100.0) == "the bridge is failed: no space"
