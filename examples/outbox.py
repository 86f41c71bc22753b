"""A web backend that publishes by itself whenever a row changes, and never forgets to.

    roskva serve
    python examples/outbox.py --url http://localhost:7600

This is for databases whose change log Roskva does not read, as SQLite here. With PostgreSQL or
MariaDB nobody has to publish: see web_backend.py.

Writing to a database and publishing are two steps, and a process can die between them. So each row
remembers how far it was published: where `version > published`, Roskva does not know yet. Those
rows are the outbox. They are published after every commit, and when the backend starts. Publishing
one of them twice does no harm.

The order matters. Publishing first and committing later would tell clients to read a price that is
not there yet.
"""

import argparse
import json
import sqlite3
import tempfile
import threading
import time
import urllib.request
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import roskva

APP = "depot"
SCHEMA = """
create table if not exists product (
    name text primary key,
    price integer not null,
    version integer not null,
    published integer not null default 0
)
"""
SET_PRICE = """
insert into product (name, price, version) values (:name, :price, :now)
on conflict (name) do update set price = :price, version = max(version + 1, :now)
"""
OUTBOX = "select name, version from product where version > published order by version"
DONE = "update product set published = max(published, ?) where name = ?"


class Shop:
    """The application: one method per thing that it does. Used by the server's threads."""

    def __init__(self, database: Path, publisher: roskva.blocking.Publisher) -> None:
        self.database = database
        self.publisher = publisher
        with closing(self.connect()) as db, db:
            db.execute(SCHEMA)

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.database)

    def price(self, name: str) -> dict[str, Any]:
        with closing(self.connect()) as db:
            row = db.execute("select price, version from product where name = ?", [name]).fetchone()
        return {"price": row[0], "version": row[1]} if row else {"price": None, "version": None}

    def set_price(self, name: str, price: int) -> None:
        with closing(self.connect()) as db, db:  # leaving `with db` commits
            # Versions from the clock go on rising even if the database is lost and made anew.
            now = time.time_ns() // 1000
            db.execute(SET_PRICE, {"name": name, "price": price, "now": now})

    def publish_outbox(self) -> int:
        """Everything that was committed and is not published; returns how much that was."""
        with closing(self.connect()) as db:
            waiting = db.execute(OUTBOX).fetchall()
            for name, version in waiting:
                self.publisher.publish(name, version)  # returns when Roskva has it for good
                with db:
                    db.execute(DONE, [version, name])
        return len(waiting)


def handler_of(shop: Shop) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(shop.price(self.path.strip("/")))

        def do_PUT(self) -> None:
            length = int(self.headers["content-length"])
            shop.set_price(self.path.strip("/"), json.loads(self.rfile.read(length))["price"])
            # In here for the sake of the example. A busy backend answers now, and has a thread
            # that empties the outbox; clients learn of it a moment later.
            shop.publish_outbox()
            self.answer({})

        def answer(self, body: dict[str, Any]) -> None:
            content = json.dumps(body).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


class RunningBackend:
    """The backend's process, as far as an example can have one: it starts, serves and dies."""

    def __init__(self, url: str, database: Path) -> None:
        self.publisher = roskva.blocking.Publisher(url, app=APP)
        self.shop = Shop(database, self.publisher)
        left_over = self.shop.publish_outbox()
        print(f"  backend: starts, and publishes {left_over} change(s) that were left over")
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self.shop))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def die(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        self.publisher.close()


def put_price(backend: RunningBackend, name: str, price: int) -> None:
    body = json.dumps({"price": price}).encode()
    request = urllib.request.Request(f"{backend.url}/{name}", data=body, method="PUT")
    urllib.request.urlopen(request).close()


def wait_for_price(
    client: roskva.blocking.Client, backend: RunningBackend, name: str, price: int
) -> None:
    """A browser: whenever it is told that the product changed, it asks the backend."""
    for event in client:
        if isinstance(event, roskva.Notify | roskva.NotifyUnknown):
            with urllib.request.urlopen(f"{backend.url}/{name}") as answer:
                shown = json.load(answer)["price"]
            print(f"  browser: is told that {event.name} has changed, and shows {shown}")
            client.ack(event)
            if shown == price:
                return


def main(url: str, directory: Path) -> None:
    database = directory / "shop.sqlite"
    with roskva.blocking.Client(url, app=APP) as client:
        client.register("tent")
        backend = RunningBackend(url, database)

        print("Somebody sets a price over HTTP:")
        put_price(backend, "tent", 250)
        wait_for_price(client, backend, "tent", 250)

        print("The backend dies between its commit and publishing:")
        backend.shop.set_price("tent", 199)
        backend.die()

        print("It is started again:")
        backend = RunningBackend(url, database)
        wait_for_price(client, backend, "tent", 199)
        print("Nothing was lost.")
        backend.die()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="A backend with a database and an outbox.")
    arguments.add_argument("--url", default="http://localhost:7600", help="of a Roskva node")
    with tempfile.TemporaryDirectory() as scratch:
        main(arguments.parse_args().url, Path(scratch))
