"""What channels and the node they belong to owe each other.

A channel accepts connections and turns what arrives on them into events of the registrar core; the
node carries out the core's effects by calling the connection back. The core names a connection by
its delivery (`host/delivery.py`), which is also what many are told through.

A channel's duties, in order:

1. One opening event (`Opened`, `Attached` or `Watching`) per connection, then its messages, then
   one `Closed`, also if the core asked for the end.
2. `send` writes at once, or not at all. What its delivery says of lagging goes to the core.
3. A connection `enter`s the node's writer, and `leave`s it when it is lost.
4. Nothing here waits: authorisation, publishing and reading are asked of the `Gateway`.
"""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from roskva.answer import Answered
from roskva.core.effects import Event
from roskva.errors import RoskvaError
from roskva.host.delivery import Delivery
from roskva.model import Key, Principal, Update
from roskva.net.writer import Writer
from roskva.wire.messages import FromClient, Notification, ServerMessage

MAX_UNREAD_BYTES: Final = 64 * 1024
"""Answers that a client leaves unread before it is no longer read from."""

FULL: Final = "too many connections: come back later"
"""Said to who would stay, when as many do as may."""

Outcomes = Answered[list[int | RoskvaError]]
"""Called with the version under which each update is durable, or why it is not."""


class ScheduledCall(Protocol):
    def cancel(self) -> object: ...


Later = Callable[[float, Callable[[], object]], ScheduledCall]
"""A call after so many seconds: an event loop's `call_later`, or a simulated one. After 0 seconds
it comes when everything that has arrived was heard."""


class ClientConnection(Protocol):
    """What the core's effects are carried out by: `Delivery.connection`."""

    def send(self, message: ServerMessage) -> Sequence[Notification]:
        """What concerns this session alone. Returns what of it the client is told by this: not
        what it was told before, or has no room for."""

    def close(self) -> None:
        """Hang up, after what was sent."""


class Gateway(Protocol):
    """The node as a channel sees it."""

    def step(self, event: Event) -> None:
        """Hand an event to the registrar core and carry out what it asks for."""

    def received(self, conn: Delivery, principal: Principal, message: FromClient) -> None:
        """A client's message: its operations are authorised, then it is handed to the core.

        `principal` is of whoever says hello; from then on it is the session's.
        """

    def identify(
        self,
        app: str | None,
        credential: str | None,
        certificate: str | None,
        answered: Answered[Principal],
    ) -> None:
        """Who is it that connects? `Unauthorised` if nobody we let in. It is answered before this
        returns, unless keys have to be fetched first. `certificate`: the name in the one it has
        shown, if any."""

    def check_channel(self, app: str, channel: str) -> None:
        """`Unauthorised` if this app is not to be used over this channel."""
        ...

    def assigns_versions(self, app: str) -> bool:
        """Whether versions of this app's objects are assigned here, or chosen by publishers."""

    def keeps_clients_s(self, app: str) -> float | None:
        """For how long a client of this app is remembered that is away; None: for good."""
        ...

    def publish(self, principal: Principal, updates: Sequence[Update], answered: Outcomes) -> None:
        """The answer is the outcome of each, or why none of them was looked at. Nobody in
        particular is counted by its address, also on this machine.

        An update without a version (NO_VERSION) asks for one to be assigned.
        """

    def check_publishing(self, principal: Principal, body_bytes: int) -> None:
        """`TooFast` if it has published so much that a request of this size need not be read."""

    async def reset(self, principal: Principal, key: Key) -> None:
        """Forget the version of an object, and tell everybody to look again."""

    async def check_registering(self, principal: Principal, keys: Sequence[Key]) -> None:
        """`Unauthorised` if it may not register for all of them."""

    async def read(self, principal: Principal, key: Key) -> Notification:
        """What an object stands at, as a client that registers now would be told."""

    @property
    def writer(self) -> Writer:
        """Of this process."""

    @property
    def ready(self) -> bool:
        """Whether clients can register and publish."""
