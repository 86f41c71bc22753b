"""What operators see of a source: in the status, the metrics, the console, and of an object."""

import asyncio
import re
import subprocess

import msgspec
from playwright.sync_api import expect
from tests.console.browsing import PATIENCE_MS, PHONE, browser, tab
from tests.serving.nodes import HTTP, PATIENCE_S, ROSKVA, Node, await_that
from tests.sources.servers import Postgres
from tests.sources.shop import reading, watcher

expect.set_options(timeout=PATIENCE_MS)


async def _told(shop: Postgres, node: Node) -> int:
    async with watcher(node, "products/1") as one:
        shop.run("INSERT INTO products VALUES (1, 10)")
        return (await one.told()).version


def test_a_source_is_seen_with_its_flow_and_its_doubts(shop: Postgres, node: Node) -> None:
    reading(node)
    version = asyncio.run(_told(shop, node))
    await_that(lambda: reading(node).flow == 2, PATIENCE_S)

    found = msgspec.json.decode(said("explain", "object", "shop/products/1", node, "--json"))
    assert (found["version"], found["origin"]["object"]) == (str(version), "shop/products/1")
    xid = shop.run("SELECT xmin::text FROM products")[0][0]
    assert found["origin"]["transaction"] == xid
    assert f"Transaction {xid} of shop has inserted it." in found["sentence"]

    text = " ".join(said("status", node).split())
    assert re.search(r"shop reading 1, ", text)
    assert "the last doubt was at" in text
    metrics = HTTP.get(f"{node.url}/metrics").text
    assert 'roskva_flow_lag_changes{flow="direct",source="shop"} 0.0' in metrics.replace(
        'source="shop",flow="direct"', 'flow="direct",source="shop"'
    )
    assert re.search(r'roskva_source_lag_seconds\{source="shop"\} \d', metrics)

    shop.run("TRUNCATE products")
    await_that(lambda: reading(node).doubts == 2, PATIENCE_S)
    now = reading(node)
    assert (now.doubt_cause, now.doubt) == ("truncated", "products was emptied by TRUNCATE")

    shop.run("INSERT INTO products VALUES (2, 20)")
    with browser() as chromium:
        for look in ({}, {"viewport": PHONE}):
            with tab(chromium, node.url, **look) as page:
                picture = page.get_by_role("img", name=re.compile("The source shop: the database"))
                for box in ("Database", "Changes", "Direct flow"):
                    expect(picture.get_by_text(box, exact=True)).to_be_visible()
                expect(picture.get_by_text("has passed all on")).to_be_visible()
                expect(page.locator("main")).to_contain_text("emptied by TRUNCATE")
                page.goto(f"{node.url}/#/object/shop/products/2")
                expect(page.locator("main")).to_contain_text("insert of shop/products/2")


def said(*words: "str | Node") -> str:
    command = [word if isinstance(word, str) else f"--url={word.url}" for word in words]
    return subprocess.run([ROSKVA, *command], capture_output=True, text=True, check=True).stdout
