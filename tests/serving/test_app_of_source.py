"""A node whose app belongs to a database: what others are told who publish or reset there."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from tests.serving.nodes import Node

from roskva.pipeline.publish_sink import NodeAt
from roskva.publisher.requests import UpdateBody

SETTINGS = """
[source.shop]
url = "postgresql://nobody@127.0.0.1:1/shop"
tables = ["products"]
with_node = false
"""
WORDS = "belongs to the source shop"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    settings = tmp_path / "roskva.toml"
    settings.write_text(SETTINGS)
    node = Node(tmp_path / "data", "--config", str(settings))
    node.start()
    try:
        yield node
    finally:
        node.end()


def test_only_flows_publish_and_nobody_resets(node: Node) -> None:
    with httpx.Client(base_url=node.url, timeout=30) as http:
        update = {"app": "shop", "name": "products/1", "version": 7}
        (refused,) = http.post("/v1/publish", json=[update]).json()["results"]
        assert WORDS in refused["error"]["text"]
        assert refused["error"]["retriable"] is False
        reset = http.post("/v1/reset", json={"app": "shop", "name": "products/1"})
        assert reset.status_code == 403
        assert WORDS in reset.text
        asked = http.get("/v1/admin/apps/shop")
        assert asked.status_code == 403
        assert WORDS in asked.text
    assert node.publish("other/x", 7) == 7
    with closing(NodeAt("", str(node.data), flow="shop")) as flow:
        assert flow.publish([UpdateBody("shop", "products/1", "7")]) == [7]
    assert node.read("shop/products/1") == 7
