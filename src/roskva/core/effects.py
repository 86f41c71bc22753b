"""What goes into the state machines, and what they ask of the shell around them.

The contract: `step(event, now) -> effects`. The shell carries the effects out in order, and no
effect waits for another. `Persist` and `Load` return at once; the machine sends what depends on
them when `Persisted` or `Loaded` comes back: late, or never, or as `Failed`. A `Persist` is
answered only when it would survive a power cut, and all its writes take effect or none.

A connection, a link and a request are named by handles that the shell chooses. Time is monotonic
seconds and comes in; random bits come in with the events that need them.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Literal

import msgspec

from roskva.core.expiry import ScannedClient
from roskva.core.identity import Standing, TokenKeys
from roskva.model import (
    NO_EPOCH,
    NO_GENERATION,
    NO_VERSION,
    NOBODY,
    NOTHING_LOST,
    Key,
    Loss,
    Principal,
    Update,
    loss_of,
)
from roskva.wire.links import FromShard, Registered, ToShard
from roskva.wire.messages import ClientMessage, FromClient, Hello, ServerMessage

Handle = Hashable


class Tick(msgspec.Struct, frozen=True):
    """A deadline has come, or there is time for more of the work in hand."""


# Storage: matcher and rows.


class Persisted(msgspec.Struct, frozen=True):
    id: int


class Loaded(msgspec.Struct, frozen=True):
    id: int
    rows: "dict[Key, ObjectRow] | ClientRow | Page | None"


class Failed(msgspec.Struct, frozen=True):
    """Neither persisted nor loaded nor appended, for now."""

    id: int


class ObjectRow(msgspec.Struct, frozen=True):
    """What is durable of an object: `mark` is that of its own last reset; `epoch` is the shard's,
    and `generation` the app's, when the version was applied."""

    version: int = NO_VERSION
    mark: int = 0
    source: str | None = None
    payload: bytes | None = None
    published_at: int = 0
    epoch: int = NO_EPOCH
    generation: int = NO_GENERATION


class PutObject(msgspec.Struct, frozen=True):
    """Merged by the higher generation and version; with `replace` (a reset) whatever was there is
    forgotten."""

    key: Key
    row: ObjectRow
    replace: bool = False


class PutShard(msgspec.Struct, frozen=True):
    """The epoch, and the marker: how far the feed is covered by the object rows.

    The generations of apps that were reset stand beside it, and are written when one has risen.
    """

    epoch: int
    lineage: int
    applied: int
    generations: tuple[tuple[str, int], ...] = ()
    excused: int = NOTHING_LOST
    """What is lost up to here has been answered by an epoch."""
    loss: Loss | None = None
    """What has not. The epoch is only proposed, until a record in the feed begins one."""

    def after(self, record: Update) -> "PutShard":
        """Of an epoch. It counts if it answers for more than was answered for, and ends the doubt
        if it answers for all that was lost here; until then the epoch goes on being proposed."""
        lost = loss_of(record).last
        if lost <= self.excused:
            return self
        if self.loss is not None and lost < self.loss.last:
            return msgspec.structs.replace(self, excused=lost)
        return msgspec.structs.replace(self, epoch=record.version, excused=lost, loss=None)


class ClientRow(msgspec.Struct, frozen=True):
    session: int
    application: str
    registered: list[Registered]
    account: bytes = b""


class PutClient(msgspec.Struct, frozen=True):
    """The head of a client row; `application` is set when the row is created. `open`: the session
    goes on. `expiry_s`: how long it wants to be kept after its end."""

    client: bytes
    session: int
    seen_at: int
    application: str | None = None
    open: bool = False
    expiry_s: int | None = None
    account: bytes = b""
    """Whose it is; written when it is created."""


class PutRegistered(msgspec.Struct, frozen=True):
    client: bytes
    session: int
    registered: Registered


class DropRegistered(msgspec.Struct, frozen=True):
    client: bytes
    key: Key


class DropClient(msgspec.Struct, frozen=True):
    client: bytes


class DropObject(msgspec.Struct, frozen=True):
    """Its version; the mark of a reset stays."""

    key: Key


class PutAbsent(msgspec.Struct, frozen=True):
    """The epoch of objects without a row, for as long as that of the shard is `within`. It is
    written before any row is dropped."""

    epoch: int
    within: int


class PutAssigned(msgspec.Struct, frozen=True):
    """Versions that the shard assigns stay below `limit` until it is raised."""

    limit: int


_ShardWrite = PutShard | PutAssigned | PutAbsent
_ClientWrite = PutClient | PutRegistered | DropRegistered | DropClient
Write = PutObject | DropObject | _ShardWrite | _ClientWrite


class Persist(msgspec.Struct, frozen=True):
    id: int
    writes: Sequence[Write]


class LoadObjects(msgspec.Struct, frozen=True):
    id: int
    keys: Sequence[Key]


class LoadClient(msgspec.Struct, frozen=True):
    id: int
    client: bytes


class LoadPage(msgspec.Struct, frozen=True):
    """So many rows from a place in the store, to be looked at for what has expired; or those of
    `clients`, if there are any. Answered by a `Page`."""

    id: int
    after: bytes
    rows: int
    objects: bool
    """Not only clients."""
    clients: Sequence[bytes] = ()


class Page(msgspec.Struct, frozen=True):
    clients: Sequence[ScannedClient]
    objects: "Sequence[tuple[Key, ObjectRow]]"
    after: bytes | None
    """Where the next one begins; None: this was the last."""
    share: float
    """Of the store that lies before that, about."""
    bits: int
    """Random."""


# Links: registrar on one side, matcher and rows on the other.


class LinkUp(msgspec.Struct, frozen=True):
    """A link is open; a shard learns of it by the `LinkHello` that comes first."""

    link: Handle


class LinkDown(msgspec.Struct, frozen=True):
    link: Handle


class FromLink(msgspec.Struct, frozen=True):
    link: Handle
    message: ToShard | FromShard


class SendLink(msgspec.Struct, frozen=True):
    link: Handle
    message: ToShard | FromShard


class DropLink(msgspec.Struct, frozen=True):
    link: Handle


# The feed: matcher.


class Apply(msgspec.Struct, frozen=True):
    """A range of the feed: all that matters of it, in order of offset. See `Matcher`."""

    lineage: int
    first: int
    last: int
    updates: Sequence[tuple[int, Update]]
    request: Handle = None


class FeedEnd(msgspec.Struct, frozen=True):
    """The feed's history and its last offset, now; told at the start and every so often."""

    lineage: int
    last: int
    bits: int
    """Random, to propose an epoch with should one be needed."""


class FeedMissing(msgspec.Struct, frozen=True):
    """What follows `applied` can no longer be read, up to `last`: too old, damaged, or left out
    when the feed was restored."""

    lineage: int
    last: int
    bits: int
    why: Literal["retention", "damage", "restore"] = "damage"


class ReadFeed(msgspec.Struct, frozen=True):
    """Answer with `Apply` of what follows this marker, or `FeedEnd`, or `FeedMissing`."""

    lineage: int
    after: int


class BeginEpoch(msgspec.Struct, frozen=True):
    """Append a record of this to the feed. It is not answered, but read back in its place; or
    `Failed`, if it could not be appended."""

    id: int
    epoch: int
    loss: Loss


class Applied(msgspec.Struct, frozen=True):
    """The answer to an `Apply`: everything up to here is durable."""

    request: Handle
    lineage: int
    offset: int


# Sessions: registrar.


class Opened(msgspec.Struct, frozen=True):
    """A connection; with random bits for a client id and for its token."""

    conn: Handle
    bits: bytes


class Attached(msgspec.Struct, frozen=True):
    """A connection whose client the channel itself has identified (MQTT).

    `resume`: with the registrations it had. `keep`: they outlive the connection; otherwise its row
    is deleted now, and nothing is written again.
    """

    conn: Handle
    client: bytes
    application: str
    resume: bool = True
    keep: bool = True
    principal: Principal = NOBODY
    expiry_s: int | None = None
    """After the connection has ended it is kept for no longer than this."""


class Watching(msgspec.Struct, frozen=True):
    """A connection that registers once and for its own lifetime (HTTP): it has no row.

    `client` is random, and nobody else's.
    """

    conn: Handle
    client: bytes
    registered: Sequence[Registered]
    principal: Principal = NOBODY


class Recheck(msgspec.Struct, frozen=True):
    """Learn from the shards anew what everything stands at, and tell every session what is due."""


class Shedding(msgspec.Struct, frozen=True):
    """Whether this process has too much to do, or too little memory, to let anybody else in."""

    on: bool


class Reloaded(msgspec.Struct, frozen=True):
    """Other keys, or another standing, from now on: whoever does not hold any more has to go."""

    keys: TokenKeys
    standing: Standing


class KeptBack(msgspec.Struct, frozen=True):
    """What this session was to be told of the object it was not: it is due at the next check."""

    conn: Handle
    object: Key


class Withdrawn(msgspec.Struct, frozen=True):
    """This registration is not allowed any more."""

    conn: Handle
    object: Key


class Dismissed(msgspec.Struct, frozen=True):
    """This session has to go; its client may come back after so many milliseconds."""

    conn: Handle
    not_before_ms: int


class FromConnection(msgspec.Struct, frozen=True):
    conn: Handle
    message: FromClient
    denied: "frozenset[Key]" = frozenset()
    """Objects of this message's operations that the app does not allow."""
    undecided: "frozenset[Key]" = frozenset()
    """Those of which it could not be asked: they may be tried again."""
    principal: Principal = NOBODY
    """Of a hello that names an app."""


class Acked(msgspec.Struct, frozen=True, gc=False):
    """Notifications reached their clients, over a channel that has no messages of ours (MQTT).

    The same as `Ack`s in messages, for the busiest path there is: many clients in one step.
    """

    acks: Mapping[tuple[Key, int, int], Sequence[Handle]]
    """By object, version (−1: unknown) and epoch: who acked it."""


class Closed(msgspec.Struct, frozen=True):
    conn: Handle
    expiry_s: int | None = None
    """How long it wants to be kept from now on, if it has changed its mind."""


class Lagging(msgspec.Struct, frozen=True):
    """A connection is above its high-water mark, or full: broadcasts skip it from now on.

    What changed from step `since` on is told when it has drained. A connection that does not say so
    left out nothing before the step just done.
    """

    conn: Handle
    since: int | None = None


class Drained(msgspec.Struct, frozen=True):
    conn: Handle


class Send(msgspec.Struct, frozen=True):
    conn: Handle
    message: ServerMessage


class Broadcast(msgspec.Struct, frozen=True):
    """One frame to many: encode once. Whoever closes meanwhile is left out."""

    message: ServerMessage
    conns: Sequence[Handle]
    step: int = 0
    """In which the object changed: what a connection that leaves it out names in `Lagging`."""


class Close(msgspec.Struct, frozen=True):
    conn: Handle


# The client.


class Connected(msgspec.Struct, frozen=True):
    pass


class Disconnected(msgspec.Struct, frozen=True):
    pass


class FromServer(msgspec.Struct, frozen=True):
    message: ServerMessage


class Register(msgspec.Struct, frozen=True):
    key: Key
    version: int | None = None


class Unregister(msgspec.Struct, frozen=True):
    key: Key


class Acknowledge(msgspec.Struct, frozen=True):
    key: Key
    version: int | None
    epoch: int


class Online(msgspec.Struct, frozen=True):
    """The device says it has a network again."""


class Stop(msgspec.Struct, frozen=True):
    pass


class OpenConnection(msgspec.Struct, frozen=True):
    pass


class CloseConnection(msgspec.Struct, frozen=True):
    pass


class Transmit(msgspec.Struct, frozen=True):
    message: Hello | ClientMessage


class SaveIdentity(msgspec.Struct, frozen=True):
    """Keep these bytes for the next start, together with the cache they stand for; None: forget."""

    identity: bytes | None


class AboutObject(msgspec.Struct, frozen=True):
    object: Key

    @property
    def name(self) -> str:
        """As the application spelt it: without the app."""
        return self.object.partition("/")[2]


class Notify(AboutObject, frozen=True):
    """The object stands at this version."""

    version: int
    epoch: int
    payload: bytes | None = None


class NotifyUnknown(AboutObject, frozen=True):
    """The object may have changed: go and look."""

    epoch: int


class RegistrationStatus(AboutObject, frozen=True):
    registered: bool


class RegistrationFailure(AboutObject, frozen=True):
    transient: bool
    code: str


class ReissueRegistrations(msgspec.Struct, frozen=True):
    """Say again what you want to be registered for; what is known already costs nothing."""


class Trouble(msgspec.Struct, frozen=True):
    """Something the application may want to show or log; the client goes on by itself."""

    code: str
    text: str


ClientEvent = (
    Notify
    | NotifyUnknown
    | RegistrationStatus
    | RegistrationFailure
    | ReissueRegistrations
    | Trouble
)


class Deliver(msgspec.Struct, frozen=True):
    event: ClientEvent


_Load = LoadObjects | LoadClient | LoadPage
_ShardEffect = Persist | _Load | SendLink | DropLink | ReadFeed | BeginEpoch | Applied
_ClientEffect = OpenConnection | CloseConnection | Transmit | SaveIdentity | Deliver
Effect = _ShardEffect | Send | Broadcast | Close | _ClientEffect

_ShardEvent = Persisted | Loaded | Failed | Page | Apply | FeedEnd | FeedMissing
_LinkEvent = LinkUp | LinkDown | FromLink
_Connection = Opened | Attached | Watching | FromConnection | Acked | Lagging | Drained | Closed
_Order = Recheck | Reloaded | Shedding | KeptBack | Withdrawn | Dismissed
_Wish = Register | Unregister | Acknowledge | Stop
_Client = Connected | Disconnected | FromServer | Online | _Wish
Event = Tick | _ShardEvent | _LinkEvent | _Connection | _Order | _Client
