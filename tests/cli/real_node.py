"""A node as users start it: `roskva serve` in a process of its own."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import httpx
from benchmarks.ports import free_port

ROSKVA = str(Path(sys.prefix) / "bin/roskva")
DEADLINE_S = 60.0
ENVIRONMENT = {key: value for key, value in os.environ.items() if not key.startswith("ROSKVA_")}


class RealNode:
    """Used as a context. After a kill, `start` brings it back at the same address."""

    def __init__(self, data: Path, *flags: str) -> None:
        port = free_port()
        words = ["--data", str(data), "--mqtt-port", "off", "--port", str(port)]
        words += ["--no-pipeline", "--no-probe"]
        self.url = f"http://127.0.0.1:{port}"
        self._command = [ROSKVA, "serve", *words, *flags]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "RealNode":
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end(signal.SIGTERM)

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        give_up_at = time.monotonic() + DEADLINE_S
        while not self._answers():
            assert self._process.poll() is None, "the node did not start"
            assert time.monotonic() < give_up_at
            time.sleep(0.05)

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(DEADLINE_S)
            self._process = None

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/readyz").is_success
        except httpx.TransportError:
            return False


class Command:
    """`roskva …` against a node, in a process of its own; its lines of JSON one by one."""

    def __init__(self, node: RealNode, *words: str) -> None:
        self._process = subprocess.Popen(
            [ROSKVA, *words],
            env={**ENVIRONMENT, "ROSKVA_URL": node.url},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Command":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def line(self) -> Any:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())

    def interrupt(self) -> None:
        self._process.send_signal(signal.SIGINT)

    def ended(self) -> tuple[int, str, str]:
        stdout, stderr = self._process.communicate(timeout=DEADLINE_S)
        return self._process.returncode, stdout, stderr


def roskva(node: RealNode, *words: str) -> tuple[int, str, str]:
    with Command(node, *words) as command:
        return command.ended()
