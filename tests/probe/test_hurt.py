"""The prober of a node notices what is hurt within its interval, and says which path it is."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.probe.hurting import Probed


@contextmanager
def probed(tmp_path: Path, *flags: str, **more: Any) -> Iterator[Probed]:
    node = Probed(tmp_path / "data", *flags, **more)
    try:
        node.start()
        node.await_well()
        yield node
    finally:
        node.end()


def test_a_registrar_that_keeps_dying_hurts_whoever_connects(tmp_path: Path) -> None:
    with probed(tmp_path, "--registrars", "1") as node:
        spared = {node.pids()["state-0"]}
        report = node.await_hurt("register", "notify-websocket", meanwhile=node.keeps_dying(spared))
        assert "register fails (client → registrar" in report["sentence"]
        node.await_well()
        probe = node.status()["probe"]
        registering = next(one for one in probe["objectives"] if one["sli"] == "register")
        assert registering["missed"] > 0
        assert registering["budget_left"] < 1
        assert registering["burn_1h"] > 0
        text = httpx.get(f"{node.url}/metrics").text
        assert 'roskva_slo_kept{sli="register"} 1.0' in text
        assert 'roskva_slo_burn_rate{sli="register",window="24h"}' in text


def test_a_matcher_that_keeps_dying_is_named(tmp_path: Path) -> None:
    with probed(tmp_path, "--registrars", "1", "--matchers", "2") as node:
        pids = node.pids()
        spared = {pids["state-0"], pids["registrar-0"]}
        report = node.await_hurt("notify-websocket", "publish", meanwhile=node.keeps_dying(spared))
        assert "(feed → matcher → registrar → WebSocket)" in report["sentence"]
        assert "publish fails (publisher → feed): state-1: " in report["sentence"]
        assert node.kept()["notify-events"] is not False  # of what state-0 has
        now = httpx.get(f"{node.url}/v1/admin/now").raise_for_status().json()
        said = [trouble["text"] for trouble in now["troubles"]]
        assert any("Notify-websocket fails" in text for text in said), said


def test_a_feed_whose_disk_is_full_hurts_publishing_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = tmp_path / "full"
    monkeypatch.setenv("FULL_WHILE", str(full))
    with probed(tmp_path, command=(sys.executable, "-m", "tests.probe.full_disk")) as node:
        full.touch()
        report = node.await_hurt("publish")
        hurt = [one["sli"] for one in report["objectives"] if one["kept"] is False]
        assert hurt == ["publish"]
        assert "publish fails (publisher → feed)" in report["sentence"]
        full.unlink()
        node.await_well()


@pytest.mark.verify
def test_a_pipeline_that_stops_hurts_the_way_through_it_alone(tmp_path: Path) -> None:
    with probed(tmp_path, pipeline=True) as node:
        node.await_well("notify-pipeline")
        stopped = [pid for pid in node.processes() if _is_of_pipeline(pid)]
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        report = node.await_hurt("notify-pipeline")
        hurt = [one["sli"] for one in report["objectives"] if one["kept"] is False]
        assert hurt == ["notify-pipeline"]
        assert "(feed → pipeline → matcher)" in report["sentence"]
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        node.await_well("notify-pipeline")
        for pid in stopped:
            os.kill(pid, signal.SIGKILL)
        node.await_hurt("notify-pipeline")
        node.await_well("notify-pipeline")


def _is_of_pipeline(pid: int) -> bool:
    words = Path(f"/proc/{pid}/cmdline").read_bytes()
    return b"roskva.pipeline" in words or b"java" in words or b"pyspark" in words
