"""An ingest shows a publish key, and waits while it is not accepted."""

import os
import threading
from contextlib import closing
from pathlib import Path

from tests.serving.keyed import KeyedNode, publish_key
from tests.serving.nodes import await_that

from roskva.pipeline.publish_sink import NodeAt
from roskva.publisher.requests import UpdateBody


def test_rows_wait_until_the_key_is_accepted(tmp_path: Path) -> None:
    secret, hashed = publish_key()
    file = tmp_path / "publish.key"
    file.write_text("a key that nobody has")
    node = KeyedNode(tmp_path / "data", f'[apps.catalog]\npublish_keys = ["{hashed}"]\n')
    outcomes: list[object] = []
    try:
        node.start()
        with closing(NodeAt(node.url, "", f"file:{file}")) as at:
            updates = [UpdateBody("catalog", "x", "7")]
            publishing = threading.Thread(target=lambda: outcomes.extend(at.publish(updates)))
            publishing.start()
            await_that(lambda: at._http is not None, 60.0)
            assert not outcomes
            # It is read all the time, and an empty key would be the end.
            beside = tmp_path / "next.key"
            beside.write_text(secret)
            os.replace(beside, file)
            publishing.join(60)
        assert outcomes == [7]
    finally:
        node.end()
