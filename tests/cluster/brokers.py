"""Brokers of Kafka for tests: on free ports, in a directory of their own, and gone with the tests.

`tools/kafka.sh` gets them. Each is a process that can be killed, stopped, and continued, and comes
back with what it had on disk. All of them are brokers and controllers at once (KRaft).
"""

import ctypes
import importlib
import os
import shutil
import signal
import subprocess
import sys
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from benchmarks.ports import free_port
from tests.serving.nodes import await_that

LIBRARIES: Final = Path(sys.prefix).resolve() / "kafka/libs"
_START_S: Final = 120.0
_STOP_S: Final = 60.0
_JVM: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_SETTINGS: Final = """
process.roles=broker,controller
node.id={id}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={directory}/data
auto.create.topics.enable=false
default.replication.factor={copies}
min.insync.replicas={in_sync}
unclean.leader.election.enable=false
offsets.topic.replication.factor={copies}
offsets.topic.num.partitions=4
transaction.state.log.replication.factor={copies}
transaction.state.log.min.isr={in_sync}
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor={copies}
share.coordinator.state.topic.min.isr={in_sync}
group.initial.rebalance.delay.ms=0
log.cleaner.dedupe.buffer.size=16777216
num.network.threads=2
num.io.threads=4
"""


def driver() -> Any:
    """confluent-kafka, which comes with the extra `kafka`."""
    try:
        return importlib.import_module("confluent_kafka")
    except ImportError:
        _left_out("confluent-kafka is not installed (pip install 'roskva[kafka]')")


def _left_out(why: str) -> None:
    """Where everything has to be there, that is a failure."""
    if "CI" in os.environ:
        pytest.fail(why)
    pytest.skip(why)


class Broker:
    def __init__(self, id: int, directory: Path) -> None:
        self.id, self.directory = id, directory
        self.port, self.controller_port = free_port(), free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def voter(self) -> str:
        return f"{self.id}@127.0.0.1:{self.controller_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    def make(self, cluster: str, voters: str, copies: int, more: str) -> None:
        self.directory.mkdir()
        text = _SETTINGS.format(
            id=self.id,
            voters=voters,
            port=self.port,
            controller_port=self.controller_port,
            directory=self.directory,
            copies=copies,
            in_sync=copies // 2 + 1,
        )
        self._settings.write_text(f"{text}{more}\n")
        arguments = ("format", "--cluster-id", cluster, "--config", str(self._settings))
        done = subprocess.run(
            _java("kafka.tools.StorageTool", *arguments), capture_output=True, check=False
        )
        assert done.returncode == 0, (done.stdout + done.stderr).decode()

    @property
    def _settings(self) -> Path:
        return self.directory / "broker.properties"

    def start(self) -> None:
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                _java("kafka.Kafka", str(self._settings)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=_end_with_the_tests,
            )

    def kill(self) -> None:
        """As a power cut would, but for what the kernel has not written yet: that stays."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """In order: it hands its partitions over first."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_STOP_S)
            self._process = None

    def suspend(self) -> None:
        """It does nothing at all, and its connections stay open, until it is resumed."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def said(self) -> str:
        assert self._process is None or self._process.poll() is None, self._log()
        return self._log()

    def _log(self) -> str:
        return (self.directory / "log").read_text()[-4000:]


class Brokers:
    def __init__(self, place: Path, count: int, more: str = "") -> None:
        """`more`: settings in the form of properties."""
        self.each = [Broker(id, place / f"broker-{id}") for id in range(1, count + 1)]
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        voters = ",".join(broker.voter for broker in self.each)
        for broker in self.each:
            broker.make(cluster, voters, count, more)

    @property
    def servers(self) -> str:
        """For `bootstrap.servers`."""
        return ",".join(broker.address for broker in self.each)

    def start(self) -> None:
        for broker in self.each:
            broker.start()
        self.await_all()

    def await_all(self) -> None:
        """Until every one of them is known to the others and serves."""
        admin = importlib.import_module("confluent_kafka.admin").AdminClient(
            {"bootstrap.servers": self.servers, "log_level": 0}
        )

        def ready() -> bool:
            said = [broker.said() for broker in self.each]
            try:
                return len(admin.list_topics(timeout=2.0).brokers) == len(said)
            except driver().KafkaException:
                return False

        await_that(ready, _START_S, lambda: "\n".join(broker.said() for broker in self.each))

    def end(self) -> None:
        for broker in self.each:
            broker.kill()


@contextmanager
def brokers(place: Path, count: int = 1, more: str = "") -> Iterator[Brokers]:
    """That serve. Where there is no Java, broker or driver, the test is left out."""
    driver()
    if not LIBRARIES.exists():
        _left_out("Kafka's broker is not here (tools/kafka.sh gets it, with Maven)")
    if shutil.which("java") is None:
        _left_out("there is no Java, on which Kafka's broker runs")
    found = Brokers(place, count, more)
    try:
        found.start()
        yield found
    finally:
        found.end()


def _java(main: str, *arguments: str) -> list[str]:
    return ["java", *_JVM, "-cp", f"{LIBRARIES}/*", main, *arguments]


def _end_with_the_tests() -> None:
    """However they end: `PR_SET_PDEATHSIG`."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
