"""A client: the core's state machine, a connection, a clock and a place for its identity.

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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar, overload

import msgspec

from roskva.client.callables import call
from roskva.client.events import Inbox, Listener, call_listener
from roskva.client.handlers import Handler, Handlers
from roskva.client.identity import IdentityFile, IdentityKeeper, ReadState, WriteState
from roskva.client.link import Dial, Happening, ServerLink, websocket
from roskva.core import effects
from roskva.core.backoff import Backoff
from roskva.core.client import ClientConfig, ClientPhase
from roskva.core.client import ClientMachine as Core
from roskva.errors import BadInput, StorageUnavailable, Unauthorised
from roskva.model import MAX_SOURCE_BYTES, MAX_VERSION, Key, ObjectId, check_app, check_name
from roskva.net.address import NodeAddresses, websocket_url
from roskva.net.tasks import OwnedTasks
from roskva.net.tls import Tls, client_context
from roskva.wire.messages import MAX_CREDENTIAL_CHARS, Hello

H = TypeVar("H", bound=Handler)
Credential = str | Callable[[], str | Awaitable[str]]

_PING_INTERVAL: Final = 30.0
_FLUSH_TIMEOUT: Final = 1.0
"""For acks and registrations that are not sent yet, when the client is left."""


class Client:
    """Used as `async with`, by tasks of one event loop; threads use `roskva.blocking`.

    It is reached at a `url`, or over connections that the application opens (see `roskva.Channel`).
    Of several URLs any will do: when one fails, it goes on to another.

    `identity` is a file that makes this client the same one after a restart: only what changed
    meanwhile is told. Give it only if the application's cache survives as well. `read_state` and
    `write_state` are for an application that keeps these bytes itself. `application` names
    this client as the source of changes (see docs/protocol.md, Sources). With `auto_ack` an event
    is acked when the next one is asked for.

    `credential` is for nodes with keys: a JWT, or a function that returns one, or an awaitable of
    one. It is asked each time the client has to show who it is, so that the JWT can be a new one.
    `tls` says whom to believe at https:// and wss://, and what to show: or it is an SSL context.
    """

    def __init__(
        self,
        url: str | Sequence[str] | Dial,
        app: str,
        identity: Path | str | None = None,
        application: str = "",
        auto_ack: bool = False,
        tls: Tls | ssl.SSLContext | None = None,
        credential: Credential | None = None,
        *,
        read_state: ReadState | None = None,
        write_state: WriteState | None = None,
    ) -> None:
        check_app(app)
        if (read_state is None) != (write_state is None) or (identity and read_state):
            raise BadInput("give read_state and write_state, or a file as identity, or neither")
        if len(application.encode()) > MAX_SOURCE_BYTES:
            raise BadInput(f"an application id has at most {MAX_SOURCE_BYTES} bytes of UTF-8")
        self.app = app
        self.auto_ack = auto_ack
        self.config = ClientConfig(app, application)
        """Its times may be changed before the client is entered."""
        self._channel: Dial | None = None
        self._addresses: NodeAddresses | None = None
        self._context: ssl.SSLContext | None = None
        if not callable(url):
            self._addresses = NodeAddresses(url)
            self._context = client_context(self._addresses.current, tls)
        elif tls is not None:
            raise BadInput("tls is for addresses; a channel of your own has its own")
        else:
            self._channel = url
        self._credential = credential
        self._identity_path = None if identity is None else Path(identity)
        self._read_state, self._write_state = read_state, write_state
        self._core: Core | None = None
        self._keeper: IdentityKeeper | None = None
        self._link: ServerLink | None = None
        self._closed = False
        self._handed: effects.ClientEvent | None = None
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
                file = IdentityFile(self._identity_path)
                stack.callback(file.release)
                self._read_state, self._write_state = file.read, file.write
            if self._read_state is not None:
                known = await call(self._read_state)
            core = self._core = Core(self.config, known, secrets.randbits(64), self._loop.time())
            self._tasks = await stack.enter_async_context(OwnedTasks())
            if self._write_state is not None:
                retries = Backoff(self.config.backoff_first, self.config.backoff_cap)
                self._keeper = IdentityKeeper(
                    self._write_state, self._not_written, retries, core.dice
                )
                self._tasks.create_task(self._keeper.run())
            self._handlers = Handlers(
                *(self._tasks, self.ack, self._register_again, self.config, core.dice)
            )
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
        _check_version(version)
        if version is not None:
            self._inbox.forget(key)
            self._handlers.forget(key)
        self._step(effects.Register(key, version))

    async def unregister(self, name: str) -> None:
        """And its handler is forgotten, if it has one."""
        key = self._key(name)
        self._inbox.forget(key)
        self._handlers.remove(key)
        self._step(effects.Unregister(key))

    @overload
    def on(self, name: str, handler: H, *, version: int | None = None) -> H: ...

    @overload
    def on(self, name: str, *, version: int | None = None) -> Callable[[H], H]: ...

    def on(
        self, name: str, handler: H | None = None, *, version: int | None = None
    ) -> H | Callable[[H], H]:
        """Register for this object, and have `handler` called with what is told of it.

        It is told by the handler alone, and acked when that has returned. If it raises, it is
        called again later. Async ones run on the event loop, others on threads. Also a decorator:
        `@client.on("alice")`.
        """
        if handler is None:
            return partial(self._on, name, version)
        return self._on(name, version, handler)

    def _on(self, name: str, version: int | None, handler: H) -> H:
        key = self._key(name)
        _check_version(version)
        left = self._handlers.add(key, handler) or self._inbox.forget(key)
        if version is None and isinstance(left, effects.Notify | effects.NotifyUnknown):
            self._handlers.put(left)
        self._step(effects.Register(key, version))
        return handler

    def ack(self, event: effects.ClientEvent) -> None:
        """The application has taken the event over; what is never acked is told again.

        Only notifications need it. An ack that gets lost, or comes after the end, does no harm.
        """
        match event:
            case effects.Notify(object=key, version=version, epoch=epoch):
                self._inbox.acked(event)
                self._step(effects.Acknowledge(key, version, epoch))
            case effects.NotifyUnknown(object=key, epoch=epoch):
                self._step(effects.Acknowledge(key, None, epoch))

    def online(self) -> None:
        """The device has a network again: do not wait any longer to reconnect."""
        self._step(effects.Online())

    @property
    def connected(self) -> bool:
        """Whether there is a session with the server just now."""
        return self._core is not None and self._core.phase is ClientPhase.READY

    # What it is told.

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> effects.ClientEvent:
        """The next event, for one task at a time; the end when the client is closed."""
        self._check_entered()
        self._ack_handed()
        event = await self._inbox.take()
        if event is None:
            raise StopAsyncIteration
        if self.auto_ack:
            self._handed = event
        return event

    async def run(self, listener: Listener | None = None) -> None:
        """Tell the listener each event, and ack it when its method has returned. Without one, for
        an application that has handlers only, until the client is closed; that acks nothing."""
        async for event in self:
            if listener is not None:
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

    def _step(self, event: effects.Event) -> None:
        assert self._core is not None
        for effect in self._core.step(event, self._loop.time()):
            self._carry_out(effect)
        self._stepped.set()

    def _carry_out(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Transmit(message=Hello(token=None) as hello) if (
                self._credential is not None
            ):
                self._tasks.create_task(self._show_credential(self._link, hello))
            case effects.Transmit(message=message):
                if self._link is not None:
                    self._link.send(message)
            case effects.Deliver(event=event):
                self._deliver(event)
            case effects.OpenConnection():
                self._dial()
            case effects.CloseConnection():
                if self._link is not None:
                    self._link.hang_up()
                self._link = None
            case effects.SaveIdentity(identity=identity):
                if self._keeper is not None:
                    self._keeper.save(identity)

    def _deliver(self, event: effects.ClientEvent) -> None:
        match event:
            case effects.Notify(object=key) | effects.NotifyUnknown(object=key) if (
                key in self._handlers
            ):
                self._handlers.put(event)
                return
            case effects.RegistrationStatus(object=key, registered=True):
                self._handlers.registered(key)
            case effects.RegistrationFailure():
                self._handlers.refused(event)
        self._inbox.put(event)

    def _register_again(self, key: Key) -> None:
        self._step(effects.Register(key))

    def _dial(self) -> None:
        assert self._core is not None
        name, dial = "the channel", self._channel
        if self._addresses is not None:
            name = websocket_url(self._addresses.current)
            self._addresses.leave()  # for the next time: then this one has failed
            ping_interval = self._core.dice.smear(_PING_INTERVAL)
            dial = partial(websocket, name, self._context, ping_interval)
        assert dial is not None
        self._link = ServerLink(name, dial, self._happened)
        self._tasks.create_task(self._link.run())

    async def _show_credential(self, link: ServerLink | None, hello: Hello) -> None:
        """If there is none to be had, the core waits for an answer in vain, and tries again."""
        try:
            given = self._credential() if callable(self._credential) else self._credential
            credential = await given if isinstance(given, Awaitable) else given
            if credential is not None and len(credential) > MAX_CREDENTIAL_CHARS:
                raise BadInput(f"a credential has at most {MAX_CREDENTIAL_CHARS} characters")
        except Exception as error:  # of the application's
            self._inbox.put(effects.Trouble(Unauthorised.code, f"no credential: {error}"))
            return
        if link is not None and link is self._link:
            link.send(msgspec.structs.replace(hello, credential=credential))

    def _happened(self, link: ServerLink, what: Happening) -> None:
        if isinstance(what, effects.Trouble):
            self._inbox.put(what)
        elif link is self._link:  # else the core has given it up already
            if isinstance(what, effects.Disconnected):
                self._link = None
            self._step(what)

    def _not_written(self, error: Exception) -> None:
        where = self._identity_path or "write_state"
        self._inbox.put(effects.Trouble(StorageUnavailable.code, f"{where}: {error}"))

    async def _keep_time(self) -> None:
        assert self._core is not None
        while True:
            self._stepped.clear()
            try:
                async with asyncio.timeout_at(self._core.next_deadline()):
                    await self._stepped.wait()
            except TimeoutError:
                self._step(effects.Tick())

    # The end.

    async def _flush(self) -> None:
        core = self._core
        assert core is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_TIMEOUT):
                while self.connected and (core.acks or core.unsent):
                    self._stepped.clear()
                    await self._stepped.wait()

    def _stop(self) -> None:
        self._closed = True
        self._clock.cancel()
        self._inbox.close()
        self._handlers.close()
        self._step(effects.Stop())
        if self._keeper is not None:
            self._keeper.close()


def _check_version(version: int | None) -> None:
    if not 0 <= (version or 0) <= MAX_VERSION:
        raise BadInput(f"a version is 0 to 2^63-1; got {version}")
