"""`roskva doctor`: is this machine fit for a node, and if not, what to do?

Each check looks at one thing and judges it. One that cannot look says so as a warning. Nothing here
changes anything, but for a temporary file where the data is to be.
"""

import ctypes
import errno
import importlib.metadata
import os
import platform
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Annotated, Final, Literal

import httpx
import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from typer import Option

from roskva.cli.config import INSECURE
from roskva.cli.options import command
from roskva.cli.outcome import FAILED
from roskva.config import Config, NodeConfig, exposed, load
from roskva.errors import RoskvaError
from roskva.links.own_keys import TOKEN_KEY
from roskva.net.address import local_in_url
from roskva.net.certificates import expires_at
from roskva.pipeline.machine import OLDEST_JAVA, java_version
from roskva.server.directory import DEFAULT_SHARDS, META, DataDirectory, others_may_read
from roskva.server.tls import server_context
from roskva.wire.admin import NodeStatus

Verdict = Literal["ok", "warn", "bad"]

_GIB: Final = 1 << 30
_MIB: Final = 1 << 20
_FEW_FILES: Final = 10_000
_FSYNCS: Final = 50
_FSYNC_BUDGET_S: Final = 2.0
_SLOW_FSYNC_S: Final = 0.02
_SUSPICIOUS_FSYNC_S: Final = 20e-6
"""Not even the fastest disk writes in this time; something answers before it has written."""

_NETWORK_FILE_SYSTEMS: Final = {"nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs", "ceph", "afs"}
_VOLATILE_FILE_SYSTEMS: Final = {"tmpfs", "ramfs"}
_TIME_ERROR: Final = 5
"""What adjtimex(2) returns when nobody keeps the clock right."""

_RENEW_BEFORE: Final = timedelta(days=14)
_TIMEOUT_S: Final = 3.0

_COLOURS = {"ok": "green", "warn": "yellow", "bad": "red"}


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    what: str
    verdict: Verdict
    found: str
    do: str = ""
    """How to fix it."""


@command(
    "roskva doctor",
    "roskva doctor --config roskva.toml --json | jq '.[] | select(.verdict != \"ok\")'",
    codes="Exit codes: 0 nothing is bad (there may be warnings), 1 something is bad, 2 bad "
    "usage or configuration.",
)
def doctor(
    data: Annotated[Path | None, Option(metavar="DIR", help="The data directory.")] = None,
    config: Annotated[Path | None, Option(metavar="FILE", help="A file of settings.")] = None,
    json: Annotated[bool, "Print the findings as JSON."] = False,
) -> None:
    """Look at what a node needs of this machine; say what is wrong and how to fix it.

    It measures how long the disk takes to sync, for which it writes a temporary file beside the
    data. Safe beside a running node.
    """
    settings = load(config, {"node.data": None if data is None else str(data)})
    with Console(stderr=True).status("looking …"):
        findings = list(check_up(settings))
    if json:
        print(msgspec.json.encode(findings).decode())
    else:
        show(findings)
    raise typer.Exit(FAILED if any(finding.verdict == "bad" for finding in findings) else 0)


def show(findings: list[Finding]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        colour = _COLOURS[finding.verdict]
        table.add_row(f"[{colour}]{finding.verdict}[/]", finding.what, escape(finding.found))
        if finding.do:
            table.add_row("", "", f"[{colour}]→[/] {escape(finding.do)}")
    Console(highlight=False).print(table)
    count = {verdict: sum(f.verdict == verdict for f in findings) for verdict in _COLOURS}
    print(f"\n{count['ok']} ok, {count['warn']} to look at, {count['bad']} bad")


def check_up(config: Config) -> Iterator[Finding]:
    """Everything, one after the other; some take a moment."""
    place = existing_parent(config.node.data)
    yield check_python()
    yield check_uvloop()
    yield check_spark()
    yield check_open_files(config, resource.getrlimit(resource.RLIMIT_NOFILE))
    yield check_memory(available_memory())
    yield check_data(config.node)
    yield check_file_system(place, file_system_of(place))
    yield check_free_disk(place)
    yield check_fsync(place)
    yield check_clock()
    yield check_exposure(config)
    yield check_certificate(config)
    yield from check_ports(config)


# The programs it is made of.


def check_python() -> Finding:
    """One that is too old could not have come so far."""
    made_by = platform.python_implementation()
    found = f"{made_by} {platform.python_version()}"
    if made_by == "CPython":
        return Finding("python", "ok", found)
    return Finding("python", "warn", found, "use CPython: nothing else is tested")


def check_uvloop() -> Finding:
    version = installed("uvloop")
    if version:
        return Finding("uvloop", "ok", version)
    fix = "pip install uvloop; without it the node serves fewer clients with the same work"
    return Finding("uvloop", "warn", "not installed", fix)


def check_spark() -> Finding:
    pyspark, java = installed("pyspark"), java_version()
    found = f"PySpark {pyspark or 'not installed'}, Java {java or 'not found'}"
    missing = []
    if pyspark is None:
        missing.append("pip install 'roskva[spark]'")
    if java is None or java < OLDEST_JAVA:
        missing.append(f"install Java {OLDEST_JAVA} or newer, or point JAVA_HOME at it")
    if not missing:
        return Finding("spark", "ok", found)
    fix = f"{' and '.join(missing)}, if you want the pipeline; a node serves without it"
    return Finding("spark", "warn", found, fix)


def installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


# What the system gives it.


def check_open_files(config: Config, limits: tuple[int, int]) -> Finding:
    soft, hard = (sys.maxsize if limit == resource.RLIM_INFINITY else limit for limit in limits)
    clients = config.limits.connections(soft, config.node.shards or DEFAULT_SHARDS)
    found = f"{soft:,}, so at most {clients:,} connections per process"
    wanted = config.limits.max_connections or _FEW_FILES
    if clients >= wanted or soft >= 2 * wanted:
        return Finding("open files", "ok", found)
    fix = f"ulimit -n {hard}" if hard > soft else "LimitNOFILE= in systemd, or limits.conf"
    return Finding("open files", "warn", found, f"raise it before you start the node: {fix}")


def check_memory(available: int | None) -> Finding:
    if available is None:
        return Finding("memory", "warn", "cannot be found out here")
    found = f"{available / _MIB:,.0f} MiB available"
    if available >= 512 * _MIB:
        return Finding("memory", "ok", found)
    return Finding("memory", "warn", found, "leave a node 512 MiB or more")


def available_memory() -> int | None:
    """The machine's, or what is left of the container's."""
    found = []
    with suppress(OSError, ValueError, IndexError):
        meminfo = Path("/proc/meminfo").read_text()
        found.append(int(meminfo.split("MemAvailable:")[1].split()[0]) * 1024)
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        found.append(limit - int((group / "memory.current").read_text()))
    return min(found, default=None)


# Where the data is.


def existing_parent(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def check_data(node: NodeConfig) -> Finding:
    if (node.data / META).exists():
        return check_existing_data(node)
    place = existing_parent(node.data)
    if not place.is_dir():
        return Finding("data", "bad", f"{place} is no directory", "name another with --data")
    if not os.access(place, os.W_OK | os.X_OK):
        fix = f"let this user write to {place}, or name another directory with --data"
        return Finding("data", "bad", f"{place} is not writable", fix)
    return Finding("data", "ok", f"{node.data} will be created")


def check_existing_data(node: NodeConfig) -> Finding:
    try:
        shards = DataDirectory.open(node.data).meta.shards
    except RoskvaError as error:
        return Finding("data", "bad", str(error))
    found = f"{node.data}, {shards} shards"
    if node.shards not in (None, shards):
        fix = f"set shards under [node] to {shards}, or leave it out"
        return Finding("data", "bad", f"{found}, not {node.shards}", fix)
    if node.matchers > shards:
        fix = f"set matchers under [node] to {shards} or less"
        return Finding("data", "bad", f"{found} for {node.matchers} matchers", fix)
    key = node.data / TOKEN_KEY
    for place, mode in ((node.data, 700), (key, 600)):
        if place.exists() and others_may_read(place):
            fix = f"chmod {mode} {place}; a node that starts does it"
            return Finding("data", "warn", f"{place} is open to other users of this machine", fix)
    return Finding("data", "ok", found)


def check_file_system(place: Path, kind: str | None) -> Finding:
    if kind is None:
        return Finding("file system", "warn", f"that of {place} cannot be found out here")
    if kind in _NETWORK_FILE_SYSTEMS:
        fix = "keep the data on a local disk: locks do not hold over a network"
        return Finding("file system", "bad", f"{place} is on {kind}", fix)
    if kind in _VOLATILE_FILE_SYSTEMS:
        fix = "good for a try; for real use keep the data on a disk"
        return Finding("file system", "warn", f"{place} is on {kind}, in memory", fix)
    return Finding("file system", "ok", kind)


def file_system_of(place: Path) -> str | None:
    """The kind of the mount with the longest path that leads to it."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    except OSError:
        return None
    resolved = place.resolve()
    leading = [
        (len(where), kind)
        for _, escaped, kind, *_ in mounts
        if resolved.is_relative_to(where := escaped.replace("\\040", " "))
    ]
    return max(leading)[1] if leading else None


def check_free_disk(place: Path) -> Finding:
    usage = shutil.disk_usage(place)
    found = f"{usage.free / _GIB:,.1f} GiB free of {usage.total / _GIB:,.1f}"
    if usage.free < _GIB // 4:
        return Finding(
            "free disk", "bad", found, "make room: publishers are refused on a full disk"
        )
    if usage.free < 5 * _GIB:
        fix = "make room, or set retention_bytes and last_resort_bytes under [feed]"
        return Finding("free disk", "warn", found, fix)
    return Finding("free disk", "ok", found)


def check_fsync(place: Path) -> Finding:
    try:
        times = fsync_times(place)
    except OSError as error:
        return Finding("fsync", "bad", f"{place}: {error.strerror}", "see that it can be written")
    return judge_fsync(times)


def judge_fsync(times: list[float]) -> Finding:
    usual = median(times)
    found = f"{usual * 1000:.2f} ms, at worst {max(times) * 1000:.1f} ms"
    if usual > _SLOW_FSYNC_S:
        fix = "every publish waits for one: use a faster disk, or publish in large batches"
        return Finding("fsync", "warn", found, fix)
    if usual < _SUSPICIOUS_FSYNC_S:
        fix = "too fast to be true: nothing is safe from a power cut on a disk that ignores fsync"
        return Finding("fsync", "warn", found, fix)
    return Finding("fsync", "ok", found)


def fsync_times(place: Path) -> list[float]:
    """Of appending a little and syncing it, as the feed does."""
    times: list[float] = []
    with tempfile.NamedTemporaryFile(dir=place, prefix=".roskva-doctor-") as file:
        give_up_at = time.monotonic() + _FSYNC_BUDGET_S
        while len(times) < _FSYNCS and (not times or time.monotonic() < give_up_at):
            os.write(file.fileno(), b"x" * 512)
            started = time.monotonic()
            os.fsync(file.fileno())
            times.append(time.monotonic() - started)
    return times


# The clock.


def check_clock(watch_s: float = 0.2) -> Finding:
    wall, steady = time.time(), time.monotonic()
    time.sleep(watch_s)
    drift = (time.time() - wall) - (time.monotonic() - steady)
    return judge_clock(wall, drift, clock_is_kept())


def judge_clock(wall: float, drift: float, kept: bool | None) -> Finding:
    found = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(wall))
    if wall < 1_700_000_000:
        return Finding("clock", "bad", f"{found} is long past", "set the clock")
    if abs(drift) > 0.05:
        fix = "let NTP slew it; assigned versions still rise, but times in reports will be wrong"
        return Finding("clock", "warn", f"it jumped by {drift * 1000:.0f} ms just now", fix)
    if kept is False:
        fix = "run an NTP service such as chrony or systemd-timesyncd"
        return Finding("clock", "warn", f"{found}; nobody keeps it right", fix)
    return Finding("clock", "ok", found + (", kept right" if kept else ""))


def clock_is_kept() -> bool | None:
    """Whether the kernel thinks that its clock is synchronised; None: it does not tell."""
    libc = ctypes.CDLL(None)
    if not hasattr(libc, "adjtimex"):
        return None
    timex = ctypes.create_string_buffer(256)  # modes 0: only ask
    state = libc.adjtimex(timex)
    return None if state < 0 else state != _TIME_ERROR


# Its place in a network: ports, and who can reach it.


def check_ports(config: Config) -> Iterator[Finding]:
    host, port = config.node.host, config.node.port
    scheme = "https" if config.tls.enabled else "http"
    version = answers(f"{scheme}://{local_in_url(host)}:{port}") if port else None
    yield check_port("port", host, port, version)
    if config.node.mqtt_port is not None:
        yield check_port("mqtt port", host, config.node.mqtt_port, version)


def check_port(what: str, host: str, port: int, node: str | None) -> Finding:
    try:
        listen_once(host, port)
    except OSError as error:
        found = f"{host}:{port}: {error.strerror}"
        if error.errno != errno.EADDRINUSE:
            return Finding(what, "bad", found, "choose another address with --host")
        if node is not None:
            return Finding(what, "ok", f"{found}, and a Roskva node {node}")
        fix = f"stop what uses it, or choose another with --{what.replace(' ', '-')}"
        return Finding(what, "bad", found, fix)
    return Finding(what, "ok", f"{host}:{port} is free" if port else "any free one")


def listen_once(host: str, port: int) -> None:
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def answers(url: str) -> str | None:
    """What is known of the node there; nobody is asked for a certificate or a key."""
    with (
        suppress(httpx.HTTPError),
        httpx.Client(base_url=url, timeout=_TIMEOUT_S, verify=False) as http,
    ):
        if http.get("/healthz").text != "ok\n":
            return None
        status = http.get("/v1/status")
        if not status.is_success:
            return "is running"
        return f"{msgspec.json.decode(status.content, type=NodeStatus).version} is running"
    return None


def check_exposure(config: Config) -> Finding:
    problems = exposed(config)
    if not problems:
        return Finding("exposure", "ok", f"{config.node.host}, nothing is open that should not be")
    return Finding("exposure", "bad", problems[0], "; ".join([*problems[1:], INSECURE]))


def check_certificate(config: Config) -> Finding:
    tls = config.tls
    if tls.certificate is None:
        return Finding("tls", "ok", "not set up")
    try:
        server_context(tls)
        left = expires_at(tls.certificate) - datetime.now(UTC)
    except RoskvaError as error:
        return Finding("tls", "bad", str(error))
    assert tls.key is not None
    if left < timedelta(0):
        return Finding("tls", "bad", f"{tls.certificate} has expired", "renew it, then reload")
    if left < _RENEW_BEFORE:
        found = f"{tls.certificate} expires in {left.days} days"
        return Finding("tls", "warn", found, "renew it, then reload (SIGHUP)")
    if others_may_read(tls.key):
        fix = f"chmod 600 {tls.key}"
        return Finding("tls", "warn", f"{tls.key} is open to other users of this machine", fix)
    return Finding("tls", "ok", f"{tls.certificate}, good for {left.days} days")
