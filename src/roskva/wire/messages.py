"""What clients and registrars say to each other.

A client opens with a `Hello` and is answered with a `Grant` that names its session. From then on
it sends `ClientMessage`s and receives `ServerMessage`s: envelopes whose parts are all optional, so
that whatever waits together leaves together. Fields that are empty do not travel.

A frame to many sessions holds notifications and nothing of any one session: it is encoded once.
Whatever concerns one session is sent to it alone and names it.

Unknown fields are ignored; a major version other than ours is refused (`codec.py`). Versions
travel as integers 0 … 2^63−1 or null for "unknown".
"""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from roskva.model import MAX_PAYLOAD_BYTES, MAX_VERSION, Key

PROTOCOL: Final = "1.0"
"""major.minor; a message without it, or of another major, is dropped."""

MAX_FRAME_BYTES: Final = 64 * 1024
MAX_PARTS: Final = 4096
"""Operations, acks or notifications in one message; a frame holds fewer of any real length."""

MAX_CREDENTIAL_CHARS: Final = 4096

MAX_SUM: Final = 2**64 - 1
"""Of a digest. Beyond what msgspec can be told as a bound: `codec.py` checks it."""

_MAX_KEY_CHARS = 63 + 1 + 255

Protocol = Annotated[str, Meta(max_length=16)]
ObjectKey = Annotated[Key, Meta(min_length=3, max_length=_MAX_KEY_CHARS)]
WireVersion = Annotated[int, Meta(ge=0, le=MAX_VERSION)]
WireEpoch = Annotated[int, Meta(ge=1, le=MAX_VERSION)]
Count = Annotated[int, Meta(ge=0, le=MAX_VERSION)]
Milliseconds = Annotated[int, Meta(ge=0, le=7 * 24 * 3600 * 1000)]
Nonce = Annotated[bytes, Meta(min_length=8, max_length=16)]
ClientId = Annotated[bytes, Meta(min_length=16, max_length=16)]
Token = Annotated[bytes, Meta(min_length=1, max_length=1024)]
Payload = Annotated[bytes, Meta(max_length=16 * MAX_PAYLOAD_BYTES)]
Code = Annotated[str, Meta(max_length=64)]
Text = Annotated[str, Meta(max_length=1024)]


class Digest(msgspec.Struct, frozen=True, array_like=True):
    """A set of registrations in two numbers: see `core/digest.py`."""

    count: Count
    sum: Annotated[int, Meta(ge=0)]


class Operation(msgspec.Struct, frozen=True, array_like=True):
    """Register for an object, with `version` of it in the cache if given; or unregister."""

    object: ObjectKey
    register: bool = True
    version: WireVersion | None = None


class Ack(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The notification with this version (null: unknown) and epoch reached the application."""

    object: ObjectKey
    version: WireVersion | None
    epoch: WireEpoch


class Sync(msgspec.Struct, frozen=True, array_like=True):
    """All that the client is registered for among the objects whose hash begins with `prefix`."""

    prefix: Annotated[bytes, Meta(max_length=8)]
    objects: Annotated[list[ObjectKey], Meta(max_length=MAX_PARTS)]


class Hello(msgspec.Struct, frozen=True, tag="hello", omit_defaults=True):
    """First on a connection: a new client names its app, a known one shows its token."""

    v: Protocol
    nonce: Nonce
    app: Annotated[str, Meta(max_length=63)] | None = None
    token: Token | None = None
    application: Annotated[str, Meta(max_length=64)] = ""
    """The application id: an update that names it as its source is not echoed to this client."""
    credential: Annotated[str, Meta(max_length=MAX_CREDENTIAL_CHARS)] | None = None
    """What a new client proves with that the app has let it in, where that is asked for."""


class ClientMessage(msgspec.Struct, frozen=True, tag="client", omit_defaults=True):
    v: Protocol
    session: Count
    number: Count
    """Rises with every message of a session; operations overtaken by newer ones are ignored."""
    digest: Digest | None = None
    operations: Annotated[list[Operation], Meta(max_length=MAX_PARTS)] = []
    acks: Annotated[list[Ack], Meta(max_length=MAX_PARTS)] = []
    syncs: Annotated[list[Sync], Meta(max_length=MAX_PARTS)] = []


class SessionConfig(msgspec.Struct, frozen=True, omit_defaults=True):
    heartbeat_ms: Annotated[int, Meta(ge=1, le=7 * 24 * 3600 * 1000)]


class Grant(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer to the hello with this nonce; without a nonce, a newer token for the session."""

    client: ClientId
    token: Token
    nonce: Nonce | None = None


class ServerDigest(msgspec.Struct, frozen=True, array_like=True):
    """The registrations on record after the client's messages up to this number."""

    count: Count
    sum: Annotated[int, Meta(ge=0)]
    number: Count


class Notification(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    object: ObjectKey
    version: WireVersion | None
    epoch: WireEpoch
    payload: Payload | None = None


class OperationStatus(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """After the client's message of this number the object is registered or not.

    With a code, because the operation failed.
    """

    object: ObjectKey
    registered: bool
    number: Count
    code: Code | None = None
    retriable: bool = False


class SyncRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """Send the registrations again: of the buckets whose sums differ from these, or all of them."""

    sums: Annotated[list[Annotated[int, Meta(ge=0)]], Meta(max_length=256)] = []


class ServerError(msgspec.Struct, frozen=True, omit_defaults=True):
    code: Code
    text: Text = ""


class ServerMessage(msgspec.Struct, frozen=True, tag="server", omit_defaults=True):
    """Its parts are dispatched in the order in which they stand here."""

    v: Protocol
    session: Count | None = None
    not_before_ms: Milliseconds | None = None
    config: SessionConfig | None = None
    grant: Grant | None = None
    digest: ServerDigest | None = None
    notifications: Annotated[list[Notification], Meta(max_length=MAX_PARTS)] = []
    statuses: Annotated[list[OperationStatus], Meta(max_length=MAX_PARTS)] = []
    sync_request: SyncRequest | None = None
    error: ServerError | None = None


FromClient = Hello | ClientMessage
