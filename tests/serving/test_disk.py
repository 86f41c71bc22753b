"""What a node takes of its disk: bounded, and told."""

import re
from pathlib import Path
from typing import Any, Final

import httpx
from tests.serving.nodes import PATIENCE_S, Node, await_that, versions_of

SEGMENT_BYTES: Final = 1 << 20
SETTINGS: Final = f"""
[feed]
segment_bytes = {SEGMENT_BYTES}
retention_share = 0
[limits]
keyless_publish_bytes_per_second = "off"
"""
KEYS: Final = [f"test/{number}" for number in range(50)]
MOST_SEGMENTS: Final = 3
"""Of a shard: one beyond the cap, and one that is being written."""


def test_feeds_stay_within_their_cap_and_nothing_is_lost(tmp_path: Path) -> None:
    settings = tmp_path / "roskva.toml"
    settings.write_text(SETTINGS)
    node = Node(tmp_path / "data", "--config", str(settings), "--shards", "1")
    try:
        node.start()
        written = 0
        for version in range(1, 10):
            for updates in versions_of(KEYS, range(20 * version, 20 * version + 20)):
                node.publish_all([{**update, "text": "x" * 1000} for update in updates])
                written += sum(1000 for _ in updates)
        assert written > 2 * MOST_SEGMENTS * SEGMENT_BYTES
        feed = node.data / "shard-00/feed"
        await_that(lambda: len(list(feed.glob("*.log"))) <= MOST_SEGMENTS, PATIENCE_S)
        assert node.counter("epochs") == 0
        node.stop()
        node.start()
        assert [node.read(key) for key in KEYS] == [199] * len(KEYS)
        assert node.counter("epochs") == 0
        await_that(lambda: _disk(node)["rows"].get("objects") == len(KEYS), PATIENCE_S)
        disk = _disk(node)
        assert disk["feed_cap"] == SEGMENT_BYTES
        assert disk["parts"]["feed"] > 0 < disk["parts"]["store"]
        assert disk["total"] > disk["free"] > disk["floor"]
        assert "are free" in disk["sentence"]
        metrics = httpx.get(f"{node.url}/metrics").text
        assert f"roskva_feed_cap_bytes {SEGMENT_BYTES / 1e6}e+06" in metrics
        assert re.search(r'roskva_disk_used_bytes\{part="feed"\} [1-9]', metrics)
        assert 'roskva_rows{kind="objects",process="node",shard="0"} 50.0' in metrics
    finally:
        node.end()


def _disk(node: Node) -> dict[str, Any]:
    disk: dict[str, Any] = node.status()["disk"]
    return disk
