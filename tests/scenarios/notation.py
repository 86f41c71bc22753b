"""Messages, events and writes as one short line each, with every random value under a stable name.

    s1, s2 …      sessions           E1, E2 …   epochs of a shard; E1/R1 after reset R1 of an object
    c1, c2 …      client ids         L1@7       offset 7 of the feed's lineage L1
    nonce-1 …     nonces             (42, E1)   a registration: acked up to 42, in epoch E1
    token-1 …     tokens             #3         the number of a client's message, or of a request
    {a/b, a/c}    a digest, by the set that it stands for

Names are given in order of appearance.
"""

from collections.abc import Hashable, Iterable
from itertools import combinations

from tests.digests import sum_of

from roskva.core.effects import (
    Apply,
    ClientEvent,
    ClientRow,
    DropClient,
    DropObject,
    DropRegistered,
    FeedEnd,
    FeedMissing,
    Notify,
    NotifyUnknown,
    ObjectRow,
    PutAbsent,
    PutAssigned,
    PutClient,
    PutObject,
    PutRegistered,
    PutShard,
    RegistrationFailure,
    RegistrationStatus,
    ReissueRegistrations,
    Trouble,
    Write,
)
from roskva.model import (
    NO_EPOCH,
    NO_VERSION,
    WHOLE_SHARD,
    Key,
    Update,
    loss_of,
    mark_of,
    object_epoch,
)
from roskva.wire.links import (
    CloseSession,
    FromShard,
    Interest,
    LinkHello,
    LinkRefused,
    OpenSession,
    Ping,
    Pong,
    Push,
    Pushes,
    Registered,
    RowRefused,
    RowWritten,
    SessionOpened,
    Superseded,
    ToShard,
    Versions,
    Welcome,
    WriteRow,
    WriteRows,
)
from roskva.wire.messages import ClientMessage, FromClient, Hello, ServerMessage

_MOST_SPELT_OUT = 4


class Notation:
    def __init__(self) -> None:
        self._names: dict[tuple[str, Hashable], str] = {}
        self._counts: dict[str, int] = {}
        self.objects: dict[Key, None] = {}
        """All that the script speaks of: what digests may stand for."""

    def name(self, prefix: str, value: Hashable) -> str:
        if (prefix, value) not in self._names:
            self._counts[prefix] = self._counts.get(prefix, 0) + 1
            self._names[prefix, value] = f"{prefix}{self._counts[prefix]}"
        return self._names[prefix, value]

    def client(self, id: bytes) -> str:
        return self.name("c", id)

    def session(self, number: int) -> str:
        return self.name("s", number)

    def epoch(self, epoch: int) -> str:
        if epoch == NO_EPOCH:
            return "-"
        mark = mark_of(epoch)
        return self.name("E", epoch - mark) + (f"/{self.mark(mark)}" if mark else "")

    def shard_epoch(self, epoch: int) -> str:
        return self.epoch(object_epoch(epoch, 0))

    def mark(self, mark: int) -> str:
        return self.name("R", mark)

    def place(self, lineage: int, offset: int) -> str:
        return f"{self.name('L', lineage)}@{offset}"

    def digest(self, count: int, sum: int) -> str:
        if count <= _MOST_SPELT_OUT:
            for keys in combinations(self.objects, count):
                if sum_of(keys) == sum:
                    return "{" + ", ".join(keys) + "}"
        return f"{{{count} objects}}"

    # Clients and registrars.

    def from_client(self, message: FromClient) -> str:
        if isinstance(message, Hello):
            nonce = self.name("nonce-", message.nonce)
            if message.token is not None:
                return f"hello {nonce} {self.name('token-', message.token)}"
            return f"hello {nonce} app {message.app}"
        return f"{self.session(message.session)} #{message.number} " + ", ".join(
            self._client_parts(message)
        )

    def _client_parts(self, message: ClientMessage) -> Iterable[str]:
        for operation in message.operations:
            declared = "" if operation.version is None else f" version {operation.version}"
            verb = "register" if operation.register else "unregister"
            yield f"{verb} {operation.object}{declared}"
        for ack in message.acks:
            yield f"ack {ack.object} {_version(ack.version)} {self.epoch(ack.epoch)}"
        for sync in message.syncs:
            under = f" under {sync.prefix.hex()}" if sync.prefix else ""
            yield f"sync{under} [{', '.join(sync.objects)}]"
        if message.digest is not None:
            yield f"digest {self.digest(message.digest.count, message.digest.sum)}"

    def from_server(self, message: ServerMessage) -> str:
        session = "" if message.session is None else f"{self.session(message.session)} "
        return session + (", ".join(self._server_parts(message)) or "(here)")

    def _server_parts(self, message: ServerMessage) -> Iterable[str]:
        if message.not_before_ms is not None:
            yield f"not before {message.not_before_ms}ms"
        if message.config is not None:
            yield f"heartbeat {message.config.heartbeat_ms // 1000}s"
        if (grant := message.grant) is not None:
            nonce = "" if grant.nonce is None else f" for {self.name('nonce-', grant.nonce)}"
            yield f"grant {self.client(grant.client)} {self.name('token-', grant.token)}{nonce}"
        if (digest := message.digest) is not None:
            yield f"digest {self.digest(digest.count, digest.sum)} after #{digest.number}"
        for told in message.notifications:
            payload = "" if told.payload is None else f" '{told.payload.decode()}'"
            yield f"notify {told.object} {_version(told.version)} {self.epoch(told.epoch)}{payload}"
        for status in message.statuses:
            state = "registered" if status.registered else "not registered"
            failure = "" if status.code is None else f" ({status.code})"
            yield f"{state} {status.object} #{status.number}{failure}"
        if message.sync_request is not None:
            yield "sync request" + (" by bucket" if message.sync_request.sums else "")
        if message.error is not None:
            yield f"error {message.error.code}"

    def to_application(self, event: ClientEvent) -> str:
        match event:
            case Notify(object=key, version=version, epoch=epoch, payload=payload):
                hint = "" if payload is None else f" '{payload.decode()}'"
                return f"Notify {key} {version} {self.epoch(epoch)}{hint}"
            case NotifyUnknown(object=key, epoch=epoch):
                return f"NotifyUnknown {key} {self.epoch(epoch)}"
            case RegistrationStatus(object=key, registered=registered):
                return f"RegistrationStatus {key} {'registered' if registered else 'gone'}"
            case RegistrationFailure(object=key, transient=transient, code=code):
                return f"RegistrationFailure {key} {code}{' (transient)' if transient else ''}"
            case ReissueRegistrations():
                return "ReissueRegistrations"
            case Trouble(code=code):
                return f"Trouble {code}"

    # Registrars and shards.

    def on_link(self, message: ToShard | FromShard) -> str:
        match message:
            case LinkHello(shard=shard, shards=shards):
                return f"link hello, shard {shard} of {shards}"
            case Interest(add=add, drop=drop, replace=replace):
                changes = [*(f"+{key}" for key in add), *(f"-{key}" for key in drop)]
                return " ".join(["interest", *(["anew"] if replace else []), *changes])
            case Ping(count=count, sum=sum):
                return f"ping {self.digest(count, sum)}"
            case OpenSession(request=request, client=client):
                return f"#{request} open a session of {self.client(client)}"
            case WriteRow():
                return self._write_row(message)
            case WriteRows(rows=rows):
                return "write " + ", ".join(map(self._row, rows))
            case CloseSession(client=client, session=session):
                return f"close {self.client(client)} {self.session(session)}"
            case Welcome():
                return "welcome"
            case LinkRefused(code=code):
                return f"refused: {code}"
            case Versions(known=known):
                return "versions " + ", ".join(
                    f"{each.object} {_known(each.version)} {self.epoch(each.epoch)}"
                    for each in known
                )
            case Pushes(pushes=pushes):
                return "push " + ", ".join(map(self._push, pushes))
            case Pong(agree=agree):
                return "pong" if agree else "pong: interest differs"
            case SessionOpened(request=request, session=session, created=created):
                cells = " ".join(map(self._cell, message.registered)) or "empty"
                row = f"row {cells}" if created else "no row"
                return f"#{request} opened {self.session(session)}, {row}"
            case RowWritten(request=request):
                return f"#{request} written"
            case RowRefused(client=client, session=session, code=code):
                return f"refused {self.client(client)} {self.session(session)}: {code}"
            case Superseded(client=client, session=session):
                return f"superseded {self.client(client)} {self.session(session)}"
            case _:
                raise TypeError(f"not between machines of the core: {message!r}")

    def _write_row(self, message: WriteRow) -> str:
        text = f"#{message.request} write {self._row(message)}"
        return text + ("" if message.application is None else ", create")

    def _row(self, message: WriteRow) -> str:
        words = [self.client(message.client), self.session(message.session)]
        words += [f"+{self._cell(cell)}" for cell in message.put]
        words += [f"-{key}" for key in message.drop]
        return " ".join(words)

    def _push(self, push: Push) -> str:
        text = f"{push.object} {push.version} {self.epoch(push.epoch)}"
        text += f" after {_known(push.previous)}"
        return text + (f" by {push.source}" if push.source else "")

    def _cell(self, cell: Registered) -> str:
        return f"{cell.object} ({_known(cell.acked, '-')}, {self.epoch(cell.epoch)})"

    # The store and the feed.

    def write(self, write: Write) -> str:
        match write:
            case PutObject(key=key, row=row, replace=replace):
                return f"{key} {self._object_row(row)}" + (" anew" if replace else "")
            case PutShard(epoch=epoch, lineage=lineage, applied=applied, loss=loss):
                proposed = "" if loss is None else " proposed"
                return f"shard {self.shard_epoch(epoch)}{proposed} {self.place(lineage, applied)}"
            case DropObject(key=key):
                return f"-{key}"
            case PutAbsent(epoch=epoch):
                return f"absent {self.shard_epoch(epoch)}"
            case PutAssigned(limit=limit):
                return f"assigned below {limit}"
            case PutClient(client=client, session=session, application=application):
                created = "" if application is None else " created"
                return f"{self.client(client)} {self.session(session)}{created}"
            case PutRegistered(client=client, session=session, registered=cell):
                return f"{self.client(client)} {self.session(session)} +{self._cell(cell)}"
            case DropRegistered(client=client, key=key):
                return f"{self.client(client)} -{key}"
            case DropClient(client=client):
                return f"-{self.client(client)}"

    def loaded(self, rows: dict[Key, ObjectRow] | ClientRow | None) -> str:
        if rows is None:
            return "no row"
        if isinstance(rows, ClientRow):
            return f"row {self.session(rows.session)} " + " ".join(map(self._cell, rows.registered))
        return ", ".join(f"{key} {self._object_row(row)}" for key, row in rows.items())

    def _object_row(self, row: ObjectRow) -> str:
        return _known(row.version) + (f" {self.mark(row.mark)}" if row.mark else "")

    def update(self, update: Update) -> str:
        if update.object == WHOLE_SHARD:
            loss = loss_of(update)
            lost = self.place(loss.lineage, loss.last)
            return f"epoch {self.shard_epoch(update.version)}, {loss.why} {lost}"
        if update.reset:
            return f"{update.object} reset {self.mark(update.version)}"
        text = f"{update.object} {update.version}"
        if update.source is not None:
            text += f" by {update.source}"
        return text + ("" if update.payload is None else f" '{update.payload.decode()}'")

    def from_feed(self, event: Apply | FeedEnd | FeedMissing) -> str:
        match event:
            case Apply(lineage=lineage, first=first, last=last, updates=updates):
                held = ", ".join(self.update(update) for _, update in updates)
                return f"apply {self.place(lineage, first)}..{last}: {held}"
            case FeedEnd(lineage=lineage, last=last):
                return f"ends at {self.place(lineage, last)}"
            case FeedMissing(lineage=lineage, last=last):
                return f"missing up to {self.place(lineage, last)}"


def _version(version: int | None) -> str:
    return "unknown" if version is None else str(version)


def _known(version: int, nothing: str = "none") -> str:
    return nothing if version == NO_VERSION else str(version)
