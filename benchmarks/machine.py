"""Where it was measured, and with which versions of everything."""

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from roskva import __version__

PEERS: Final = {
    "Mosquitto": ["mosquitto", "-h"],
    "NATS": ["nats-server", "--version"],
    "Redis": ["redis-server", "--version"],
    "PostgreSQL": ["psql", "--version"],
    "MariaDB": ["mariadbd", "--version"],
}
"""And the command that tells the version of each."""
_PACKAGES: Final = ("uvloop", "msgspec", "pyarrow", "rocksdict", "pyspark")
_ROOT: Final = Path(__file__).parents[1]


def machine() -> str:
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    priority = "granted" if _grants_priority() else "refused"
    return (
        f"{cores} cores of {_processor()}, {memory:.0f} GiB of memory, {_system()}, "
        f"real-time priority {priority}"
    )


def versions() -> dict[str, str]:
    found = {"Roskva": f"{__version__}{commit(_ROOT)}", "Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found | {name: _answer(command) for name, command in PEERS.items()}


def found(program: str) -> str | None:
    """Debian puts servers where only root looks."""
    return shutil.which(program, path=os.environ.get("PATH", "") + os.pathsep + "/usr/sbin")


def _answer(command: list[str]) -> str:
    program = found(command[0])
    if program is None:
        return "not installed"
    told = subprocess.run([program, *command[1:]], capture_output=True, text=True)
    number = re.search(r"\d+(\.\d+)+", told.stdout + told.stderr)
    return number.group() if number else "unknown"


def commit(root: Path) -> str:
    """That is checked out there, and whether anything but a report differs from it; nothing if this
    is no checkout."""
    git = ["git", "-C", str(root)]
    try:
        told = subprocess.run(
            [*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True
        )
    except FileNotFoundError:
        return ""
    if told.returncode:
        return ""
    differs = [*git, "diff", "--quiet", "HEAD", "--", ".", ":!docs/benchmarks"]
    changed = ", changed" if subprocess.run(differs).returncode else ""
    return f" ({told.stdout.strip()}{changed})"


def _grants_priority() -> bool:
    """As the thread that syncs the feed asks for it."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        return False
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    return True


def _processor() -> str:
    try:
        told = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        told = None
    return told[1] if told else platform.machine()


def _system() -> str:
    return f"{platform.system()} {platform.release()}"
