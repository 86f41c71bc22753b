"""Random work on a database of any kind, and clients that must know of all of it.

Each writer has rows of its own, and gives them ever higher numbers, so a client that was told a
number and reads a lower one has been told too early. In between tables are altered.
"""

import random
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tests.serving.nodes import PATIENCE_S

WRITERS: Final = 2
ITEMS: Final = 40
BULK: Final = 10_000
PLACES: Final = ("berlin", "a/b", "%")
ALTERED_EVERY_S: Final = 4.0


class Database(Protocol):
    """As in servers.py."""

    @property
    def url(self) -> str: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
    def run(self, *statements: str) -> list[tuple[Any, ...]]: ...
    def connected(self) -> AbstractContextManager[Any]: ...


@dataclass(frozen=True)
class Kind:
    """What is said differently."""

    publish: tuple[str, ...]
    wider: str
    narrower: str


KINDS: Final = {
    "postgresql": Kind(
        (
            "CREATE PUBLICATION roskva_shop FOR TABLE items, stock, bulk",
            f"INSERT INTO bulk SELECT i, 0 FROM generate_series(1, {BULK}) i",
        ),
        "ALTER TABLE items ALTER COLUMN v TYPE numeric(20)",
        "ALTER TABLE items ALTER COLUMN v TYPE bigint",
    ),
    "mariadb": Kind(
        (f"INSERT INTO bulk SELECT seq, 0 FROM seq_1_to_{BULK}",),
        "ALTER TABLE items MODIFY v decimal(20)",
        "ALTER TABLE items MODIFY v bigint",
    ),
}


def set_up(server: Database, kind: Kind) -> None:
    server.run(
        "CREATE TABLE items (id int PRIMARY KEY, v bigint)",
        "CREATE TABLE stock (place varchar(20), id int, v bigint, PRIMARY KEY (place, id))",
        "CREATE TABLE bulk (id int PRIMARY KEY, v bigint)",
        *kind.publish,
    )


NAMES: Final = [
    *(f"items/{id}" for id in range(ITEMS)),
    *(f"stock/{place}/{id}" for place in ("berlin", "a%2fb", "%25") for id in range(4)),
    *(f"bulk/{id}" for id in range(1, BULK, 500)),
]


FLOW: Final = "flow"
"""A flow on Spark calls items so."""


def row_of(name: str) -> tuple[str, tuple[object, ...]]:
    """A question for its number."""
    table, *key = name.split("/")
    table = "items" if table == FLOW else table
    if table == "stock":
        place = key[0].replace("%2f", "/").replace("%25", "%")
        return "SELECT v FROM stock WHERE place = %s AND id = %s", (place, int(key[1]))
    return f"SELECT v FROM {table} WHERE id = %s", (int(key[0]),)


class Patient:
    """A connection that is made again when the database is."""

    def __init__(self, server: Database) -> None:
        self._server = server
        self._held: Any = None
        self._connection: Any = None

    def cursor(self) -> Any:
        if self._connection is None:
            self._held = self._server.connected()
            self._connection = self._held.__enter__()
        return self._connection.cursor()

    def drop(self) -> None:
        held, self._held, self._connection = self._held, None, None
        if held is not None:
            try:
                held.__exit__(None, None, None)
            except Exception:
                return  # the server is gone

    def ask(self, question: str, arguments: tuple[object, ...]) -> list[tuple[Any, ...]]:
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                cursor = self.cursor()
                cursor.execute(question, arguments)
                return list(cursor.fetchall())
            except Exception:
                self.drop()
                if time.monotonic() > give_up_at:
                    raise
                time.sleep(0.05)


class Worker(threading.Thread):
    """Until it is stopped; whatever the database refuses is done with."""

    def __init__(self, server: Database, seed: str) -> None:
        super().__init__(daemon=True)
        self.dice = random.Random(seed)
        self.stopping = threading.Event()
        self.done = self.refused = 0
        self._patient = Patient(server)

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self.work(self._patient.cursor())
                self.done += 1
            except Exception:
                self.refused += 1
                self._patient.drop()
                self.stopping.wait(0.05)
        self._patient.drop()

    def work(self, cursor: Any) -> None:
        raise NotImplementedError


class Writer(Worker):
    def __init__(self, server: Database, number: int) -> None:
        super().__init__(server, f"writer {number}")
        self.number = number
        self.v = 0

    def work(self, cursor: Any) -> None:
        cursor.execute("BEGIN")
        self._change(cursor)
        if self.dice.random() < 0.3:
            cursor.execute("SAVEPOINT here")
            self._change(cursor)
            cursor.execute("ROLLBACK TO SAVEPOINT here")
            self._change(cursor)
        cursor.execute("ROLLBACK" if self.dice.random() < 0.15 else "COMMIT")
        self.stopping.wait(self.dice.uniform(0.0, 0.02))

    def _change(self, cursor: Any) -> None:
        self.v += 1
        kind = self.dice.random()
        if kind < 0.03:
            rows = int(10 ** self.dice.uniform(1, 4))
            cursor.execute(
                "UPDATE bulk SET v = %s WHERE id <= %s AND mod(id, %s) = %s",
                (self.v, rows, WRITERS, self.number),
            )
        elif kind < 0.3:
            place, id = self.dice.choice(PLACES), self._mine(4)
            cursor.execute("DELETE FROM stock WHERE place = %s AND id = %s", (place, id))
            if kind < 0.2:
                values = (place, id, self.v)
                cursor.execute("INSERT INTO stock (place, id, v) VALUES (%s, %s, %s)", values)
        else:
            id = self._mine(ITEMS)
            if kind < 0.45:
                cursor.execute("DELETE FROM items WHERE id = %s", (id,))
                cursor.execute("INSERT INTO items (id, v) VALUES (%s, %s)", (id, self.v))
            elif kind < 0.5:
                cursor.execute("DELETE FROM items WHERE id = %s", (id,))
            else:
                cursor.execute("UPDATE items SET v = %s WHERE id = %s", (self.v, id))

    def _mine(self, count: int) -> int:
        return self.number + WRITERS * self.dice.randrange(count // WRITERS)


class Alterer(Worker):
    """Alters columns that are no key, and makes tables that nobody asks for."""

    def __init__(self, server: Database, kind: Kind) -> None:
        super().__init__(server, "alterer")
        self.kind = kind

    def work(self, cursor: Any) -> None:
        self.stopping.wait(ALTERED_EVERY_S)
        n = self.done
        statements = [
            f"ALTER TABLE items ADD COLUMN c{n} int DEFAULT 7",
            f"ALTER TABLE items RENAME COLUMN c{n - 1} TO d{n}",
            f"ALTER TABLE items DROP COLUMN d{n - 1}",
            self.kind.wider,
            f"CREATE TABLE other{n} (id int PRIMARY KEY)",
            self.kind.narrower,
        ]
        cursor.execute(statements[n % len(statements)])


@contextmanager
def working(server: Database, kind: Kind) -> Iterator[list[Worker]]:
    workers: list[Worker] = [Writer(server, number) for number in range(WRITERS)]
    workers.append(Alterer(server, kind))
    for worker in workers:
        worker.start()
    try:
        yield workers
    finally:
        for worker in workers:
            worker.stopping.set()
        for worker in workers:
            worker.join(PATIENCE_S)
