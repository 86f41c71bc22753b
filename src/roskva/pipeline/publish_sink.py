"""`roskva-publish`: where an ingest ends. Rows become updates of a node; those that cannot become
dead letters, each with its reason. No row stops the query.

Updates go to the node over HTTP, as from any publisher: it checks each one and says what is wrong
with it, numbers versions where they are assigned, and can be reached from every worker of a
cluster. Of the rows that come together only the last word on each object is published. What the
node cannot take now is sent again until it can.

A dead letter is a line of JSON: `at`, `reason`, `row`. The file is named after the micro-batch and
its part, so that one that is done again replaces what it wrote.
"""

import json
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from roskva.config import read_secret
from roskva.core.backoff import Backoff, Dice
from roskva.core.expiry import DAY_S
from roskva.errors import BadInput, RoskvaError
from roskva.links.own_keys import FLOWS, flow_credential, own_key, read_token_keys
from roskva.links.processes import read_report, running, write_report
from roskva.model import ObjectId, is_version, parse_key
from roskva.net.address import http_url
from roskva.net.tls import client_context, explained, pinned_context
from roskva.pipeline.columns import NamedSource, columns
from roskva.pipeline.feeds import Options
from roskva.publisher import requests

NAME: Final = "roskva-publish"
TRANSLATED: Final = columns(
    "app text?, name text?, version text?, source text?, payload bytes?, wrong text?, row text?"
)
"""All as text: whoever publishes them says what is wrong with which. `wrong`: the source itself
could not make sense of this; `row`: what there was, as JSON."""
COUNTERS: Final = "counters.json"
COUNTED: Final = ("rows", "published", "superseded", "dead")
_UPDATES: Final = 1000
_BYTES: Final = 1 << 20
_TIMEOUT_S: Final = 30.0
_WHO_ARE_YOU: Final = 401
_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0


class Counters(msgspec.Struct, frozen=True):
    """Of an ingest, since its checkpoint was made."""

    batch: int = -1
    """The last micro-batch that is counted."""
    rows: int = 0
    published: int = 0
    superseded: int = 0
    """By another row of the same object that came with them."""
    dead: int = 0

    def plus(self, batch: int, parts: Iterable["Written"]) -> "Counters":
        if batch <= self.batch:
            return self  # counted already, and done again after a crash
        done = [self, *parts]
        return Counters(batch, *(sum(getattr(part, key) for part in done) for key in COUNTED))


@dataclass
class Written(WriterCommitMessage):
    rows: int = 0
    published: int = 0
    superseded: int = 0
    dead: int = 0


T = TypeVar("T")
Item = tuple[requests.UpdateBody, str | None]
"""And the row it came from."""


class PublishSink(NamedSource):
    NAME = NAME
    OPTIONS = ("path", "url", "data", "key", "queryName", "checkpointLocation")  # two are Spark's

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        if schema.names != TRANSLATED.names:
            raise BadInput(f"{NAME} takes the columns {', '.join(TRANSLATED.names)}")
        return PublishWriter(self.given)


class PublishWriter(DataSourceStreamArrowWriter):
    """`path`: where dead letters and counters go; `url` or `data`: which node; `key`: where the
    publish key is that it wants."""

    def __init__(self, options: Options) -> None:
        self._path = Path(options.text("path"))
        self._url = options.text("url", "")
        self._data = options.text("data", "")
        self._key = options.text("key", "")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = TaskContext.get()
        assert task is not None
        batch = task.getLocalProperty("streaming.sql.batchId")
        file = self._path / "dead-letters" / f"{int(batch or 0):010}-{task.partitionId():05}.jsonl"
        done = Written()
        with DeadLetters(file) as dead:
            for rows in iterator:
                publish_rows(rows, _node(self._url, self._data, self._key), dead, done)
            done.dead = dead.count
        return done

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        parts = [message for message in messages if isinstance(message, Written)]
        write_counters(self._path, read_counters(self._path).plus(batchId, parts))


def delete_dead_letters(path: Path, days: float | None) -> None:
    """The files that were written longer ago than that."""
    if days is None:
        return
    before = time.time() - days * DAY_S
    for file in (path / "dead-letters").glob("*.jsonl"):
        with suppress(FileNotFoundError):
            if file.stat().st_mtime < before:
                file.unlink()


class DeadLetters:
    """A file that appears when it is complete, if there is anything in it."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._temporary = file.with_suffix(".tmp")
        self._out: Any = None
        self.count = 0

    def __enter__(self) -> "DeadLetters":
        return self

    def add(self, reason: str, row: str | None) -> None:
        if self._out is None:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            self._out = self._temporary.open("w")
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        # The row is JSON already, if there is one.
        shown = row or "null"
        self._out.write(f'{{"at":"{at}","reason":{json.dumps(reason)},"row":{shown}}}\n')
        self.count += 1

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if self._out is None:
            return
        self._out.flush()
        os.fsync(self._out.fileno())
        self._out.close()
        if kind is None:
            os.replace(self._temporary, self._file)
        else:
            self._temporary.unlink()


class NodeAt:
    """A node over HTTP, by its address or by its data directory."""

    def __init__(self, url: str, data: str, key: str = "", flow: str = "") -> None:
        """`key`: where a publish key is, as `env:NAME` or `file:PATH`. Without one, a flow of the
        change source of the app `flow` shows the key of the node itself, made of what is in its
        data directory."""
        self._url = url
        self._data = data
        self._key = key
        self._flow = flow
        self._dice = Dice(random.getrandbits(64))
        self._http: httpx.Client | None = None

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def publish(self, updates: list[requests.UpdateBody]) -> list[requests.PublishOutcome]:
        """What became of each; what failed for now is sent again."""
        outcomes: dict[int, requests.PublishOutcome] = {}
        backoff = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S)
        while len(outcomes) < len(updates):
            waiting = [i for i in range(len(updates)) if i not in outcomes]
            for i, outcome in zip(
                waiting, self.attempt([updates[i] for i in waiting]), strict=True
            ):
                if not isinstance(outcome, requests.PublishFailure) or not outcome.retriable:
                    outcomes[i] = outcome
            if len(outcomes) < len(updates):
                time.sleep(backoff.next_delay(self._dice))
        return [outcomes[i] for i in range(len(updates))]

    def attempt(self, updates: list[requests.UpdateBody]) -> list[requests.PublishOutcome]:
        """What became of each, or why it failed for now."""
        try:
            url, certificate = self._address()
            if self._http is None:
                self._http = _client(url, certificate)
            answer = self._http.post(
                http_url(url, "/v1/publish"),
                content=msgspec.json.encode(updates),
                headers=self._headers(),
            )
        except (httpx.TransportError, OSError) as error:
            self.close()  # it may have another certificate when it is back
            text = explained(error, False) or str(error)
            return [requests.PublishFailure("unavailable", text, True)] * len(updates)
        if answer.status_code == _WHO_ARE_YOU:  # no fault of the rows': somebody will set it right
            text = "the node does not accept the key"
            return [requests.PublishFailure("unavailable", text, True)] * len(updates)
        return requests.publish_outcomes(answer.status_code, answer.content, len(updates))

    def _headers(self) -> dict[str, str]:
        """The key is read each time: it may be another one by now."""
        headers = {"content-type": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {read_secret('key', self._key)}"
        elif self._flow:
            key = own_key(read_token_keys(Path(self._data)), FLOWS)
            headers["authorization"] = f"Bearer {flow_credential(self._flow, key)}"
        return headers

    def _address(self) -> tuple[str, str | None]:
        """And the certificate of a node on this machine, if it has one."""
        if self._url:
            return self._url, None
        node = running(Path(self._data))
        if node is None:
            raise httpx.ConnectError(f"no node serves {self._data}")
        return node.url, node.certificate


def _client(url: str, certificate: str | None) -> httpx.Client:
    if certificate is not None:
        return httpx.Client(timeout=_TIMEOUT_S, verify=pinned_context(Path(certificate)))
    return httpx.Client(timeout=_TIMEOUT_S, verify=client_context(url, None) or False)


@cache
def _node(url: str, data: str, key: str) -> NodeAt:
    """Of this process: connections stay from one micro-batch to the next."""
    return NodeAt(url, data, key)


def publish_rows(rows: pa.RecordBatch, node: NodeAt, dead: DeadLetters, done: Written) -> None:
    latest: dict[ObjectId, Item] = {}
    done.rows += rows.num_rows
    for values in zip(*(rows[name].to_pylist() for name in TRANSLATED.names), strict=True):
        row = values[-1]
        try:
            update = update_from(*values[:-1])
        except RoskvaError as error:
            dead.add(str(error), row)
            continue
        key = ObjectId(update.app, update.name)
        before = latest.get(key)
        if before is not None:
            done.superseded += 1
        latest[key] = (update, row) if before is None else _later(before, (update, row))
    for part in parts(list(latest.values()), lambda item: item[0]):
        outcomes = node.publish([update for update, _ in part])
        for (_, row), outcome in zip(part, outcomes, strict=True):
            if isinstance(outcome, requests.PublishFailure):
                dead.add(f"{outcome.text} ({outcome.code})", row)
            else:
                done.published += 1


def update_from(
    app: str | None,
    name: str | None,
    version: str | None,
    source: str | None,
    payload: bytes | None,
    wrong: str | None,
) -> requests.UpdateBody:
    """Or BadInput, with the reason. What only the node can know it is asked."""
    if wrong is not None:
        raise BadInput(f"this is not what the format expects: {wrong[:200]}")
    if app is None or name is None:
        raise BadInput(f"{'app' if app is None else 'name'} is null")
    parse_key(f"{app}/{name}")
    if version is not None and not is_version(version):
        raise BadInput(f"a version is a whole number from 0 to 2^63-1; got {version[:80]!r}")
    return requests.UpdateBody(app, name, version, source, payload)


def _later(one: Item, other: Item) -> Item:
    """The higher version, or the later one where there is no telling. With one left out, nobody can
    tell any more whether the author of the other knew it."""
    update, row = one if int(one[0].version or 0) > int(other[0].version or 0) else other
    return msgspec.structs.replace(update, source=None), row


def parts(items: Sequence[T], update_of: Callable[[T], requests.UpdateBody]) -> Iterator[list[T]]:
    """As many as go into a request."""
    part: list[T] = []
    size = 0
    for item in items:
        length = 300 + len(update_of(item).payload or b"") * 4 // 3
        if part and (len(part) == _UPDATES or size + length > _BYTES):
            yield part
            part, size = [], 0
        part.append(item)
        size += length
    if part:
        yield part


def read_counters(path: Path) -> Counters:
    return read_report(path / COUNTERS, Counters) or Counters()


def write_counters(path: Path, counters: Counters) -> None:
    path.mkdir(parents=True, exist_ok=True)
    write_report(path / COUNTERS, counters)
