"""The prober of a node notices what is hurt within its interval, and says which path it is."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.probe.hurting import SETTLED_S, Probed, signal_all
from tests.serving.nodes import await_that

from roskva.config import SLIS


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
        with node.keeps_dying(spared={node.pid("state-0")}):
            node.await_hurt(
                *("register", "notify-websocket"),
                says=["register fails (client → registrar", "notify-websocket fails"],
            )
        node.await_well()
        probe = node.status()["probe"]
        registering = next(one for one in probe["objectives"] if one["sli"] == "register")
        assert registering["missed"] > 0
        assert registering["budget_left"] < 1
        assert registering["burn_1h"] > 0
        kept = 'roskva_slo_kept{sli="register"} 1.0'
        await_that(lambda: kept in node.get("/metrics").text, SETTLED_S)
        assert 'roskva_slo_burn_rate{sli="register",window="24h"}' in node.get("/metrics").text


def test_a_matcher_that_keeps_dying_is_named(tmp_path: Path) -> None:
    with probed(tmp_path, "--registrars", "1", "--matchers", "2") as node:

        def troubles() -> str:
            found = node.get("/v1/admin/now").json()["troubles"]
            return "\n".join(trouble["text"] for trouble in found)

        with node.keeps_dying(spared={node.pid("state-0"), node.pid("registrar-0")}):
            node.await_hurt(
                *("notify-websocket", "publish"),
                unhurt={"notify-events"},  # of what state-0 has
                says=[
                    "notify-websocket fails (feed → matcher → registrar → WebSocket)",
                    "publish fails (publisher → feed): state-1: ",
                ],
            )
            await_that(lambda: "Notify-websocket fails" in troubles(), SETTLED_S, troubles)


def test_a_feed_whose_disk_is_full_hurts_publishing_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = tmp_path / "full"
    monkeypatch.setenv("FULL_WHILE", str(full))
    with probed(tmp_path, command=(sys.executable, "-m", "tests.probe.full_disk")) as node:
        full.touch()
        words = "publish fails (publisher → feed)"
        node.await_hurt("publish", unhurt={*SLIS} - {"publish"}, says=[words])
        full.unlink()
        node.await_well()


@pytest.mark.verify
def test_a_pipeline_that_stops_hurts_the_way_through_it_alone(tmp_path: Path) -> None:
    with probed(tmp_path, pipeline=True) as node:
        node.await_well("notify-pipeline")
        stopped = [pid for pid in node.processes() if _is_of_pipeline(pid)]
        signal_all(stopped, signal.SIGSTOP)
        node.await_hurt(
            "notify-pipeline",
            unhurt={*SLIS} - {"notify-pipeline"},
            says=["notify-pipeline fails (feed → pipeline → matcher)"],
        )
        signal_all(stopped, signal.SIGCONT)
        node.await_well("notify-pipeline")
        signal_all(stopped, signal.SIGKILL)
        node.await_hurt("notify-pipeline")
        node.await_well("notify-pipeline")


def _is_of_pipeline(pid: int) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # Spark has others do something now and then
        return False
    return b"roskva.pipeline" in words or b"java" in words or b"pyspark" in words
