"""The console in a real browser, on a live node with traffic."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect
from tests.console import screenshots
from tests.console.browsing import PATIENCE_MS, PHONE, browser, tab
from tests.console.traffic import OBJECTS, PENDING, Scene, not_reading, traffic
from tests.serving.nodes import Node

expect.set_options(timeout=PATIENCE_MS)

KEY = "correct horse battery staple"
SETTINGS = """
[node]
trace_one_in = 1
[slo]  # a busy machine is not what the console is to complain of here
register_ms = 60000
publish_ms = 60000
notify_websocket_ms = 60000
notify_events_ms = 60000
notify_mqtt_ms = 60000
reconnect_ms = 60000
"""
PAGES = ("now", "object", "client", "pipeline", "try")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as started:
        yield started


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    scratch = tmp_path_factory.mktemp("console")
    (scratch / "roskva.toml").write_text(SETTINGS)
    flags = ("--config", str(scratch / "roskva.toml"), "--registrars", "1", "--matchers", "2")
    node = Node(scratch / "data", *flags, probe=True)
    try:
        node.start()
        yield node
    finally:
        node.end()


@pytest.fixture(scope="module")
def scene(node: Node) -> Iterator[Scene]:
    with traffic(node) as staged:
        yield staged


@pytest.fixture
def page(chromium: Browser, node: Node, scene: Scene) -> Iterator[Page]:
    with tab(chromium, node.url) as opened:
        yield opened


def test_now_shows_the_path_with_its_rates(page: Page) -> None:
    expect(page.locator(".sentence")).to_contain_text("Everything works")
    picture = page.get_by_role("img", name=re.compile("The path of an update"))
    for box in ("Publishers", "Feed", "Matchers", "Registrars", "Clients", "Bridge"):
        expect(picture.get_by_text(box, exact=True)).to_be_visible()
    expect(picture.locator(".flow")).to_have_count(4)
    expect(picture.get_by_text("12 sessions")).to_be_visible()
    expect(page.get_by_text("into the feed")).to_be_visible()
    expect(page.get_by_role("row", name=re.compile("registrar-0"))).to_be_visible()


def test_a_client_that_does_not_read_is_told_of_after_the_service(page: Page, node: Node) -> None:
    with not_reading(node, "shop/slow"):
        sentence = page.locator(".sentence")
        expect(sentence).to_contain_text("1 client does not read what it is sent")
        expect(sentence).to_contain_text(re.compile(r"^Everything works\."))
        expect(sentence).not_to_have_class(re.compile("warn|bad"))


def test_now_shows_what_the_prober_measures(page: Page) -> None:
    expect(page.get_by_text("All 6 paths are well. Every 5 s")).to_be_visible()
    row = page.get_by_role("row", name=re.compile("notify-mqtt"))
    expect(row).to_contain_text("feed → matcher → registrar → MQTT")
    expect(row).to_contain_text("kept")


def test_an_object_says_who_has_not_heard_and_leads_to_them(page: Page, scene: Scene) -> None:
    page.get_by_role("link", name="Object").click()
    page.get_by_label("Object", exact=True).fill(PENDING)
    page.keyboard.press("Enter")
    expect(page.locator(".sentence")).to_contain_text("Stands at version 2")
    expect(page.locator(".sentence")).to_contain_text("is pending")
    page.get_by_role("link", name=scene.pending[:12]).click()
    expect(page.locator(".sentence")).to_contain_text("it was told 1 object of 1 and has not acked")
    expect(page.get_by_text("tablet-7")).to_be_visible()


def test_an_object_can_be_published_to_in_development(page: Page, node: Node) -> None:
    page.goto(f"{node.url}/#/object/shop/fresh/paint")
    expect(page.locator(".sentence")).to_contain_text("Nothing was published to it yet")
    page.get_by_role("button", name="Publish").click()
    expect(page.get_by_text("Version 1 is in the feed")).to_be_visible()
    expect(page.locator(".sentence")).to_contain_text("Stands at version 1")


def test_a_client_that_is_away_is_explained(page: Page, scene: Scene) -> None:
    page.get_by_role("link", name="Client").click()
    page.get_by_label(re.compile("Client id")).fill(scene.away)
    page.get_by_role("button", name="Explain").click()
    expect(page.locator(".sentence")).to_contain_text("will be told 3 objects when it returns")
    expect(page.get_by_role("row").filter(has_text=OBJECTS[0])).to_contain_text("pending")


def test_a_client_that_nobody_knows_is_said_to_be_so(page: Page, node: Node) -> None:
    page.goto(f"{node.url}/#/client/nobody-at-all")
    expect(page.locator(".sentence")).to_contain_text("No client has this id")


def test_a_bad_name_is_answered_in_words(page: Page, node: Node) -> None:
    page.goto(f"{node.url}/#/object/Shop!/x")
    expect(page.locator(".sentence")).to_contain_text("an app is 1 to 63 of a-z")
    page.wait_for_timeout(100)
    _forgive(page)


def test_the_pipeline_says_why_it_is_off(page: Page) -> None:
    page.get_by_role("link", name="Pipeline").click()
    expect(page.locator(".sentence")).to_contain_text("The pipeline is off: it is not enabled")
    expect(page.get_by_text("No job has run")).to_be_visible()


def test_a_tab_is_told(page: Page) -> None:
    page.get_by_role("link", name="Try it").click()
    page.get_by_label("Object", exact=True).fill("demo/greeting")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    log = page.get_by_role("list", name="What this tab was told")
    expect(log).to_contain_text("demo/greeting: version unknown, go and look")
    page.get_by_role("button", name="Publish the next version").click()
    expect(
        log.get_by_text(re.compile("is at version 1, .* after it was published"))
    ).to_be_visible()
    expect(page.get_by_label("Code for Python", exact=True)).to_contain_text(
        'client.register("greeting")'
    )
    page.get_by_role("button", name="Unsubscribe").click()
    expect(page.get_by_text("This tab is not connected")).to_be_visible()


def test_a_matcher_is_killed_and_the_page_says_so_and_recovers(page: Page, node: Node) -> None:
    expect(page.locator(".sentence")).to_contain_text("Everything works")
    # First it is silent, for as long as it takes the page to look; then it is dead.
    killed = node.signal("state-1", signal.SIGSTOP)
    expect(page.locator(".sentence.bad")).to_contain_text(
        "state-1 does not answer: updates for shards 2, 3 wait"
    )
    picture = page.get_by_role("img", name=re.compile("The path of an update"))
    expect(picture.get_by_text("state-1 down")).to_be_visible()
    os.kill(killed, signal.SIGKILL)
    expect(page.locator(".sentence")).to_contain_text("Everything works")
    expect(picture.get_by_text("state-1 down")).to_have_count(0)


def test_a_node_that_does_not_answer_is_said_to_be_so_until_it_does(page: Page) -> None:
    expect(page.locator(".sentence")).to_contain_text("Everything works")
    page.context.set_offline(True)
    expect(page.get_by_text("The node does not answer. Trying again…")).to_be_visible()
    page.context.set_offline(False)
    expect(page.get_by_text("The node does not answer. Trying again…")).to_be_hidden()
    _forgive(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_phone(chromium: Browser, node: Node, scene: Scene, scheme: Any) -> None:
    about = {"object": f"/{PENDING}", "client": f"/{scene.away}", "try": "/shop/price/figs"}
    with tab(chromium, node.url, viewport=PHONE, color_scheme=scheme) as page:
        for name in PAGES:
            page.goto(f"{node.url}/#/{name}{about.get(name, '')}")
            expect(page.locator(".sentence")).not_to_contain_text("Looking…")
            assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], name


def test_every_page_can_be_used_without_seeing_it_or_a_mouse(page: Page, node: Node) -> None:
    for name in PAGES:
        page.goto(f"{node.url}/#/{name}")
        expect(page.locator("nav [aria-current=page]")).to_have_count(1)
        for landmark in ("banner", "navigation", "main", "contentinfo"):
            expect(page.get_by_role(landmark)).to_have_count(1)
        expect(page.get_by_role("heading", level=1)).to_have_count(1)
        unnamed = page.evaluate(
            "[...document.querySelectorAll('main input, main button')]"
            ".filter(e => !e.labels?.length && !e.textContent && !e.ariaLabel).length"
        )
        assert unnamed == 0, name
    page.reload()
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.get_by_role("main")).to_be_focused()


def test_off_loopback_it_asks_for_the_key_once(chromium: Browser, tmp_path: Path) -> None:
    (tmp_path / "admin.key").write_text(KEY)
    settings = tmp_path / "roskva.toml"
    settings.write_text(f'[admin]\nkey = "file:{tmp_path / "admin.key"}"\n')
    node = Guarded(tmp_path / "data", "--config", str(settings))
    try:
        node.start()
        with tab(chromium, node.url) as page:
            page.get_by_label("Key", exact=True).fill("guessed it, did I not?")
            page.get_by_role("button", name="Open").click()
            expect(page.get_by_role("alert")).to_have_text("That is not the key of this node.")
            page.get_by_label("Key", exact=True).fill(KEY)
            page.get_by_role("button", name="Open").click()
            expect(page.locator(".sentence")).to_contain_text("Everything works")
            page.reload()
            expect(page.locator(".sentence")).to_contain_text("Everything works")
            _forgive(page)
    finally:
        node.end()


class Guarded(Node):
    def status(self) -> dict[str, Any]:
        answer = httpx.get(f"{self.url}/v1/status", headers={"Authorization": f"Bearer {KEY}"})
        found: dict[str, Any] = answer.raise_for_status().json()
        return found


def test_its_policy_lets_nothing_in_or_out(node: Node) -> None:
    for path in ("/", "/console/app.js", "/console/style.css"):
        answer = httpx.get(f"{node.url}{path}")
        assert answer.status_code == 200
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
    assert httpx.get(f"{node.url}/console/nothing.js").status_code == 404
    assert httpx.get(f"{node.url}/console/..%2Fmodel.py").status_code == 404


def _forgive(page: Page) -> None:
    """The browser itself notes a refusal, and a network that is gone; here one was asked for."""
    refused: list[str] = page.wrong  # type: ignore[attr-defined]
    meant = ("the server responded with a status of 4", "net::ERR_INTERNET_DISCONNECTED")
    refused[:] = [text for text in refused if not any(each in text for each in meant)]


@pytest.mark.verify
def test_the_pictures_of_the_documentation_can_be_made(tmp_path: Path) -> None:
    made = screenshots.make(tmp_path)
    assert len(made) == 3 * (len(PAGES) + 1), "and the databases of the first"
    assert all(file.stat().st_size > 10_000 for file in made)
