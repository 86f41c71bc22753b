"""What registrars and shards say to each other over a link.

A link joins one registrar to one shard. It is ordered and reliable while it is up, and it carries
no acks: when it breaks, the registrar opens it again, says `LinkHello`, resends its interest and
its unanswered row requests, and learns the current versions anew.

These messages stay between Roskva's own processes; "no version" is −1 here.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from roskva.model import MAX_VERSION, Key, Update
from roskva.wire.messages import ClientId

LINK_PROTOCOL: Final = "1.0"
DIGEST_KIND: Final = "sum64-sha256"
MAX_LINK_FRAME_BYTES: Final = 4 * 1024 * 1024
MAX_LINK_PARTS: Final = 500
"""Objects or cells in one message: what either side can handle in one turn of its loop."""
MAX_PUSHES: Final = 64
"""In one message: all are told in one step, and who lags is heard only after it."""


class Registered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One registration of a client row: the highest acked version, and the epoch of the ack."""

    object: Key
    acked: int
    epoch: int


class CurrentVersion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An object's latest version in its epoch, as the shard knows it."""

    object: Key
    version: int
    epoch: int
    payload: bytes | None = None


# From the registrar.


class LinkHello(msgspec.Struct, frozen=True, tag=True):
    protocol: str
    registrar: str
    shard: int
    shards: int
    digest_kind: str = DIGEST_KIND


class PublisherHello(msgspec.Struct, frozen=True, tag=True):
    """From a change source: it publishes to this shard, resets its app, and wants nothing else."""

    shard: int


class Interest(msgspec.Struct, frozen=True, tag=True):
    """`replace` starts the interest of this link anew."""

    add: Annotated[list[Key], Meta(max_length=MAX_LINK_PARTS)] = []
    drop: Annotated[list[Key], Meta(max_length=MAX_LINK_PARTS)] = []
    replace: bool = False


class Ping(msgspec.Struct, frozen=True, tag=True):
    """The interest so far, in two numbers."""

    count: int
    sum: int


class OpenSession(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """`resume` the registrations in the row; if they are not to be kept either, delete it."""

    request: int
    client: ClientId
    resume: bool = True
    keep: bool = True
    expiry_s: int | None = None
    """How long the row is kept at most after the session has ended."""


class WriteRow(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    request: int
    client: ClientId
    session: int
    put: list[Registered] = []
    drop: list[Key] = []
    application: str | None = None
    """Given when the row may have to be created; otherwise a missing row is refused."""
    expiry_s: int | None = None
    account: bytes = b""
    """Of whose principal it is; empty: it is not counted."""
    held: int | None = None
    """How many registrations the row is to have after this; acks and signs of life do not say."""


class WriteRows(msgspec.Struct, frozen=True, tag=True):
    """Acks of many clients: written lazily, together, and not answered; their request is 0."""

    rows: Annotated[list[WriteRow], Meta(max_length=MAX_LINK_PARTS)]


class CloseSession(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    client: ClientId
    session: int
    expiry_s: int | None = None


class PublishUpdates(msgspec.Struct, frozen=True, tag="Publish"):
    """Updates of this shard's objects, admitted already; −1 asks for a version."""

    request: int
    updates: list[Update]


class Offer(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """From the bridge: a range of a shard's feed, with all that matters of it in order of offset.

    Without updates it asks what the matcher has applied.
    """

    request: int
    shard: int
    lineage: int = 0
    first: int = 0
    last: int = 0
    updates: list[tuple[int, Update]] = []


class AwaitGap(msgspec.Struct, frozen=True, tag=True):
    """From the bridge: answer when something is missing that lies beyond `after` in this lineage.

    It stands until there is an answer, and takes the place of an earlier one over the same link.
    """

    request: int
    shard: int
    lineage: int
    after: int


class Forget(msgspec.Struct, frozen=True, tag=True):
    """From garbage collection: drop the rows of clients that have been away for long.

    Each with the session last seen in its row: one that was back since then is kept.
    """

    request: int
    shard: int
    clients: Annotated[list[tuple[ClientId, int]], Meta(max_length=MAX_LINK_PARTS)]


class ResetApp(msgspec.Struct, frozen=True, tag=True):
    """For an operator (`Ask` "reset"): every object of this app in this shard is unknown, once, and
    its versions begin anew. A generation that the shard's feed has already changes nothing; 0 asks
    for it.

    Answered with `UpdatesPublished`: the generation that the feed has now, durably.
    """

    request: int
    app: str
    generation: Annotated[int, Meta(ge=0, le=MAX_VERSION)]


class Ask(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """Instead of a link's hello, to any process of a node: one question, one answer.

    "metrics": what it has counted. "online": which clients have a session here. "recheck": compare
    every session here with the shards anew, and send again what is due. "checkpoint": of a shard's
    store, under a name. For the admin API: "now", this process at a glance; "object" and "client",
    what it knows of the one with this name; "row" of the client with this name in a shard; "rows"
    with this application id in all shards of the process; what `objects` of a shard stand at
    ("stands"); and to "reset" the app with this name in a shard.
    """

    what: Literal[
        "status",
        "metrics",
        "checkpoint",
        "online",
        "recheck",
        "now",
        "object",
        "client",
        "row",
        "rows",
        "stands",
        "reset",
    ]
    shard: int = 0
    name: str = ""
    generation: Annotated[int, Meta(ge=0, le=MAX_VERSION)] = 0
    objects: Annotated[list[Key], Meta(max_length=MAX_LINK_PARTS)] = []


# From the shard.


class Welcome(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """`owner` numbers the starts of the shard's owners, each above all before."""

    shard: int
    owner: int = 0


class LinkRefused(msgspec.Struct, frozen=True, tag=True):
    code: str
    text: str


class Versions(msgspec.Struct, frozen=True, tag=True):
    known: Annotated[list[CurrentVersion], Meta(max_length=MAX_LINK_PARTS)]


class Push(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An update just applied. `source` is given only if `previous` is the version just before."""

    object: Key
    version: int
    epoch: int
    payload: bytes | None = None
    previous: int = -1
    source: str | None = None
    published_at: int = 0


class Pushes(msgspec.Struct, frozen=True, tag=True):
    """Each of another object."""

    pushes: Annotated[list[Push], Meta(max_length=MAX_PUSHES)]


class Pong(msgspec.Struct, frozen=True, tag=True):
    agree: bool


class SessionOpened(msgspec.Struct, frozen=True, tag=True, omit_defaults=True):
    """The row, in as many messages as it takes; the last one has `more` unset."""

    request: int
    session: int
    created: bool = False
    registered: Annotated[list[Registered], Meta(max_length=MAX_LINK_PARTS)] = []
    more: bool = False


class RowWritten(msgspec.Struct, frozen=True, tag=True):
    request: int


class RowRefused(msgspec.Struct, frozen=True, tag=True):
    client: ClientId
    session: int
    code: str


class Superseded(msgspec.Struct, frozen=True, tag=True):
    """A newer session of this client was opened; tell the older one and close it."""

    client: ClientId
    session: int


class UpdatesPublished(msgspec.Struct, frozen=True, tag="Published"):
    """They are durable, under these versions; below 0: refused, as the app was reset since."""

    request: int
    versions: list[int]


class NotPublished(msgspec.Struct, frozen=True, tag=True):
    """None of them counts as published."""

    request: int
    code: str
    text: str


class Taken(msgspec.Struct, frozen=True, tag=True):
    """The answer to an `Offer`: everything up to this offset is durable at the matcher, or applied,
    if nothing was offered."""

    request: int
    lineage: int
    offset: int


class Gap(msgspec.Struct, frozen=True, tag=True):
    """The answer to an `AwaitGap`: beyond `applied`, up to `last`, all is left to the bridge."""

    request: int
    shard: int
    applied: int
    last: int


class Forgotten(msgspec.Struct, frozen=True, tag=True):
    """The answer to a `Forget`: so many rows are gone for good."""

    request: int
    count: int


class ProcessAnswer(msgspec.Struct, frozen=True, tag="Told"):
    """To an `Ask`."""

    json: bytes


ToShard = (
    LinkHello
    | PublisherHello
    | Interest
    | Ping
    | OpenSession
    | WriteRow
    | WriteRows
    | CloseSession
    | PublishUpdates
    | Offer
    | AwaitGap
    | Forget
    | ResetApp
    | Ask
)
FromShard = (
    Welcome
    | LinkRefused
    | Versions
    | Pushes
    | Pong
    | SessionOpened
    | RowWritten
    | RowRefused
    | Superseded
    | UpdatesPublished
    | NotPublished
    | Taken
    | Gap
    | Forgotten
    | ProcessAnswer
)
