"""Every example runs as its first lines say, twice on the same node, and shows what it promises."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.serving.nodes import Node
from tests.sources.servers import Postgres

ROOT: Final = Path(__file__).parents[2]

SHOWS: Final = {
    "address_book": [
        "The phone shows 555-1234.",
        "laptop: is told that alice has changed, and drops its copy",
        "The laptop shows 555-9876. Nobody polled.",
    ],
    "device_fleet": [
        "coast-1: 1 notification(s), now set to 'a picture every hour'",
        "tundra-1: 1 notification(s), now set to 'a picture when something moves'",
        "coast-2: 1 notification(s), now set to 'a picture every 1 minutes'",
        "tundra-1: 0 notification(s), now set to 'a picture when something moves'",
        "coast-1: 0 notification(s), now set to 'a picture every 1 minutes'",
    ],
    "tcp_channel": ["told over our own TCP: lobby has changed"],
    "udp_channel": ["told of the last of 100 changes, whatever was lost on the way"],
    "outbox": [
        "browser: is told that tent has changed, and shows 250",
        "backend: starts, and publishes 1 change(s) that were left over",
        "browser: is told that tent has changed, and shows 199",
        "Nothing was lost.",
    ],
    "web_backend": [
        "browser: is told that products/4711 has changed, and shows 250",
        "browser: is told that products/4711 has changed, and shows 199",
        "browser: is told that products/4711 has changed, and shows None",
        "Nobody called publish.",
    ],
}
WITH_A_DATABASE: Final = {"web_backend"}


def test_every_example_is_run_here_and_documented() -> None:
    found = {path.stem for path in ROOT.glob("examples/*.py")}
    assert found == set(SHOWS)
    guide = (ROOT / "docs/client.md").read_text()
    assert [name for name in found if f"examples/{name}.py" not in guide] == []


@pytest.mark.parametrize("name", sorted(SHOWS.keys() - WITH_A_DATABASE))
def test_example_shows_what_it_promises(name: str, node: Node) -> None:
    shows_what_it_promises(name, node)


def test_backend_shows_what_it_promises_without_publishing(
    shop: Postgres, node_with_shop: Node
) -> None:
    database = f"host=127.0.0.1 port={shop.port} dbname=shop user=roskva"
    shows_what_it_promises("web_backend", node_with_shop, "--database", database)


def shows_what_it_promises(name: str, node: Node, *flags: str) -> None:
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-W", "error", f"examples/{name}.py", "--url", node.url, *flags],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (run.returncode, run.stderr) == (0, ""), run.stdout
        rest = run.stdout
        for line in SHOWS[name]:
            _, found, rest = rest.partition(line)
            assert found, f"{line!r} is missing in:\n{run.stdout}"
