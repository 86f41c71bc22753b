"""The servers that are measured: started, asked what they used, stopped.

Each is one process tree with its own port and directory. What it used is what the kernel says of
the whole tree, so no server gains by having more processes or threads.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.ports import free_port

MOSQUITTO_CONF: Final = Path(__file__).with_name("mosquitto.conf")
UNLIMITED: Final = '[limits]\nkeyless_publish_bytes_per_second = "off"\n'
"""For nodes without keys: measured is how much they can take, not what they let in."""
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_START_S: Final = 30.0


class Server(msgspec.Struct, frozen=True):
    name: str
    pid: int
    mqtt_port: int = 0
    http_port: int = 0
    port: int = 0
    """Of a protocol of its own."""

    def cpu_s(self) -> float:
        return cpu_s(self.pid)

    def rss_bytes(self) -> int:
        return sum(_rss_bytes(pid) for pid in tree(self.pid))

    def peak_bytes(self) -> int:
        """The most memory that each of its processes has had."""
        return sum(_peak_bytes(pid) for pid in tree(self.pid))

    def signal(self, number: signal.Signals) -> None:
        """To each of its processes."""
        for pid in tree(self.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def pin(self, cores: set[int]) -> None:
        """The process itself, with all of its threads, and nothing that it has started."""
        for thread in os.listdir(f"/proc/{self.pid}/task"):
            os.sched_setaffinity(int(thread), cores)

    def kill(self) -> None:
        """All of it at once, with a signal that it never sees; its ports are free afterwards."""
        killed = tree(self.pid)
        for pid in killed:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(runs(pid) for pid in killed):
            time.sleep(0.001)


def server_and_client_cores() -> tuple[set[int], set[int]]:
    """For the server, and for its clients."""
    first, *others = sorted(os.sched_getaffinity(0))
    return {first}, set(others) or {first}


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    for parent in found:
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                children = Path(f"/proc/{parent}/task/{task}/children").read_text()
                found += [int(child) for child in children.split()]
        except (FileNotFoundError, ProcessLookupError):  # it ended meanwhile
            continue
    return found


def cpu_s(pid: int) -> float:
    """User and system time of all threads of all processes of the tree, and of those it had."""
    ticks = 0
    for each in tree(pid):
        fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS_PER_S


def runs(pid: int) -> bool:
    """Or some thread of it; what is dead and not yet waited for does not run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state != "Z" or len(os.listdir(f"/proc/{pid}/task")) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def _rss_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _peak_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def mosquitto_path() -> str | None:
    """Debian puts it where only root looks."""
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    return shutil.which("mosquitto", path=path)


@contextmanager
def mosquitto(
    directory: Path,
    cores: set[int],
    *,
    settings: str | None = None,
    again: Server | None = None,
) -> Iterator[Server]:
    """With `again`: where that one was, which is dead by now."""
    program = mosquitto_path()
    assert program is not None
    port = again.mqtt_port if again else free_port()
    path = directory / "mosquitto.conf"
    path.write_text(f"listener {port} 127.0.0.1\n" + (settings or MOSQUITTO_CONF.read_text()))
    with running([program, "-c", str(path)], directory, cores, port) as pid:
        yield Server("Mosquitto", pid, port)


@contextmanager
def roskva(
    directory: Path,
    cores: set[int],
    *flags: str,
    program: Sequence[str] = (str(Path(sys.executable).with_name("roskva")),),
    probe: bool = False,
    pipeline: bool = False,
    again: Server | None = None,
) -> Iterator[Server]:
    """`probe` and `pipeline`: with its prober, or its pipeline, which are processes more."""
    if "--config" not in flags:
        settings = directory / "unlimited.toml"
        settings.write_text(UNLIMITED)
        flags = (*flags, "--config", str(settings))
    port, http_port = (again.mqtt_port, again.http_port) if again else (free_port(), free_port())
    command = [*program, "serve", "--data", str(directory / "data")]
    command += ["--port", str(http_port), "--mqtt-port", str(port), *flags]
    command += [] if probe else ["--no-probe"]
    command += [] if pipeline else ["--no-pipeline"]
    with running(command, directory, cores, port, http_port) as pid:
        yield Server("Roskva", pid, port, http_port)


@contextmanager
def running(command: list[str], directory: Path, cores: set[int], *ports: int) -> Iterator[int]:
    with (directory / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=directory,
            stdout=log,
            stderr=log,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        try:
            for port in ports:
                _await_port(process, port, directory / "server.log")
            yield process.pid
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_port(process: "subprocess.Popen[bytes]", port: int, log: Path) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{process.args!r} does not start: {log.read_text()}") from None
            time.sleep(0.05)
        else:
            return
