"""Database servers for tests: their own directory, a free port, and a user that is not root."""

import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psycopg2
import pymysql
import pytest
from benchmarks.ports import free_port
from tests.serving.nodes import await_that

UNPRIVILEGED: Final = "postgres"
_START_S: Final = 60.0
_SETTINGS: Final = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
wal_level = logical
max_wal_senders = 10
max_replication_slots = 10
shared_buffers = 16MB
fsync = off
"""
GRANTS: Final = (
    "CREATE USER roskva@'%'",
    "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO roskva@'%'",
    "GRANT SELECT ON shop.* TO roskva@'%'",
)
_MARIADB: Final = (
    "--bind-address=127.0.0.1",
    "--log-bin=binlog",
    "--binlog-format=ROW",
    "--innodb-buffer-pool-size=16M",
    "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=2",
    "--performance-schema=OFF",
)


NEWER: Final = Path(sys.prefix) / "postgres-17/bin"


def newer_binaries() -> Path:
    """Of a PostgreSQL that keeps copies of slots on standbys."""
    if not NEWER.exists() and "CI" not in os.environ:
        pytest.skip("PostgreSQL 17 is not there: tools/postgres.sh gets it")
    return NEWER


def postgres_binaries() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found and "CI" not in os.environ:
        pytest.skip("PostgreSQL is not installed (on Debian: apt-get install postgresql)")
    return found[-1]


class Postgres:
    """A cluster with a database `shop` and a role `roskva` that may replicate."""

    def __init__(self, place: Path, binaries: Path) -> None:
        self.place, self._binaries = place, binaries
        self.data = place / "data"
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"postgresql://roskva@127.0.0.1:{self.port}/shop"

    def make(self, settings: str = "") -> None:
        self._own(self.place)
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "--no-sync")
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(f"{_SETTINGS}port = {self.port}\n{settings}\n")
        self.start()
        with self.connected("postgres", "postgres") as connection:
            cursor = connection.cursor()
            cursor.execute("CREATE ROLE roskva LOGIN REPLICATION")
            cursor.execute("CREATE DATABASE shop OWNER roskva")

    def copy(self, place: Path, settings: str = "", standby: bool = False) -> "Postgres":
        """Its files as they are, for another server, which is not started. It has to be stopped."""
        assert self._process is None
        other = Postgres(place, self._binaries)
        shutil.copytree(self.data, other.data, ignore=shutil.ignore_patterns("postmaster.pid"))
        with (other.data / "postgresql.conf").open("a") as file:
            file.write(f"port = {other.port}\n{settings}\n")
        if standby:
            (other.data / "standby.signal").touch()
        for path in (place, *place.rglob("*")):
            self._own(path)
        return other

    def configure(self, settings: str) -> None:
        """From the next start on."""
        with (self.data / "postgresql.conf").open("a") as file:
            file.write(f"{settings}\n")

    def start(self) -> None:
        with (self.place / "log").open("ab") as log:
            command = [str(self._binaries / "postgres"), "-D", str(self.data)]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, user=_user())
        await_that(self.answers, _START_S, lambda: (self.place / "log").read_text())

    def answers(self) -> bool:
        try:
            with self.connected("postgres", "postgres"):
                return True
        except psycopg2.OperationalError:
            return False

    def send(self, number: int) -> None:
        """To all its processes."""
        assert self._process is not None
        self._process.send_signal(number)
        children = f"/proc/{self._process.pid}/task/{self._process.pid}/children"
        for pid in Path(children).read_text().split():
            os.kill(int(pid), number)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """With all its processes; SIGINT stops it in order. None is left when this returns: a
        server is not started beside what another has left."""
        if self._process is not None:
            children = f"/proc/{self._process.pid}/task/{self._process.pid}/children"
            pids = Path(children).read_text().split() if number == signal.SIGKILL else []
            self._process.send_signal(number)
            for pid in pids:
                with suppress(ProcessLookupError):  # it has ended by itself
                    os.kill(int(pid), number)
            self._process.wait(_START_S)
            self._process = None
            await_that(lambda: not any(map(_lives, pids)), _START_S, lambda: str(pids))

    def stop(self) -> None:
        """In order: its standbys have everything."""
        self.kill(signal.SIGINT)

    def encrypt(self, certificates: Path, rule: str) -> None:
        """From now on a role gets in by this rule, before all others."""
        for name in ("server.crt", "server.key"):
            shutil.copy(certificates / name, self.data / name)
            (self.data / name).chmod(0o600)
            self._own(self.data / name)
        rules = self.data / "pg_hba.conf"
        rules.write_text(f"{rule}\n{rules.read_text()}")
        self.stop()
        self.configure("ssl = on")
        self.start()

    def promote(self) -> None:
        self.administer("SELECT pg_promote()")
        await_that(lambda: not self.administer("SELECT pg_is_in_recovery()")[0][0], _START_S)

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Each a transaction of its own; what the last one answers."""
        return self._run_as("roskva", "shop", statements)

    def administer(self, *statements: str) -> list[tuple[Any, ...]]:
        """As a superuser."""
        return self._run_as("postgres", "shop", statements)

    def _run_as(self, user: str, database: str, statements: Sequence[str]) -> list[tuple[Any, ...]]:
        with self.connected(user, database) as connection:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []

    @contextmanager
    def connected(self, user: str = "roskva", database: str = "shop") -> Iterator[Any]:
        connection = psycopg2.connect(
            host="127.0.0.1", port=self.port, user=user, dbname=database, connect_timeout=5
        )
        connection.autocommit = True
        try:
            yield connection
        finally:
            connection.close()

    def _own(self, path: Path) -> None:
        if os.geteuid() == 0:
            shutil.chown(path, UNPRIVILEGED)

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [self._binaries / program, *arguments], user=_user(), check=True, capture_output=True
        )


def mariadb_server() -> str:
    found = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
    if found is None:
        if "CI" not in os.environ:
            pytest.skip("MariaDB is not installed (on Debian: apt-get install mariadb-server)")
        raise FileNotFoundError("mariadbd")
    return found


class MariaDb:
    """A server with a database `shop` and a user `roskva` that may replicate and read it."""

    def __init__(self, place: Path, server_id: int = 1, port: int | None = None) -> None:
        self.place, self.server_id = place, server_id
        self.data = place / "data"
        self.port = port or free_port()
        self._environment = {**os.environ, "TMPDIR": str(place)}
        """A server that starts removes the temporary tables of all that share a directory."""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mariadb://roskva@127.0.0.1:{self.port}/shop"

    def make(self, *flags: str) -> None:
        shutil.chown(self.place, _user("mysql"))
        where = f"--datadir={self.data}"
        install = ["mariadb-install-db", "--no-defaults", where, "--skip-test-db"]
        install.append("--auth-root-authentication-method=normal")
        made = subprocess.run(
            install, user=_user("mysql"), env=self._environment, capture_output=True, text=True
        )
        assert made.returncode == 0, made.stdout + made.stderr
        self.start(*flags)
        with self.connected(database="") as connection, connection.cursor() as cursor:
            for statement in ("CREATE DATABASE shop", *GRANTS):
                cursor.execute(statement)

    def start(self, *flags: str) -> None:
        command = [mariadb_server(), "--no-defaults", f"--datadir={self.data}"]
        command += [f"--port={self.port}", f"--socket={self.place}/socket", *_MARIADB]
        command += [f"--pid-file={self.place}/pid", f"--server-id={self.server_id}", *flags]
        with (self.place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                user=_user("mysql"),
                cwd=self.place,
                env=self._environment,
            )
        await_that(self.answers, _START_S, lambda: (self.place / "log").read_text())

    def answers(self) -> bool:
        try:
            with self.connected(database=""):
                return True
        except pymysql.MySQLError:
            return False

    def sync_commits(self, on: bool) -> None:
        """So that its log and its tables survive a crash of the machine."""
        self.run(
            f"SET GLOBAL sync_binlog = {int(on)}",
            f"SET GLOBAL innodb_flush_log_at_trx_commit = {1 if on else 2}",
        )

    def replicate(self, first: "MariaDb") -> None:
        """From here on; until now it is the same."""
        [(position,)] = first.run("SELECT @@gtid_binlog_pos")
        self.run(
            "RESET MASTER",
            f"SET GLOBAL gtid_slave_pos = '{position}'",
            f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {first.port}, "
            "master_user = 'root', master_use_gtid = slave_pos",
            "START SLAVE",
        )

    def kill(self, number: int = signal.SIGKILL) -> None:
        """SIGTERM stops it in order."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait(_START_S)
            self._process = None

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Each a transaction of its own, as root; what the last one answers."""
        with self.connected() as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            return list(cursor.fetchall())

    @contextmanager
    def connected(self, user: str = "root", database: str = "shop") -> Iterator[Any]:
        connection = pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=user,
            database=database or None,
            connect_timeout=5,
            autocommit=True,
        )
        try:
            yield connection
        finally:
            connection.close()


@contextmanager
def unprivileged_postgres() -> Iterator[tuple[Path, str]]:
    """A directory and a PATH for commands that are pasted: also by root, whom initdb refuses."""
    binaries = postgres_binaries()
    path = f"{sys.prefix}/bin:{os.environ['PATH']}"
    with tempfile.TemporaryDirectory(prefix="roskva-tour-") as name:
        place = Path(name)
        if os.geteuid() == 0:
            place.chmod(0o755)
            shutil.chown(place, UNPRIVILEGED)
            (place / "bin").mkdir()
            for program in ("initdb", "pg_ctl"):
                as_user = f"setpriv --reuid={UNPRIVILEGED} --regid={UNPRIVILEGED} --clear-groups"
                shim = place / "bin" / program
                shim.write_text(f'#!/bin/sh\nexec {as_user} {binaries}/{program} "$@"\n')
                shim.chmod(0o755)
            path = f"{place}/bin:{path}"
        yield place, path


def _user(service: str = UNPRIVILEGED) -> str:
    return service if os.geteuid() == 0 else pwd.getpwuid(os.geteuid()).pw_name


def _lives(pid: str) -> bool:
    """Whoever has ended, and was not waited for, holds nothing any more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
