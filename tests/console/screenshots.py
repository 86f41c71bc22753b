"""Pictures of the console for the documentation: `make screenshots`."""

import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page
from tests.console.browsing import DESKTOP, PHONE, browser, tab
from tests.console.traffic import PENDING, Scene, traffic
from tests.serving.nodes import ROSKVA, Node, await_that
from tests.sources.servers import Postgres
from tests.sources.shop import served_shop

IMAGES: Final = Path("docs/images")
SPARK_S: Final = 300.0
_SETTINGS: Final = """
[node]
trace_one_in = 2
registrars = 2
matchers = 2

[ingest.prices]
format = "json"
path = "{rows}"
columns = "app STRING, name STRING, version BIGINT"

[source.stock]
url = "{database}"
tables = ["products"]

[ingest.sold-out]
format = "roskva-changes"
path = "stock"
table = "products"
columns = "id BIGINT, price INT"
name = "concat('sold-out/', row.id)"
filter = "row.price = 0"
"""
_GOOD_ROWS: Final = """{"app": "shop", "name": "offer/1", "version": 1}
"""
_BAD_ROWS: Final = """{"app": "Shop!", "name": "offer/2", "version": 1}
{"app": "shop", "name": "offer/3", "version": -5}
"""


def make(images: Path) -> list[Path]:
    with (
        tempfile.TemporaryDirectory() as scratch,
        served_shop("stock") as database,
        _node(Path(scratch), database.url) as node,
        traffic(node) as scene,
        _changing(database),
        browser() as chromium,
    ):
        await_that(lambda: _bridged(node), SPARK_S, lambda: str(node.status()["pipeline"]))
        await_that(lambda: _probed(node), SPARK_S, lambda: str(node.status()["probe"]))
        now = ("/now", "text=Everything works")
        made = list(_pictures(chromium, node, images, {"now": now, "sources": now}))
        (Path(scratch) / "rows" / "tuesday.json").write_text(_BAD_ROWS)
        _jobs(node)
        return [*made, *_pictures(chromium, node, images, _pages(scene))]


@contextmanager
def _node(scratch: Path, database: str) -> Iterator[Node]:
    rows = scratch / "rows"
    rows.mkdir()
    (rows / "monday.json").write_text(_GOOD_ROWS)
    settings = scratch / "roskva.toml"
    settings.write_text(_SETTINGS.format(rows=rows, database=database))
    node = Node(scratch / "data", "--config", str(settings), pipeline=True, probe=True)
    try:
        node.start()
        yield node
    finally:
        node.end()


@contextmanager
def _changing(database: Postgres) -> Iterator[None]:
    """Some transactions a second."""
    stop = threading.Event()

    def run() -> None:
        database.run("INSERT INTO products SELECT i, 10 FROM generate_series(1, 200) i")
        while not stop.wait(0.05):
            database.run(
                "UPDATE products SET price = random() * 5 "
                "WHERE id = (SELECT 1 + floor(random() * 200)::bigint)"
            )

    thread = threading.Thread(target=run, name="changing")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _bridged(node: Node) -> bool:
    parts: list[dict[str, Any]] = node.status()["pipeline"].get("parts", [])
    return bool(parts) and all(part["state"] == "running" and part["batches"] for part in parts)


def _probed(node: Node) -> bool:
    kept = {one["sli"]: one["kept"] for one in node.status()["probe"]["objectives"]}
    return "notify-pipeline" in kept and all(kept.values())


def _jobs(node: Node) -> None:
    for job in (["audit", str(node.data)], ["latency", str(node.data), "--plots", "/tmp"]):
        done = subprocess.run(
            [ROSKVA, "job", *job, "--master", "local[1]"], capture_output=True, text=True
        )
        assert done.returncode in (0, 1), done.stderr


def _pages(scene: Scene) -> dict[str, tuple[str, str]]:
    """By name, where each is and when it is ready."""
    return {
        "object": (f"/object/{PENDING}", "text=The furthest behind"),
        "client": (f"/client/{scene.away}", "text=when it returns"),
        "pipeline": ("/pipeline", ".card img[src]"),
        "try": ("/try/shop/price/apples", "text=The same, in your program"),
    }


def _pictures(
    chromium: Browser, node: Node, images: Path, pages: dict[str, tuple[str, str]]
) -> Iterator[Path]:
    looks: dict[str, dict[str, Any]] = {
        "": {"viewport": DESKTOP, "color_scheme": "light"},
        "-dark": {"viewport": DESKTOP, "color_scheme": "dark"},
        "-phone": {"viewport": PHONE, "device_scale_factor": 2, "color_scheme": "light"},
    }
    for name, (path, sign) in pages.items():
        for look, settings in looks.items():
            with tab(chromium, node.url, **settings) as page:
                page.goto(f"{node.url}/#{path}")
                page.wait_for_selector(sign)
                if name == "try":
                    _subscribe(page)
                page.wait_for_timeout(15_000 if name == "now" else 500)  # for some history
                page.wait_for_selector(sign)
                file = images / f"console-{name}{look}.png"
                if name == "sources":
                    page.locator("section[aria-labelledby=sources]").screenshot(path=file)
                else:
                    page.screenshot(path=file, full_page=file.name != "console-now.png")
                yield file


def _subscribe(page: Page) -> None:
    page.get_by_role("button", name="Subscribe", exact=True).click()
    page.wait_for_selector(".log .told")


if __name__ == "__main__":
    for made in make(Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES):
        sys.stdout.write(f"{made}\n")
