"""The load generator: a small C program, so that the server is the limit and not its clients.

It is compiled where it is used; `load.c` says what it does. It runs on other cores than the server
where there are others, and says how busy it was: a figure is the server's only if the server was
the busy one.
"""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from benchmarks.result import NotMeasured
from benchmarks.serving.servers import Server, cpu_s

_SOURCES: Final = Path(__file__).parent
_FLAGS: Final = ("-std=gnu11", "-D_GNU_SOURCE", "-O2")

Protocol = Literal["mqtt", "websocket"]


class Load(msgspec.Struct, frozen=True):
    """What one run brought."""

    seconds: float
    published: int
    deliveries: int
    """Received and acknowledged."""
    p50_us: float
    p99_us: float
    worst_us: float
    server_cpu_s: float = 0.0
    generator_cpu_s: float = 0.0

    @property
    def per_s(self) -> float:
        return self.deliveries / self.seconds

    @property
    def cpu_us(self) -> float:
        """Of the server, per delivery."""
        return self.server_cpu_s / max(1, self.deliveries) * 1e6

    @property
    def server_busy(self) -> float:
        """In cores."""
        return self.server_cpu_s / self.seconds

    @property
    def generator_busy(self) -> float:
        return self.generator_cpu_s / self.seconds

    def delivered(self, subscribers: int) -> float:
        """The part of all updates times subscribers that was delivered one by one."""
        return self.deliveries / max(1, self.published * subscribers)


class Generator:
    def __init__(self, directory: Path, cores: set[int]) -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise NotMeasured("the load generator needs a C compiler: apt-get install gcc")
        self._program = directory / "load"
        self._cores = cores
        sources = [str(path) for path in sorted(_SOURCES.glob("*.c"))]
        subprocess.run([compiler, *_FLAGS, "-o", self._program, *sources], check=True)

    def run(
        self,
        server: Server,
        *,
        subscribers: int,
        seconds: float,
        window: float = 0,
        rate: float = 0.0,
        warmup: float = 0.5,
        clean: bool = True,
        protocol: Protocol = "mqtt",
        workers: int = 1,
        cores: set[int] | None = None,
    ) -> Load:
        options: dict[str, object] = {
            "--subscribers": subscribers,
            "--seconds": seconds,
            "--warmup": warmup,
            "--window": window,
            "--rate": rate,
            "--clean": int(clean),
            "--workers": workers,
        }
        with self._started(server, protocol, options, cores or self._cores) as process:
            _expect(process, "start")
            before, own_before = server.cpu_s(), cpu_s(process.pid)
            _expect(process, "stop")
            used, own_used = server.cpu_s() - before, cpu_s(process.pid) - own_before
            load = msgspec.json.decode(_line(process), type=Load)
        return msgspec.structs.replace(load, server_cpu_s=used, generator_cpu_s=own_used)

    @contextmanager
    def connected(
        self, server: Server, *, subscribers: int, objects: int, each: int, protocol: Protocol
    ) -> Iterator[None]:
        """Clients that have registered for `each` of the objects, and say nothing more."""
        options: dict[str, object] = {
            "--subscribers": subscribers,
            "--topics": objects,
            "--per-client": each,
            "--hold": 1,
        }
        with self._started(server, protocol, options, self._cores) as process:
            _expect(process, "ready")
            yield

    @contextmanager
    def _started(
        self, server: Server, protocol: Protocol, options: dict[str, object], cores: set[int]
    ) -> Iterator["subprocess.Popen[bytes]"]:
        options |= {
            "--protocol": protocol,
            "--port": server.mqtt_port if protocol == "mqtt" else server.http_port,
            "--mqtt-port": server.mqtt_port,
            "--first": time.time_ns() // 1000,  # above whatever an earlier run has published
        }
        process = subprocess.Popen(
            [self._program, *(str(part) for option in options.items() for part in option)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with process.stdin, process.stdout:
                yield process
        finally:
            process.wait()


def _line(process: "subprocess.Popen[bytes]") -> bytes:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        raise RuntimeError("the load generator gave up; it has said why")
    return line


def _expect(process: "subprocess.Popen[bytes]", word: str) -> None:
    while _line(process).strip() != word.encode():
        pass
