"""A web backend that never publishes: Roskva reads the log of its database.

    roskva serve --config shop.toml             # with PostgreSQL, as in docs/sources.md
    python examples/web_backend.py --url http://localhost:7600 --database "host=localhost port=5433"

The backend writes to its database and knows nothing of Roskva. Whatever is committed is told: also
what somebody types into psql, or another program does, or what happens while nobody listens. A
browser registers for the rows that it shows, `shop/products/ID`, and asks the backend when one of
them has changed. It then finds the new row: a change is told when it can be read, and not before.
"""

import argparse
import json
import threading
import urllib.request
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg2

import roskva

APP = "shop"
TENT = 4711
SET_PRICE = """
insert into products (id, name, price) values (%s, 'tent', %s)
on conflict (id) do update set price = excluded.price
"""


class Shop:
    """The application: one method per thing that it does. Used by the server's threads."""

    def __init__(self, database: str) -> None:
        self.database = database

    def price(self, product: int) -> int | None:
        with closing(psycopg2.connect(self.database)) as db, db, db.cursor() as cursor:
            cursor.execute("select price from products where id = %s", [product])
            row = cursor.fetchone()
        return row[0] if row else None

    def set_price(self, product: int, price: int) -> None:
        with closing(psycopg2.connect(self.database)) as db, db, db.cursor() as cursor:
            cursor.execute(SET_PRICE, [product, price])  # leaving `with db` commits

    def remove(self, product: int) -> None:
        with closing(psycopg2.connect(self.database)) as db, db, db.cursor() as cursor:
            cursor.execute("delete from products where id = %s", [product])


def handler_of(shop: Shop) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer({"price": shop.price(int(self.path.strip("/")))})

        def do_PUT(self) -> None:
            length = int(self.headers["content-length"])
            body = json.loads(self.rfile.read(length))
            shop.set_price(int(self.path.strip("/")), body["price"])
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


def put_price(backend: str, product: int, price: int) -> None:
    body = json.dumps({"price": price}).encode()
    request = urllib.request.Request(f"{backend}/{product}", data=body, method="PUT")
    urllib.request.urlopen(request).close()


def wait_for_price(
    client: roskva.blocking.Client, backend: str, product: int, price: int | None
) -> None:
    """A browser: whenever it is told that the product changed, it asks the backend."""
    for event in client:
        if isinstance(event, roskva.Notify | roskva.NotifyUnknown):
            with urllib.request.urlopen(f"{backend}/{product}") as answer:
                shown = json.load(answer)["price"]
            client.ack(event)
            if shown == price:
                print(f"  browser: is told that {event.name} has changed, and shows {shown}")
                return


def main(url: str, database: str) -> None:
    shop = Shop(database)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(shop))
    backend = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        with roskva.blocking.Client(url, app=APP) as client:
            client.register(f"products/{TENT}")

            print("Somebody sets a price over HTTP:")
            put_price(backend, TENT, 250)
            wait_for_price(client, backend, TENT, 250)

            print("Somebody else goes to the database directly:")
            shop.set_price(TENT, 199)
            wait_for_price(client, backend, TENT, 199)

            print("The product is taken out of the shop:")
            shop.remove(TENT)
            wait_for_price(client, backend, TENT, None)
            print("Nobody called publish.")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="A backend whose database is a change source.")
    arguments.add_argument("--url", default="http://localhost:7600", help="of a Roskva node")
    arguments.add_argument(
        "--database",
        default="host=localhost port=5433 dbname=shop user=postgres",
        help="with a table products, as PostgreSQL wants it",
    )
    given = arguments.parse_args()
    main(given.url, given.database)
