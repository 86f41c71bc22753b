"""Client and publisher for threads: the asynchronous ones, on an event loop in the background.

    with roskva.blocking.Client("ws://localhost:7600", app="contacts") as client:
        client.register("alice", version=41)
        for event in client:
            client.ack(event)

Each has a thread of its own, from when it is made until `close`. Any thread may call it.
"""

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from roskva.client.client import Client as AsyncClient
from roskva.client.client import Credential
from roskva.client.handlers import Handler
from roskva.client.identity import ReadState, WriteState
from roskva.client.link import Dial
from roskva.core.effects import ClientEvent
from roskva.model import parse_key
from roskva.net.tls import Tls
from roskva.publisher.publisher import Publisher as AsyncPublisher

__all__ = ["Client", "Publisher", "publish"]

_LAST_CALLS = 1.0
"""Seconds for calls of other threads to hear that it is over."""

H = TypeVar("H", bound=Handler)
P = ParamSpec("P")
R = TypeVar("R")
Worker = TypeVar("Worker", bound=AbstractAsyncContextManager[Any])


class _InBackground(Generic[Worker]):
    """Something to be entered, on a thread that keeps it until it is closed."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._loop = asyncio.new_event_loop()
        self._left = asyncio.Event()
        self._open = True
        self._calling = threading.Lock()
        """So that no call reaches a loop that has ended."""
        entered: Future[None] = Future()
        self._thread = threading.Thread(
            target=self._main, args=(entered,), name="roskva", daemon=True
        )
        self._thread.start()
        try:
            entered.result()
        except BaseException:
            self.close()
            raise

    def _main(self, entered: Future[None]) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._hold_open(entered))

    async def _hold_open(self, entered: Future[None]) -> None:
        try:
            async with self._worker:
                entered.set_result(None)
                await self._left.wait()
        except BaseException as error:
            if entered.done():
                raise
            entered.set_exception(error)
        finally:
            with self._calling:
                self._open = False
            calls = asyncio.all_tasks() - {asyncio.current_task()}
            if calls:
                await asyncio.wait(calls, timeout=_LAST_CALLS)

    def _call(self, work: Coroutine[Any, Any, R]) -> R:
        with self._calling:
            if not self._open:
                work.close()
                raise RuntimeError("it is closed")
            answer = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return answer.result()
        except BaseException:
            answer.cancel()  # an interrupted thread takes no event with it
            raise

    def close(self) -> None:
        """Returns when everything has ended; as at the end of `async with`, what waits is sent."""
        with self._calling:
            if self._open:
                self._open = False
                self._loop.call_soon_threadsafe(self._left.set)
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _blocking(
    method: Callable[Concatenate[Worker, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[_InBackground[Worker], P], R]:
    """The same for threads."""

    @functools.wraps(method)
    def call(self: _InBackground[Worker], /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self._call(method(self._worker, *args, **kwargs))

    return call


class BlockingClient(_InBackground[AsyncClient]):
    """As `roskva.Client`; iterating blocks until there is an event, or the client is closed."""

    def __init__(
        self,
        url: str | Sequence[str] | Dial,
        app: str,
        identity: Path | str | None = None,
        application: str = "",
        auto_ack: bool = False,
        tls: Tls | None = None,
        credential: Credential | None = None,
        *,
        read_state: ReadState | None = None,
        write_state: WriteState | None = None,
    ) -> None:
        super().__init__(
            AsyncClient(
                *(url, app, identity, application, auto_ack, tls, credential),
                read_state=read_state,
                write_state=write_state,
            )
        )

    register = _blocking(AsyncClient.register)
    unregister = _blocking(AsyncClient.unregister)

    @overload
    def on(self, name: str, handler: H, *, version: int | None = None) -> H: ...

    @overload
    def on(self, name: str, *, version: int | None = None) -> Callable[[H], H]: ...

    def on(
        self, name: str, handler: H | None = None, *, version: int | None = None
    ) -> H | Callable[[H], H]:
        """As `roskva.Client.on`: the handler has a thread of its own for each call, or runs on the
        client's event loop if it is async. Also a decorator."""
        if handler is None:
            return functools.partial(self.on, name, version=version)

        async def add() -> None:
            self._worker.on(name, handler, version=version)

        self._call(add())
        return handler

    def ack(self, event: ClientEvent) -> None:
        with self._calling:
            if self._open:
                self._loop.call_soon_threadsafe(self._worker.ack, event)

    @property
    def connected(self) -> bool:
        return self._worker.connected

    def next_event(self, timeout: float | None = None) -> ClientEvent | None:
        """None if none has come within so many seconds, or when the client is closed."""
        return self._call(self._next_event(timeout))

    def events(self, timeout: float | None = None) -> Iterator[ClientEvent]:
        """Until none has come for so many seconds, or the client is closed."""
        while self._open and (event := self.next_event(timeout)) is not None:
            yield event

    def __iter__(self) -> Iterator[ClientEvent]:
        return self.events()

    async def _next_event(self, seconds: float | None) -> ClientEvent | None:
        try:
            async with asyncio.timeout(seconds):
                return await anext(self._worker)
        except (TimeoutError, StopAsyncIteration):
            return None


class BlockingPublisher(_InBackground[AsyncPublisher]):
    """As `roskva.Publisher`; threads that publish at the same time share requests."""

    def __init__(
        self,
        url: str | Sequence[str],
        app: str,
        tls: Tls | None = None,
        key: str | None = None,
    ) -> None:
        super().__init__(AsyncPublisher(url, app, tls, key))

    publish = _blocking(AsyncPublisher.publish)
    reset = _blocking(AsyncPublisher.reset)


def publish(
    url: str | Sequence[str],
    object: str,
    version: int | None = None,
    *,
    source: str | None = None,
    payload: bytes | None = None,
    give_up_after: float | None = 30.0,
    tls: Tls | None = None,
    key: str | None = None,
) -> int:
    """Publish one update of the object `app/name`; whoever has more of them keeps a `Publisher`."""
    target = parse_key(object)
    with BlockingPublisher(url, target.app, tls, key) as publisher:
        return publisher.publish(
            target.name, version, source=source, payload=payload, give_up_after=give_up_after
        )


Client = BlockingClient
Publisher = BlockingPublisher
