"""The load generator: a small C program, so that the server is the limit and not its clients.

It is compiled where it is used; `load.c` says what it does, and what it can be told. It runs on
other cores than the server where there are others, and says how busy it was: a figure is the
server's only if the server was the busy one.
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

Protocol = Literal["mqtt", "websocket", "nats", "kv", "redis", "streams"]


class Answer(msgspec.Struct, frozen=True):
    """Of the generator to one command. Messages and bytes are counted from its start."""

    began: float
    """As `time.monotonic()` has it, and so is the next."""
    ended: float
    published: int
    deliveries: int
    """While it measured: received, and acknowledged where the protocol acknowledges."""
    messages: int
    """That subscribers have received, old ones included."""
    bytes: int
    stale: int
    """Subscribers × objects whose newest version is not there."""
    mean_us: float
    """By the kernel's clock, as are the others unless they say so: see `load.c`."""
    p50_us: float
    p99_us: float
    worst_us: float
    program_mean_us: float
    program_p50_us: float
    program_p99_us: float
    percentiles_us: list[float] = []
    """At equal steps from the fastest to the slowest."""

    @property
    def seconds(self) -> float:
        return self.ended - self.began


class Load(msgspec.Struct, frozen=True):
    """What one run brought."""

    seconds: float
    published: int
    deliveries: int
    """Received and acknowledged."""
    p50_us: float
    p99_us: float
    worst_us: float
    mean_us: float = 0.0
    program_mean_us: float = 0.0
    program_p50_us: float = 0.0
    program_p99_us: float = 0.0
    percentiles_us: list[float] = []
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


class Population:
    """Subscribers and a publisher that do as they are told."""

    def __init__(self, process: "subprocess.Popen[bytes]", server: Server) -> None:
        self._process = process
        self._server = server

    def connect(self) -> Answer:
        return self.tell("connect")

    def leave(self) -> Answer:
        return self.tell("leave")

    def publish(self, count: int, in_flight: int) -> Answer:
        """Until the server has accepted them all."""
        return self.tell(f"publish {count} {in_flight}")

    def fresh(self, quiet_s: float) -> Answer:
        """Until everybody holds the newest versions, or nothing more comes."""
        return self.tell(f"fresh {quiet_s}")

    def measure(
        self, *, seconds: float, window: float = 0, rate: float = 0.0, warmup: float = 0.5
    ) -> Load:
        command = f"rate {rate}" if rate else f"window {window}"
        if warmup:
            self.tell(f"{command} {warmup}")
        before, own_before = self._server.cpu_s(), cpu_s(self._process.pid)
        answer = self.tell(f"{command} {seconds}")
        used, own_used = self._server.cpu_s() - before, cpu_s(self._process.pid) - own_before
        return Load(
            seconds=answer.seconds,
            published=answer.published,
            deliveries=answer.deliveries,
            mean_us=answer.mean_us,
            p50_us=answer.p50_us,
            p99_us=answer.p99_us,
            worst_us=answer.worst_us,
            program_mean_us=answer.program_mean_us,
            program_p50_us=answer.program_p50_us,
            program_p99_us=answer.program_p99_us,
            percentiles_us=answer.percentiles_us,
            server_cpu_s=used,
            generator_cpu_s=own_used,
        )

    def tell(self, command: str) -> Answer:
        self.say(command)
        return self.hear()

    def say(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command.encode() + b"\n")
        self._process.stdin.flush()

    def hear(self) -> Answer:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the load generator gave up; it has said why")
        return msgspec.json.decode(line, type=Answer)


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
        """Subscribers of one object."""
        with self.population(
            server,
            subscribers=subscribers,
            clean=clean,
            protocol=protocol,
            workers=workers,
            cores=cores,
        ) as population:
            population.connect()
            return population.measure(seconds=seconds, window=window, rate=rate, warmup=warmup)

    @contextmanager
    def connected(
        self, server: Server, *, subscribers: int, objects: int, each: int, protocol: Protocol
    ) -> Iterator[None]:
        """Clients that have registered for `each` of the objects, and say nothing more."""
        with self.population(
            server, subscribers=subscribers, objects=objects, each=each, protocol=protocol
        ) as population:
            population.connect()
            yield

    @contextmanager
    def population(
        self,
        server: Server,
        *,
        subscribers: int,
        objects: int = 1,
        each: int = 1,
        clean: bool = True,
        retain: bool = False,
        reconnect: bool = False,
        protocol: Protocol = "mqtt",
        app: str = "bench",
        pace: int = 900,
        workers: int = 1,
        cores: set[int] | None = None,
    ) -> Iterator[Population]:
        """Subscribers that will register for `each` of the objects, one after the other, so that
        every object has as many subscribers as the others. `pace` limits how many connect in a
        second: a node tells more than 1,000 to come back later."""
        ports = {"mqtt": server.mqtt_port, "websocket": server.http_port}
        options: dict[str, object] = {
            "--protocol": protocol,
            "--port": ports.get(protocol, server.port),
            "--mqtt-port": server.mqtt_port,
            "--subscribers": subscribers,
            "--topics": objects,
            "--per-client": each,
            "--clean": int(clean),
            "--retain": int(retain),
            "--reconnect": int(reconnect),
            "--app": app,
            "--prefix": app,
            "--pace": pace,
            "--workers": workers,
            "--first": time.time_ns() // 1000,  # above whatever an earlier run has published
        }
        where = cores or self._cores
        process = subprocess.Popen(
            [self._program, *(str(part) for option in options.items() for part in option)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: os.sched_setaffinity(0, where),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            with process.stdin, process.stdout:
                yield Population(process, server)
        finally:
            process.wait()
