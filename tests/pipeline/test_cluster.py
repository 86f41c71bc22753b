"""On a real cluster: a standalone master and two workers, each in a process of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pyspark
import pytest
from benchmarks.ports import free_port
from tests.serving.nodes import ROSKVA, Node, await_that

from roskva.pipeline.machine import tree, what_is_missing

pytestmark = [
    pytest.mark.verify,
    pytest.mark.skipif(what_is_missing() is not None, reason="Spark or Java is missing"),
]

SPARK_CLASS = Path(pyspark.__file__).parent / "bin/spark-class"
START_S = 300.0
KEYS = [f"test/object-{i}" for i in range(50)]


class Program:
    """Something that runs until it is killed, with all that it has started."""

    def __init__(self, log: Path, *command: str) -> None:
        self.log = log
        environment = {k: v for k, v in os.environ.items() if not k.startswith("ROSKVA_")}
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**environment, "PYSPARK_PYTHON": sys.executable},
                cwd=log.parent,
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        for pid in reversed(tree(self._process.pid)):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._process.wait()


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The address of a cluster with two workers."""
    port, ui = free_port(), free_port()
    url = f"spark://127.0.0.1:{port}"
    kind = "org.apache.spark.deploy"
    with ExitStack() as stack:

        def start(name: str, *command: str) -> Program:
            program = Program(tmp_path / f"{name}.log", str(SPARK_CLASS), *command)
            return stack.enter_context(program)

        where = ("--host", "127.0.0.1", "--port", str(port), "--webui-port", str(ui))
        start("master", f"{kind}.master.Master", *where)
        for number in range(2):
            place = ("--work-dir", str(tmp_path / f"work-{number}"), "--webui-port", "0")
            size = ("--cores", "1", "--memory", "1g", "--host", "127.0.0.1")
            start(f"worker-{number}", f"{kind}.worker.Worker", *size, *place, url)
        await_that(lambda: _alive_workers(ui) == 2, START_S)
        yield url


def _alive_workers(ui: int) -> int:
    try:
        return int(httpx.get(f"http://127.0.0.1:{ui}/json/").json()["aliveworkers"])
    except (httpx.HTTPError, ValueError, KeyError):
        return 0


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data", "--no-fast-path")
    node.start()
    yield node
    node.end()


def submitted(node: Node, master: str, log: Path, *words: str) -> Program:
    conf = ("--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=512m")
    place = ("--data", str(node.data), "--master", master)
    return Program(log, ROSKVA, "pipeline", *words, *place, *conf)


def test_a_bridge_on_a_cluster_delivers(node: Node, master: str, tmp_path: Path) -> None:
    node.publish_all([{"app": "test", "name": key[5:], "version": 1} for key in KEYS])
    with submitted(node, master, tmp_path / "bridge.log", "bridge") as bridge:
        commits = node.data / "pipeline/bridge/spark/commits"
        await_that(lambda: commits.is_dir() and any(commits.glob("[0-9]*")), START_S, bridge.said)
        node.publish_all([{"app": "test", "name": key[5:], "version": 2} for key in KEYS])
        began = time.monotonic()
        await_that(lambda: all(node.read(key) == 2 for key in KEYS), 60.0, bridge.said)
        assert time.monotonic() - began < 60.0


def test_an_ingest_on_a_cluster_publishes(node: Node, master: str, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for part in range(4):
        lines = [f'{{"id": {i}, "revision": 7}}' for i in range(part, 50, 4)]
        (source / f"{part}.json").write_text("\n".join([*lines, "rubbish"]))
    settings = tmp_path / "roskva.toml"
    settings.write_text(
        f"[ingest.rows]\npath = '{source}'\ncolumns = 'id BIGINT, revision BIGINT'\n"
        "app = \"'test'\"\nname = \"concat('object-', id)\"\nversion = 'revision'\n"
    )
    words = ("ingest", "rows", "--once", "--json", "--config", str(settings))
    with submitted(node, master, tmp_path / "ingest.log", *words) as ingest:
        await_that(lambda: '"published":50' in ingest.said(), START_S, ingest.said)
        assert '"dead":4' in ingest.said()
    await_that(lambda: all(node.read(key) == 7 for key in KEYS), 30.0)
    letters = list((node.data / "pipeline/ingest-rows/dead-letters").glob("*.jsonl"))
    assert sum(len(file.read_text().splitlines()) for file in letters) == 4
