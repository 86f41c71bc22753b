"""A publisher: hands updates to a node over HTTP until they are durable there.

    async with roskva.Publisher("http://localhost:7600", app="contacts") as publisher:
        await publisher.publish("alice", 42)

Whatever waits when a request leaves goes with it, so tasks that publish at the same time share
requests. What fails for now is sent again, with backoff, until it is acknowledged or its caller
gives up. `requests.py` has what a request says and what its answer means.

**Order.** One request is under way at a time, and what failed for now keeps its place. Two updates
of one object may share a request, because a lower version that is accepted later does no harm. Not
so where the later one *depends* on the earlier: a source may be named only when all earlier
versions are acknowledged (docs/protocol.md), and versions assigned by the server follow the order
of acceptance. Those wait for the next request, and so does everything behind them on that object.
"""

import asyncio
import logging
import secrets
from asyncio import Future
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import Any, Final, Self

import httpx
import msgspec

from roskva.core.backoff import Backoff, Dice
from roskva.errors import BadInput, TooLarge, Unavailable, error_of
from roskva.model import MAX_PAYLOAD_BYTES, MAX_SOURCE_BYTES, MAX_VERSION, check_app, check_name
from roskva.net.address import NodeAddresses, http_url
from roskva.net.tasks import OwnedTasks
from roskva.net.tls import Tls, client_context, explained
from roskva.publisher.requests import (
    PublishFailure,
    PublishOutcome,
    UpdateBody,
    publish_outcomes,
    reset_outcome,
)

MAX_WAITING: Final = 10_000
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
MAX_BATCH: Final = 1_000
MAX_BATCH_BYTES: Final = 1024 * 1024

log = logging.getLogger(__name__)

_MAX_PAYLOAD_BYTES: Final = 16 * MAX_PAYLOAD_BYTES
"""More than any node takes; each has its own limit below this."""
_REQUEST_TIMEOUT: Final = 10.0
_CLOSE_TIMEOUT: Final = 5.0
_BACKOFF_FIRST: Final = 0.1
_BACKOFF_CAP: Final = 5.0
_MAX_RETRY_AFTER: Final = 60.0
_CLOSED: Final = "the publisher was closed"
_HEADERS: Final = {"content-type": "application/json"}


# What is not acknowledged yet.


@dataclass(eq=False, slots=True)
class Waiting:
    """An update or a reset, as it goes into a request, and whom to tell."""

    name: str
    body: bytes
    done: Future[int]
    depends: bool
    is_reset: bool = False


class Buffer:
    def __init__(self) -> None:
        self._waiting: dict[Waiting, None] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room_for(self, item: Waiting) -> bool:
        fits = self._bytes + len(item.body) <= MAX_WAITING_BYTES
        return fits and len(self._waiting) < MAX_WAITING

    def add(self, item: Waiting) -> None:
        self._waiting[item] = None
        self._bytes += len(item.body)

    def remove(self, item: Waiting) -> None:
        if item in self._waiting:
            del self._waiting[item]
            self._bytes -= len(item.body)

    def items(self) -> list[Waiting]:
        return list(self._waiting)

    def next_batch(self) -> list[Waiting]:
        """What goes into the next request: updates, or one reset."""
        batch: list[Waiting] = []
        size = 0
        taken: set[str] = set()
        held: set[str] = set()
        for item in self._waiting:
            if item.is_reset:
                return batch or [item]
            if item.name in held or (item.depends and item.name in taken):
                held.add(item.name)
                continue
            size += len(item.body) + 1
            if batch and (len(batch) == MAX_BATCH or size > MAX_BATCH_BYTES):
                break
            taken.add(item.name)
            batch.append(item)
        return batch


# The publisher.


class Publisher:
    """Used as `async with`, by tasks of one event loop; threads use `roskva.blocking`.

    `key` is for nodes with keys: a publish key of the app, or a JWT that may publish.
    When 10,000 updates or 16 MiB wait, `publish` waits for room before it waits for its answer.

    Of several URLs any will do: when one fails, it goes on to another. What had no answer from the
    first may have been accepted there all the same, and there it may take effect after what is sent
    later to the other: an update without a version then is told again, and a reset made again.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        app: str,
        tls: Tls | None = None,
        key: str | None = None,
    ) -> None:
        check_app(app)
        self.app = app
        self._addresses = NodeAddresses(url)
        self._context = client_context(self._addresses.current, tls)
        self._headers = _HEADERS if key is None else {**_HEADERS, "authorization": f"Bearer {key}"}
        self._buffer = Buffer()
        self._dice = Dice(secrets.randbits(64))
        self._backoff = Backoff(_BACKOFF_FIRST, _BACKOFF_CAP)
        self._failure: PublishFailure | None = None
        """Why the last request has to be repeated."""
        self._entered = self._closed = False
        self.repeated = 0
        """Requests that had to be sent again; a node that only makes us wait is none."""

    async def __aenter__(self) -> Self:
        if self._entered:
            raise RuntimeError("a publisher is entered once")
        self._entered = True
        self._moved = asyncio.Event()
        self._entrance = asyncio.Lock()
        async with AsyncExitStack() as stack:
            verify = self._context or False  # then there is no TLS at all
            client = httpx.AsyncClient(
                timeout=_REQUEST_TIMEOUT, headers=self._headers, verify=verify
            )
            self._http = await stack.enter_async_context(client)
            self._tasks = await stack.enter_async_context(OwnedTasks())
            self._sending = self._tasks.create_task(self._send())
            stack.callback(self._stop)
            self._to_end = stack.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *raised: Any) -> None:
        """Left in peace, it waits a moment for what other tasks are still publishing."""
        self._closed = True
        try:
            if kind is None:
                await self._flush()
        finally:
            await self._to_end.__aexit__(kind, *raised)

    async def publish(
        self,
        name: str,
        version: int | None = None,
        *,
        source: str | None = None,
        payload: bytes | None = None,
        give_up_after: float | None = None,
    ) -> int:
        """Returns the version when it is durable, and raises only if it will never be accepted.

        Without a version the node assigns one, if the app is set up for that. An update that had
        to be repeated may have been assigned two: it is told again, and that does no harm.

        After `give_up_after` seconds it raises `Unavailable`; the update may then have been
        accepted all the same.
        """
        if version is not None and not 0 <= version <= MAX_VERSION:
            raise BadInput(f"a version is 0 to 2^63-1; got {version}")
        if source is not None and not 1 <= len(source.encode()) <= MAX_SOURCE_BYTES:
            raise BadInput(f"a source has 1 to {MAX_SOURCE_BYTES} bytes of UTF-8")
        if payload is not None and len(payload) > _MAX_PAYLOAD_BYTES:
            raise TooLarge(f"a payload of {len(payload)} bytes; never more than 16 KiB")
        text = None if version is None else str(version)
        update = UpdateBody(self.app, name, text, source, payload)
        item = self._waiting(update, depends=version is None or source is not None)
        return await self._until_settled(item, give_up_after)

    async def reset(self, name: str, *, give_up_after: float | None = None) -> None:
        """Forget the object's version, and have everybody look again; then publish from any."""
        item = self._waiting(UpdateBody(self.app, name), depends=True, is_reset=True)
        await self._until_settled(item, give_up_after)

    # Into the buffer, and out of it.

    def _waiting(self, update: UpdateBody, *, depends: bool, is_reset: bool = False) -> Waiting:
        if not self._entered:
            raise RuntimeError("a publisher is used inside `async with`")
        if self._closed:
            raise RuntimeError("the publisher is closed")
        check_name(update.name)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        body = msgspec.json.encode(update)
        return Waiting(update.name, body, done, depends, is_reset)

    async def _until_settled(self, item: Waiting, give_up_after: float | None) -> int:
        try:
            async with asyncio.timeout(give_up_after):
                await self._enter(item)
                return await item.done
        except TimeoutError:
            why = f": {self._failure.text}" if self._failure is not None else ""
            raise Unavailable(f"not acknowledged within {give_up_after} s{why}") from None
        finally:
            self._leave(item)

    async def _enter(self, item: Waiting) -> None:
        async with self._entrance:  # in the order in which they came
            while not self._buffer.has_room_for(item):
                await self._move()
            if self._closed:
                raise Unavailable(_CLOSED)
            self._buffer.add(item)
            self._moved.set()

    def _leave(self, item: Waiting) -> None:
        self._buffer.remove(item)
        self._moved.set()

    async def _move(self) -> None:
        """Until something has entered or left the buffer."""
        self._moved.clear()
        await self._moved.wait()

    async def _flush(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_TIMEOUT):
                while len(self._buffer):
                    await self._move()

    def _stop(self) -> None:
        self._sending.cancel()
        for item in self._buffer.items():
            self._settle(item, PublishFailure(Unavailable.code, _CLOSED))

    # One request after the other.

    async def _send(self) -> None:
        while True:
            batch = self._buffer.next_batch()
            if not batch:
                await self._move()
                continue
            outcomes, retry_after = await self._request(batch)
            for item, outcome in zip(batch, outcomes, strict=True):
                self._settle(item, outcome)
            await self._pause(outcomes, retry_after)

    async def _request(self, batch: list[Waiting]) -> tuple[list[PublishOutcome], float]:
        """What became of each, and how long the node wants to be left alone."""
        node = self._addresses.current
        try:
            if batch[0].is_reset:
                url = http_url(node, "/v1/reset")
                answer = await self._http.post(url, content=batch[0].body)
                outcomes = [reset_outcome(answer.status_code, answer.content)]
            else:
                body = b"[" + b",".join(item.body for item in batch) + b"]"
                answer = await self._http.post(http_url(node, "/v1/publish"), content=body)
                outcomes = publish_outcomes(answer.status_code, answer.content, len(batch))
        except httpx.RequestError as error:
            text = explained(error, self._context is not None) or str(error) or type(error).__name__
            return [PublishFailure(Unavailable.code, text, retriable=True)] * len(batch), 0.0
        return outcomes, _seconds(answer.headers.get("retry-after", ""))

    def _settle(self, item: Waiting, outcome: PublishOutcome) -> None:
        if isinstance(outcome, PublishFailure):
            if outcome.retriable:
                return
            if not item.done.done():
                item.done.set_exception(error_of(outcome.code, outcome.text or outcome.code))
        elif not item.done.done():
            item.done.set_result(outcome)
        self._leave(item)

    async def _pause(self, outcomes: list[PublishOutcome], retry_after: float) -> None:
        failures = (o for o in outcomes if isinstance(o, PublishFailure) and o.retriable)
        failure = next(failures, None)
        if failure is None:
            self._backoff.reset()
        else:
            self.repeated += 1
            if not retry_after:  # else it is well, and has said when to come back
                self._addresses.leave()
            if self._failure is None:
                log.warning("publishing waits: %s", failure.text or failure.code)
            delay = self._backoff.next_delay(self._dice)
            await asyncio.sleep(delay + retry_after * (1 + self._dice.fraction() / 2))
        self._failure = failure


def _seconds(retry_after: str) -> float:
    """A date, which HTTP allows as well, is left to the backoff."""
    return min(float(retry_after), _MAX_RETRY_AFTER) if retry_after.isdecimal() else 0.0
