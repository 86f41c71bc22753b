"""Publishers without keys that would fill the disk, and a disk that is almost full."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import httpx
import pytest
from tests.loops import in_loop
from tests.serving.everybody import everybody
from tests.serving.nodes import PATIENCE_S, Node, await_that

from roskva.server.space import look_at

RATE: Final = 1024
MEMORY_DISK: Final = Path("/dev/shm")
MIB: Final = 1 << 20


def _publish(node: Node, *, payload: int = 0, address: str = "127.0.0.1") -> httpx.Response:
    update = {"app": "test", "name": "x", "version": "1"}
    if payload:
        update["text"] = "x" * payload
    transport = httpx.HTTPTransport(verify=False, local_address=address)
    with httpx.Client(transport=transport, timeout=PATIENCE_S) as client:
        return client.post(f"{node.url}/v1/publish", json=update)


def test_an_address_that_floods_is_slowed_down_and_others_are_served(tmp_path: Path) -> None:
    settings = tmp_path / "roskva.toml"
    settings.write_text(f"[limits]\nkeyless_publish_bytes_per_second = {RATE}")
    node = Node(tmp_path / "data", "--config", str(settings))
    try:
        node.start()
        answers = [_publish(node, payload=1000, address="127.0.0.2") for _ in range(20)]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert 0 < len(refused) < len(answers)
        for answer in refused:
            assert answer.status_code == 429
            told = answer.json()  # unread, or after a part of it was found to be too much
            assert (told.get("error") or told["results"][0]["error"])["code"] == "too_fast"
            assert answer.headers["retry-after"] == "1"
        assert _publish(node, payload=1000).status_code == 200
    finally:
        node.end()


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """Of its own, where a few MiB more or less are noticed."""
    if not os.access(MEMORY_DISK, os.W_OK) or look_at(MEMORY_DISK).free < 256 * MIB:
        pytest.skip(f"there is no {MEMORY_DISK} here, or it is small")
    place = Path(tempfile.mkdtemp(prefix="roskva-", dir=MEMORY_DISK))
    yield place
    shutil.rmtree(place)


@in_loop
async def test_on_a_full_disk_nothing_is_published_and_clients_are_served(
    small_disk: Path,
) -> None:
    floor = look_at(small_disk).free - 96 * MIB
    settings = small_disk / "roskva.toml"
    settings.write_text(f"[limits]\nmin_free_disk_bytes = {floor}")
    node = Node(small_disk / "data", "--config", str(settings))
    try:
        node.start()
        assert _publish(node).status_code == 200
        filler = small_disk / "filler"
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, 112 * MIB)
        await_that(lambda: _publish(node).status_code == 503, PATIENCE_S)
        refused = _publish(node)
        assert refused.json()["error"]["code"] == "storage_unavailable"
        assert refused.json()["error"]["retriable"]
        async with everybody(node) as clients:
            await clients.register("test/x")
            await clients.took(("test/x", 1))
        filler.unlink()
        await_that(lambda: _publish(node).status_code == 200, PATIENCE_S)
        assert "nothing is published" in node.said()
        assert "publishing goes on" in node.said()
    finally:
        node.end()
