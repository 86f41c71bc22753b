"""What is read from files: dead letters, and what jobs have found."""

import json
import time
from pathlib import Path

import msgspec

from roskva.server.admin.pipeline import audited, detail, keep, keep_objects, plot
from roskva.wire.admin import BatchTimes, PartNow, PipelineNow

OFF = PipelineNow("off", "Java is missing")


class Found(msgspec.Struct):
    registrations: int
    states: dict[str, int]


class Counted:
    """As much of a data frame as is needed."""

    def __init__(self, *rows: tuple[str, str, int]) -> None:
        self.rows = [dict(zip(("object", "state", "count"), row, strict=True)) for row in rows]

    def orderBy(self, column: str) -> "Counted":
        self.rows.sort(key=lambda row: str(row[column]))
        return self

    def toLocalIterator(self) -> list[dict[str, object]]:
        return self.rows


def test_nothing_there_is_nothing_shown(tmp_path: Path) -> None:
    found = detail(tmp_path, OFF)
    assert found.sentence.startswith("The pipeline is off: Java is missing. Clients are told")
    assert (found.batches, found.dead_letters, found.jobs) == ([], [], [])
    assert audited(tmp_path, "a/b") is None


def test_what_a_job_found_is_kept_until_it_runs_again(tmp_path: Path) -> None:
    began = time.time() - 5
    for count in (1, 2):
        directory = keep(tmp_path, "audit", began, Found(count, {"fresh": count}))
    (directory / "curve.svg").write_text("<svg/>")
    (job,) = detail(tmp_path, OFF).jobs
    assert (job.name, job.found["registrations"], job.plots) == ("audit", 2, ["curve.svg"])
    assert job.seconds >= 5
    assert plot(tmp_path, "audit", "curve.svg") == b"<svg/>"


def test_pictures_are_named_and_not_found_by_path(tmp_path: Path) -> None:
    directory = keep(tmp_path, "audit", 0.0, Found(0, {}))
    (tmp_path / "jobs" / "secret.svg").write_text("<svg/>")
    assert plot(tmp_path, "audit", "../secret.svg") is None
    assert plot(tmp_path, "audit", "result.json") is None
    assert plot(tmp_path, "..", "secret.svg") is None
    assert directory.name == "audit"


def test_an_audit_is_looked_up_by_object(tmp_path: Path) -> None:
    keep_objects(tmp_path, Counted(("a/c", "fresh", 1), ("a/b", "pending", 3), ("a/b", "fresh", 7)))
    keep(tmp_path, "audit", 0.0, Found(11, {}))
    found = audited(tmp_path, "a/b")
    assert found is not None
    assert found.states == {"pending": 3, "fresh": 7}
    nobody = audited(tmp_path, "a/")
    assert nobody is not None
    assert nobody.states == {}


def test_the_latest_dead_letters_come_first(tmp_path: Path) -> None:
    letters = tmp_path / "pipeline" / "ingest-sales" / "dead-letters"
    letters.mkdir(parents=True)
    for batch in (1, 2):
        lines = [
            json.dumps({"at": f"{batch}:{i}", "reason": "no version", "row": {"id": i}})
            for i in range(30)
        ]
        (letters / f"{batch:010}-00000.jsonl").write_text("\n".join(lines) + "\n")
    found = detail(tmp_path, OFF).dead_letters
    assert len(found) == 50
    assert (found[0].at, found[-1].at) == ("2:29", "1:10")
    assert (found[0].ingest, found[0].reason, found[0].row) == ("sales", "no version", '{"id": 29}')


def test_batches_are_shown_with_their_stages(tmp_path: Path) -> None:
    batch = BatchTimes(4, 1.0, 9, 30, {"addBatch": 20})
    part = PartNow("bridge", "running", lag_updates=3, recent=[batch])
    found = detail(tmp_path, PipelineNow("running", parts=[part]))
    assert found.sentence == "The pipeline is running; the matchers are 3 updates behind the feed."
    assert (found.batches[0].part, found.batches[0].stages_ms) == ("bridge", {"addBatch": 20})
