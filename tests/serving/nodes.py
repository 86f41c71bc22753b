"""Nodes as users run them: `roskva serve` in processes of its own, on loopback.

A node keeps its ports from one start to the next, so that its clients find it again.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
from benchmarks.ports import free_port

T = TypeVar("T")

ROSKVA: Final = str(Path(sys.prefix) / "bin/roskva")
FEW_FILES: Final = ("sh", "-c", 'ulimit -n 1024; exec "$0" "$@"', ROSKVA)
"""A node with what systems let a process open by default."""
START_S: Final = 60.0
PATIENCE_S: Final = 60.0
"""For what comes at once, unless the machine stalls."""
_ANSWER_S: Final = 30.0
HTTP: Final = httpx.Client(
    timeout=_ANSWER_S, verify=False, limits=httpx.Limits(max_keepalive_connections=0)
)
"""For single requests, each on a connection of its own."""
_KEPT: Final = httpx.Limits(keepalive_expiry=1.0)
"""A node hangs up on who is idle for 5 s: nobody should ask again at that very moment."""
_MARK: Final = "NODE_UNDER_TEST"
"""In the environment of every process of a node, to find those that are left behind."""
_ALARMS: Final = ("Traceback (most recent call last)", "Fatal Python error", "never awaited")


class Node:
    """Made, started and finally seen off by the fixtures of `conftest.py`."""

    def __init__(
        self,
        data: Path,
        *flags: str,
        command: tuple[str, ...] = (ROSKVA,),
        pipeline: bool = False,
        probe: bool = False,
    ) -> None:
        """`pipeline`: Spark with it, which takes a JVM. `probe`: its prober, which is traffic."""
        self.data = data
        self.flags = flags
        self._without = ("--no-pipeline",) * (not pipeline) + ("--no-probe",) * (not probe)
        self.port, self.mqtt_port = free_port(), free_port()
        self.scheme = "http"
        """Or https; nobody is asked for a certificate here, other tests do that."""
        self.log = data.with_name(data.name + ".log")
        self.command = command
        self._mark = uuid.uuid4().hex
        self._parent: subprocess.Popen[bytes] | None = None
        self._http = self._client()

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    def _client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=_ANSWER_S, verify=False, limits=_KEPT)

    # Its life.

    def start(self, *flags: str) -> None:
        """Until every one of its processes serves. Flags given here are in place of the first."""
        self.flags = flags or self.flags
        self._http.close()  # connections to whoever served here before
        self._http = self._client()
        self.launch()
        self.await_ready()

    def launch(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ROSKVA_")}
        with self.log.open("ab") as log:
            self._parent = subprocess.Popen(
                [
                    *(*self.command, "serve", "--data", str(self.data)),
                    *("--port", str(self.port), "--mqtt-port", str(self.mqtt_port)),
                    *(*self.flags, *self._without),
                ],
                env={**environment, _MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def await_ready(self) -> None:
        await_that(
            self._ready,
            START_S,
            lambda: f"the node does not serve:\n{self.status()}\n{self.said()}",
        )

    def _ready(self) -> bool:
        assert self._parent is not None
        assert self._parent.poll() is None, f"the node ended:\n{self.said()}"
        try:
            if not self.is_ready():
                return False
            status = self.status()
        except httpx.TransportError:
            return False
        fronts = sum("registrar" in process.get("role", "") for process in status["processes"])
        return all("error" not in process for process in status["processes"]) and all(
            shard["links"] == fronts for shard in status["shards"]
        )

    def stop(self) -> None:
        """In peace: everybody is told, and everything is written."""
        assert self._parent is not None
        self._parent.send_signal(signal.SIGTERM)
        assert self._parent.wait(START_S) == 0, self.said()
        self._await_gone()

    def kill(self) -> None:
        """With −9, its parent alone: the others have to notice."""
        assert self._parent is not None
        self._parent.kill()
        self._parent.wait(START_S)
        self._await_gone()

    def reload(self) -> None:
        assert self._parent is not None
        self._parent.send_signal(signal.SIGHUP)

    def signal(self, name: str, number: signal.Signals) -> int:
        """To one of its processes, by its name in the status; returns its pid."""
        pid = self.pid(name)
        os.kill(pid, number)
        return pid

    def kill_any(self, dice: random.Random) -> None:
        """Any one of its processes, with −9; the node is started again if that was its end."""
        assert self._parent is not None
        pid = dice.choice(self.processes())
        if pid == self._parent.pid:
            self.kill()
            self.start()
        else:
            with suppress(ProcessLookupError):  # it was on its way out, after the last one
                os.kill(pid, signal.SIGKILL)

    def crash(self, name: str) -> None:
        """One of its processes, with −9, until another has taken its place."""
        pid = self.signal(name, signal.SIGKILL)
        await_that(lambda: pid not in self.processes(), START_S)
        self.await_ready()

    def _await_gone(self) -> None:
        self._parent = None
        await_that(
            lambda: not self.processes(), START_S, lambda: f"left behind: {self.processes()}"
        )

    def end(self) -> None:
        """Whatever state it is in; and what must be true of every node at its end."""
        self._http.close()  # over TLS the node would wait for that
        if self._parent is not None:
            for pid in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            self.stop()
        left = self.processes()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        assert not left, f"processes are left behind: {left}"
        said = self.said()
        assert not any(alarm in said for alarm in _ALARMS), said

    # What is seen of it from outside.

    def processes(self) -> list[int]:
        """Every process that belongs to this node, whatever it says itself."""
        mark = f"{_MARK}={self._mark}".encode()
        return [
            pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _has(pid, mark)
        ]

    def is_ready(self) -> bool:
        return self._http.get("/readyz").is_success

    def status(self) -> dict[str, Any]:
        status: dict[str, Any] = self._http.get("/v1/status").raise_for_status().json()
        return status

    def pids(self) -> dict[str, int]:
        """By name; of the parent too, if it serves nobody itself."""
        assert self._parent is not None
        found = {p["name"]: p["pid"] for p in self.status()["processes"] if "pid" in p}
        return found if self._parent.pid in found.values() else found | {"parent": self._parent.pid}

    def pid(self, name: str) -> int:
        """A process that does not answer for a while is not named in the status."""
        return await_that(
            lambda: self.pids().get(name), START_S, lambda: f"no {name}: {self.status()}"
        )

    def resident_bytes(self) -> int:
        return sum(process["rss_bytes"] for process in self._answered())

    def counter(self, name: str) -> int:
        return sum(process["counters"].get(name, 0) for process in self._answered())

    def reasons_to_repeat(self) -> dict[int, int]:
        """How often each registrar has opened a link to a shard or scanned a session, by its pid.
        After either, clients are told once more what they have not acked."""
        counted = {p["pid"]: p["counters"] for p in self.status()["processes"] if "counters" in p}
        return {
            pid: counters["links_opened"] + counters["notifications_resent"]
            for pid, counters in counted.items()
            if "notifications_resent" in counters
        }

    def ways(self) -> Counter[str]:
        """By which updates came to the matchers, since their processes started."""
        return sum((Counter(shard["ways"]) for shard in self.status()["shards"]), Counter[str]())

    def _answered(self) -> list[dict[str, Any]]:
        """Every process; of one that does not answer for a while the status has only the name."""

        def all_of_them() -> list[dict[str, Any]] | None:
            told: list[dict[str, Any]] = self.status()["processes"]
            return None if any("error" in process for process in told) else told

        return await_that(all_of_them, PATIENCE_S, lambda: str(self.status()))

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def announced(self) -> dict[str, Any]:
        where: dict[str, Any] = json.loads((self.data / "node.json").read_text())
        return where

    # A publisher with nothing but HTTP.

    def publish(self, key: str, version: int | None = None, **more: str) -> int:
        return self.publish_all([_update(key, version, **more)])[0]

    def publish_all(self, updates: list[dict[str, Any]]) -> list[int]:
        answer = self._http.post("/v1/publish", json=updates)
        return [int(result["version"]) for result in answer.raise_for_status().json()["results"]]

    def reset(self, key: str) -> None:
        app, _, name = key.partition("/")
        self._http.post("/v1/reset", json={"app": app, "name": name}).raise_for_status()

    def read(self, key: str) -> int | None:
        version = self._http.get(f"/v1/objects/{key}").raise_for_status().json()["version"]
        return None if version is None else int(version)


def _update(key: str, version: int | None = None, **more: str) -> dict[str, Any]:
    app, _, name = key.partition("/")
    chosen = {} if version is None else {"version": version}
    return {"app": app, "name": name, **chosen, **more}


def versions_of(keys: list[str], versions: range) -> list[list[dict[str, Any]]]:
    """Updates in lists of what one request takes, objects in turn."""
    updates = [_update(key, version) for version in versions for key in keys]
    return [updates[i : i + 1000] for i in range(0, len(updates), 1000)]


def await_that(
    condition: Callable[[], T | None],
    within_s: float,
    otherwise: Callable[[], str] = lambda: "never",
) -> T:
    """What it then is."""
    give_up_at = time.monotonic() + within_s
    while not (found := condition()):
        assert time.monotonic() < give_up_at, otherwise()
        time.sleep(0.02)
    return found


def _has(pid: int, mark: bytes) -> bool:
    try:
        return mark in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
