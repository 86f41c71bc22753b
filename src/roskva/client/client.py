"""A client: the core's state machine, a WebSocket, a clock and a file.

    async with roskva.Client("ws://localhost:7600", app="contacts") as client:
        await client.register("alice", version=41)
        async for event in client:
            match event:
                case roskva.Notify(name=name, version=version): ...
                case roskva.NotifyUnknown(name=name): ...
            client.ack(event)

Everything that is decided is decided in `core/client.py`; this shell carries it out. Each thing
that happens (a message, a call of the application, a deadline) is one `_step` of the core, made on
the event loop and never interrupted, and its effects follow at once: connections go to
`WebSocketLink`, events to `Inbox`, the identity to `IdentityFile`. One task group owns the clock
and every connection, and leaves none of them behind.
"""

import asyncio
import secrets
import ssl
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from roskva.client.events import Inbox, Listener, call_listener
from roskva.client.identity import IdentityFile
from roskva.client.link import Happening, WebSocketLink
from roskva.core.client import ClientConfig, ClientPhase
from roskva.core.client import ClientMachine as Core
from roskva.core.effects import (
    Acknowledge,
    ClientEvent,
    CloseConnection,
    Deliver,
    Disconnected,
    Effect,
    Event,
    Notify,
    NotifyUnknown,
    Online,
    OpenConnection,
    Register,
    SaveIdentity,
    Stop,
    Tick,
    Transmit,
    Trouble,
    Unregister,
)
from roskva.errors import BadInput, StorageUnavailable, Unauthorised
from roskva.model import MAX_SOURCE_BYTES, MAX_VERSION, Key, ObjectId, check_app, check_name
from roskva.net.address import websocket_url
from roskva.net.tasks import OwnedTasks
from roskva.net.tls import Tls, client_context
from roskva.wire.messages import MAX_CREDENTIAL_CHARS, Hello

Credential = str | Callable[[], str | Awaitable[str]]

_PING_INTERVAL: Final = 30.0
_FLUSH_TIMEOUT: Final = 1.0
"""For acks and registrations that are not sent yet, when the client is left."""


class Client:
    """Used as `async with`, by tasks of one event loop; threads use `roskva.blocking`.

    `identity` is a file that makes this client the same one after a restart: only what changed
    meanwhile is told. Give it only if the application's cache survives as well. `application` names
    this client as the source of changes (see docs/protocol.md, Sources). With `auto_ack` an event
    is acked when the next one is asked for.

    `credential` is for nodes with keys: a JWT, or a function that returns one, or an awaitable of
    one. It is asked each time the client has to show who it is, so that the JWT can be a new one.
    `tls` says whom to believe at https:// and wss://, and what to show: or it is an SSL context.
    """

    def __init__(
        self,
        url: str,
        app: str,
        identity: Path | str | None = None,
        application: str = "",
        auto_ack: bool = False,
        tls: Tls | ssl.SSLContext | None = None,
        credential: Credential | None = None,
    ) -> None:
        check_app(app)
        if len(application.encode()) > MAX_SOURCE_BYTES:
            raise BadInput(f"an application id has at most {MAX_SOURCE_BYTES} bytes of UTF-8")
        self.app = app
        self.auto_ack = auto_ack
        self.config = ClientConfig(app, application)
        """Its times may be changed before the client is entered."""
        self._url = websocket_url(url)
        self._context = client_context(url, tls)
        self._credential = credential
        self._identity_path = None if identity is None else Path(identity)
        self._core: Core | None = None
        self._file: IdentityFile | None = None
        self._link: WebSocketLink | None = None
        self._closed = False
        self._handed: ClientEvent | None = None
        """By `auto_ack` to be acked when the application comes back."""

    async def __aenter__(self) -> Self:
        if self._core is not None:
            raise RuntimeError("a client is entered once")
        self._loop = asyncio.get_running_loop()
        self._stepped = asyncio.Event()
        self._inbox = Inbox()
        async with AsyncExitStack() as stack:
            known = None
            if self._identity_path is not None:
                self._file = IdentityFile(self._identity_path)
                stack.callback(self._file.release)
                known = self._file.read()
            self._core = Core(self.config, known, secrets.randbits(64), self._loop.time())
            self._tasks = await stack.enter_async_context(OwnedTasks())
            self._clock = self._tasks.create_task(self._keep_time())
            stack.callback(self._stop)
            self._to_end = stack.pop_all()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *raised: Any) -> None:
        """Left in peace, it sends all that waits; left in haste, as much as one message holds."""
        try:
            if kind is None:
                self._ack_handed()
                await self._flush()
        finally:
            await self._to_end.__aexit__(kind, *raised)

    # What the application says.

    async def register(self, name: str, version: int | None = None) -> None:
        """Be told about this object from now on; `version` is what the application holds of it.

        It is done when a `RegistrationStatus` says so, and done again after every loss. Without a
        version the object's current one is told first, with one only what is newer.
        """
        key = self._key(name)
        if version is not None:
            if not 0 <= version <= MAX_VERSION:
                raise BadInput(f"a version is 0 to 2^63-1; got {version}")
            self._inbox.forget(key)
        self._step(Register(key, version))

    async def unregister(self, name: str) -> None:
        key = self._key(name)
        self._inbox.forget(key)
        self._step(Unregister(key))

    def ack(self, event: ClientEvent) -> None:
        """The application has taken the event over; what is never acked is told again.

        Only notifications need it. An ack that gets lost, or comes after the end, does no harm.
        """
        match event:
            case Notify(object=key, version=version, epoch=epoch):
                self._step(Acknowledge(key, version, epoch))
            case NotifyUnknown(object=key, epoch=epoch):
                self._step(Acknowledge(key, None, epoch))

    def online(self) -> None:
        """The device has a network again: do not wait any longer to reconnect."""
        self._step(Online())

    @property
    def connected(self) -> bool:
        """Whether there is a session with the server just now."""
        return self._core is not None and self._core.phase is ClientPhase.READY

    # What it is told.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ClientEvent:
        """The next event, for one task at a time; the end when the client is closed."""
        self._check_entered()
        self._ack_handed()
        event = await self._inbox.take()
        if event is None:
            raise StopAsyncIteration
        if self.auto_ack:
            self._handed = event
        return event

    async def run(self, listener: Listener) -> None:
        """Tell the listener each event, and ack it when its method has returned."""
        async for event in self:
            await call_listener(listener, event)
            self.ack(event)

    def _ack_handed(self) -> None:
        if self._handed is not None:
            self.ack(self._handed)
            self._handed = None

    # The core, and what it asks for.

    def _key(self, name: str) -> Key:
        self._check_entered()
        if self._closed:
            raise RuntimeError("the client is closed")
        check_name(name)
        return ObjectId(self.app, name).key

    def _check_entered(self) -> None:
        if self._core is None:
            raise RuntimeError("a client is used inside `async with`")

    def _step(self, event: Event) -> None:
        assert self._core is not None
        for effect in self._core.step(event, self._loop.time()):
            self._carry_out(effect)
        self._stepped.set()

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Transmit(message=Hello(token=None) as hello) if self._credential is not None:
                self._tasks.create_task(self._show_credential(self._link, hello))
            case Transmit(message=message):
                if self._link is not None:
                    self._link.send(message)
            case Deliver(event=event):
                self._inbox.put(event)
            case OpenConnection():
                self._dial()
            case CloseConnection():
                if self._link is not None:
                    self._link.hang_up()
                self._link = None
            case SaveIdentity(identity=identity):
                if self._file is not None:
                    saving = self._file.save(identity)
                    saving.add_done_callback(self._saved)

    def _dial(self) -> None:
        assert self._core is not None
        ping_interval = self._core.dice.smear(_PING_INTERVAL)
        self._link = WebSocketLink(self._url, self._context, ping_interval, self._happened)
        self._tasks.create_task(self._link.run())

    async def _show_credential(self, link: WebSocketLink | None, hello: Hello) -> None:
        """If there is none to be had, the core waits for an answer in vain, and tries again."""
        try:
            given = self._credential() if callable(self._credential) else self._credential
            credential = await given if isinstance(given, Awaitable) else given
            if credential is not None and len(credential) > MAX_CREDENTIAL_CHARS:
                raise BadInput(f"a credential has at most {MAX_CREDENTIAL_CHARS} characters")
        except Exception as error:  # of the application's
            self._inbox.put(Trouble(Unauthorised.code, f"no credential: {error}"))
            return
        if link is not None and link is self._link:
            link.send(msgspec.structs.replace(hello, credential=credential))

    def _happened(self, link: WebSocketLink, what: Happening) -> None:
        if isinstance(what, Trouble):
            self._inbox.put(what)
        elif link is self._link:  # else the core has given it up already
            if isinstance(what, Disconnected):
                self._link = None
            self._step(what)

    def _saved(self, saving: Future[None]) -> None:
        """On the saving thread."""
        error = saving.exception()
        if error is not None:
            trouble = Trouble(StorageUnavailable.code, f"{self._identity_path}: {error}")
            self._loop.call_soon_threadsafe(self._inbox.put, trouble)

    async def _keep_time(self) -> None:
        assert self._core is not None
        while True:
            self._stepped.clear()
            try:
                async with asyncio.timeout_at(self._core.next_deadline()):
                    await self._stepped.wait()
            except TimeoutError:
                self._step(Tick())

    # The end.

    async def _flush(self) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_TIMEOUT):
                while self._has_unsent():
                    self._stepped.clear()
                    await self._stepped.wait()

    def _has_unsent(self) -> bool:
        core = self._core
        return core is not None and self.connected and bool(core.acks or core.unsent)

    def _stop(self) -> None:
        self._closed = True
        self._clock.cancel()
        self._inbox.close()
        self._step(Stop())
