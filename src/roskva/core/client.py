"""The client's side of the protocol: what an application wants, kept true through every loss.

The application says what it wants (`Register`, `Unregister`), is handed events (`Deliver`) and acks
them. This machine keeps *wanted*, the set it stands for, and everything else follows:

- An operation is pending until the server confirms it, by a status or by a digest equal to ours
  over all that was sent. Unanswered, it is sent again with backoff; after a reconnect, under the
  new session.
- Whenever the server's digest differs while nothing is under way, our next message shows ours, and
  the server asks for what differs.
- Notifications pass the table of `freshness.py` with what this client acked itself, so nothing old
  is delivered again, and what may have been missed is delivered as unknown.

A restarted client with its identity resumes its session; registrations restated without a version
wait for the server's digest and, if that matches, are never sent.
"""

from collections.abc import Iterable
from enum import Enum

import msgspec

from roskva.core import freshness
from roskva.core.backoff import Backoff, Dice, Rate, RateLimit
from roskva.core.digest import BUCKETS, DigestSum, bucket_sums, hash_of
from roskva.core.effects import (
    Acknowledge,
    ClientEvent,
    CloseConnection,
    Connected,
    Deliver,
    Disconnected,
    Effect,
    Event,
    FromServer,
    Notify,
    NotifyUnknown,
    Online,
    OpenConnection,
    Register,
    RegistrationFailure,
    RegistrationStatus,
    ReissueRegistrations,
    SaveIdentity,
    Stop,
    Tick,
    Transmit,
    Trouble,
    Unregister,
)
from roskva.core.freshness import NEVER, Acked, Due, Known, due
from roskva.core.identity import Identity, pack_identity, unpack_identity
from roskva.errors import BadConfig, BadInput, Fenced, TokenRejected, Unauthorised, UnknownClient
from roskva.model import MAX_VERSION, NO_EPOCH, NO_MARK, NO_VERSION, Key, is_key, mark_of
from roskva.wire.messages import (
    PROTOCOL,
    Ack,
    ClientMessage,
    Digest,
    Grant,
    Hello,
    Notification,
    Operation,
    OperationStatus,
    ServerDigest,
    ServerError,
    ServerMessage,
    Sync,
    SyncRequest,
)

_MESSAGE_ROOM = 24_000
"""Bytes of names in one message; escaped in JSON they may double."""
_PART_OVERHEAD = 32
_MANY = 128
"""So many restated registrations are settled by digest and sync, not one by one."""


class ClientConfig(msgspec.Struct, frozen=True):
    """Times are in seconds."""

    app: str
    application: str = ""
    batch_delay: float = 0.05
    heartbeat: float = 1200.0
    """Until the server says otherwise."""
    answer_timeout: float = 10.0
    """For a handshake, an operation or a heartbeat to be answered."""
    backoff_first: float = 1.0
    backoff_cap: float = 120.0
    rate: Rate = Rate(25, 1000)
    wake_after: float = 60.0
    """Back online: a heartbeat at once only if the last message is older than this."""
    reissue_grace: float = 5.0
    """After a restart the application has this long to restate its registrations."""
    fenced_wait: float = 30.0
    """Another instance took over our identity: two of them should not fight over it fast."""

    def __post_init__(self) -> None:
        if self.rate.count > self.rate.window_ms:
            raise BadConfig(
                f"{self.rate.count} messages in {self.rate.window_ms} ms: a client sends at most "
                "one in a millisecond"
            )


class ClientPhase(Enum):
    OFFLINE = 0
    CONNECTING = 1
    GREETING = 2
    READY = 3
    STOPPED = 4


class Pending(msgspec.Struct):
    """An operation the server has not confirmed."""

    register: bool
    version: int | None
    number: int = 0
    """Of the message it went with; 0: not sent in this session."""


class ClientMachine:
    def __init__(self, config: ClientConfig, identity: bytes | None, seed: int, now: float) -> None:
        self.config = config
        self.dice = Dice(seed)
        known = unpack_identity(identity, config.app) if identity else None
        self.client_id: bytes | None = known.client if known else None
        self.token: bytes | None = known.token if known else None
        self.resumed = known is not None
        self.settle_at = now
        """Until then a restarted application may still be restating what it wants."""
        self.server_digest: ServerDigest | None = None
        self.reissued = False
        self.phase = ClientPhase.OFFLINE
        self.session: int | None = None
        self.nonce = b""
        self.number = 0
        self.wanted: dict[Key, None] = {}
        self.digest = DigestSum()
        self.pending: dict[Key, Pending] = {}
        self.unsent: dict[Key, None] = {}
        self.last_operation = 0
        self.acks: dict[Key, Ack] = {}
        self.acked: dict[Key, Acked] = {}
        self.heard: dict[Key, Known] = {}
        self.former: dict[Key, Known] = {}
        """Heard of objects whose unregistration is not confirmed."""
        self.left: dict[Key, dict[int, int]] = {}
        """Epochs that acks of this session left for another mark: what still comes in them is late.
        And the version that came last in each: whoever has looked since then knows it."""
        self.early: dict[Key, Notification] = {}
        """Told after a restart, before the application has restated its registrations."""
        self.to_sync: list[bytes] = []
        """Prefixes of the hashes whose registrations the server asked for."""
        self.heartbeat = config.heartbeat
        self.reconnects = Backoff(config.backoff_first, config.backoff_cap)
        self.retries = Backoff(config.backoff_first, config.backoff_cap)
        self.rate = RateLimit(config.rate)
        self.not_before = now
        self.last_sent = now
        self.flush_at: float | None = None
        self.beat_at: float | None = None
        self.beat_due = False
        self.show_at: float | None = None
        """When to show our digest, if it still differs."""
        self.shown_at = now - config.backoff_first
        self.retry_at: float | None = None
        self.answer_by: float | None = None
        self.connect_at: float | None = now + config.batch_delay
        self.greet_at: float | None = None
        self.counters = dict.fromkeys(
            ("ignored", "delivered", "repeated", "resent", "handshakes", "reconnects"), 0
        )
        self.now = now
        self._effects: list[Effect] = []

    def next_deadline(self) -> float | None:
        if self.phase is ClientPhase.STOPPED:
            return None
        times = (
            *(self.flush_at, self.beat_at, self.show_at),
            *(self.retry_at, self.answer_by, self.connect_at, self.greet_at),
        )
        return min((time for time in times if time is not None), default=None)

    def step(self, event: Event, now: float) -> list[Effect]:
        self.now = now
        if self.phase is ClientPhase.STOPPED and type(event) is not Register:
            return []
        match event:
            case FromServer():
                self._receive(event.message)
            case Acknowledge():
                self._acknowledge(event)
            case Register():
                self._register(event.key, event.version)
            case Unregister():
                self._unregister(event.key)
            case Connected():
                self._connected()
            case Disconnected():
                self._disconnected()
            case Tick():
                self._tick()
            case Online():
                self._online()
            case Stop():
                self._stop()
            case _:
                raise TypeError(f"not for a client: {event!r}")
        effects, self._effects = self._effects, []
        return effects

    # What the application says.

    def _register(self, key: Key, version: int | None) -> None:
        if self.phase is ClientPhase.STOPPED:
            self._deliver(RegistrationFailure(key, False, "stopped"))
            return
        if not is_key(key) or not 0 <= (version or 0) <= MAX_VERSION:
            self._deliver(RegistrationFailure(key, False, BadInput.code))
            return
        if key in self.wanted and version is None:
            if key not in self.pending:
                self._deliver(RegistrationStatus(key, True))
            return
        if key not in self.wanted:
            self.wanted[key] = None
            self.digest.add(hash_of(key))
        if version is not None:
            self.acked[key] = (version, self.acked.get(key, NEVER)[1])
            # What was told before does not matter any more, and neither does its ack.
            self.heard.pop(key, None)
            self.acks.pop(key, None)
        elif key in self.early:
            self._notified(self.early.pop(key))
        elif key in self.former:
            # The server may never hear that we left, and so not tell us again: we do.
            self.heard[key] = self.former[key]
            self._deliver(NotifyUnknown(key, self.former[key][1]))
        self._pend(key, Pending(True, version))

    def _unregister(self, key: Key) -> None:
        if self.resumed or key in self.wanted:
            # Also what was never heard here: the server may count as acked what was told in another
            # life, or to somebody else with our identity.
            self.former[key] = self.heard.get(key, NEVER)
        if key not in self.wanted:
            return
        self._drop(key)
        self._pend(key, Pending(False, None))

    def _pend(self, key: Key, operation: Pending) -> None:
        self.pending[key] = operation
        self.unsent.pop(key, None)
        self.unsent[key] = None
        self._flush_soon()

    def _drop(self, key: Key) -> None:
        del self.wanted[key]
        self.digest.remove(hash_of(key))
        for table in (self.acks, self.acked, self.heard, self.left):
            table.pop(key, None)

    def _acknowledge(self, ack: Acknowledge) -> None:
        known = self.heard.get(ack.key)
        if ack.key not in self.wanted or known is None or ack.epoch == NO_EPOCH:
            return
        version = NO_VERSION if ack.version is None else ack.version
        if version == NO_VERSION and ack.key in self.left:
            version = self.left[ack.key].get(ack.epoch, NO_VERSION)
        before = self.acked.get(ack.key, NEVER)
        acked = self.acked[ack.key] = freshness.after_ack(before, version, ack.epoch, known)
        if before[1] != NO_EPOCH and mark_of(before[1]) != mark_of(acked[1]):
            self.left.setdefault(ack.key, {})[before[1]] = NO_VERSION
        self._send_ack(Ack(ack.key, None if version == NO_VERSION else version, ack.epoch))

    def _send_ack(self, ack: Ack) -> None:
        self.acks[ack.object] = ack
        self._flush_soon()

    def _online(self) -> None:
        if self.phase is ClientPhase.OFFLINE and self.now >= self.not_before:
            self.connect_at = self.now
        elif self.phase is ClientPhase.READY and self.now - self.last_sent > self.config.wake_after:
            self.beat_at = self.now

    def _stop(self) -> None:
        self._flush()
        self.phase = ClientPhase.STOPPED
        self._effects.append(CloseConnection())

    # The connection.

    def _connected(self) -> None:
        if self.phase is not ClientPhase.CONNECTING:
            return
        self.phase = ClientPhase.GREETING
        self._greet()

    def _greet(self) -> None:
        self.greet_at = None
        self.nonce = self.dice.bits().to_bytes(8)
        self.session = None
        app = None if self.token else self.config.app
        hello = Hello(PROTOCOL, self.nonce, app, self.token, self.config.application)
        self.counters["handshakes"] += 1
        self.rate.take(self.now)
        self.answer_by = self.now + self.config.answer_timeout
        self.last_sent = self.now
        self._effects.append(Transmit(hello))

    def _disconnected(self) -> None:
        self.phase = ClientPhase.OFFLINE
        self.session = None
        self.flush_at = self.beat_at = self.show_at = None
        self.retry_at = self.answer_by = self.greet_at = None
        self.to_sync = []
        self.counters["reconnects"] += 1
        delay = self.reconnects.next_delay(self.dice)
        wait = max(self.not_before - self.now, 0.0)
        self.connect_at = self.now + delay + self.dice.smear(wait) + wait * 0.2

    def _give_up_connection(self) -> None:
        self._effects.append(CloseConnection())
        self._disconnected()

    # What the server says, part by part in a fixed order.

    def _receive(self, message: ServerMessage) -> None:
        if self.phase not in (ClientPhase.GREETING, ClientPhase.READY):
            self.counters["ignored"] += 1
            return
        if message.not_before_ms is not None:
            self.not_before = self.now + message.not_before_ms / 1000
        if not self._is_ours(message):
            self.counters["ignored"] += 1
            return
        if message.config is not None:
            self._configure(message.config.heartbeat_ms)
        if message.grant is not None:
            self._granted(message.grant, message.session)
        if self.phase is ClientPhase.READY:
            self.answer_by = None
            if message.digest is not None:
                self._compare(message.digest)
            for notification in message.notifications:
                self._notified(notification)
            for status in message.statuses:
                self._status(status)
            if message.sync_request is not None:
                self._sync_requested(message.sync_request)
        if message.error is not None:
            self._failed(message.error)

    def _is_ours(self, message: ServerMessage) -> bool:
        grant = message.grant
        if grant is not None and grant.nonce is not None:
            return self.phase is ClientPhase.GREETING and grant.nonce == self.nonce
        if grant is not None and grant.client != self.client_id:
            return False
        if self.phase is ClientPhase.GREETING:
            return message.session is None and message.error is not None
        return message.session is None or message.session == self.session

    def _configure(self, heartbeat_ms: int) -> None:
        self.heartbeat = heartbeat_ms / 1000
        if self.phase is ClientPhase.READY:
            self.beat_at = self.now + self.dice.smear(self.heartbeat)

    def _granted(self, grant: Grant, session: int | None) -> None:
        if grant.client != self.client_id and self.client_id is not None:
            self._start_anew()
        self.client_id, self.token = grant.client, grant.token
        identity = Identity(self.config.app, grant.client, grant.token)
        self._effects.append(SaveIdentity(pack_identity(identity)))
        if grant.nonce is None:
            return
        self.phase = ClientPhase.READY
        self.session = session
        self.number = self.last_operation = 0
        self.nonce = b""
        self.unsent = dict.fromkeys(self.pending)
        for operation in self.pending.values():
            operation.number = 0
        self.reconnects.reset()
        self.retries.reset()
        self.beat_at = self.now + self.dice.smear(self.heartbeat)
        self.server_digest = None
        self.left.clear()
        if not self.reissued:
            self.reissued = True
            if self.resumed:
                self.settle_at = self.now + self.config.reissue_grace
            self._deliver(ReissueRegistrations())
        self._flush_soon()

    def _start_anew(self) -> None:
        """A new client id has no registrations, and acked nothing: everything is told again.

        What the application acked still counts: it is told something newer, or unknown.
        """
        self.client_id = self.token = None
        self.resumed = False
        self.acked = {key: (version, NO_EPOCH) for key, (version, _) in self.acked.items()}
        self.heard.clear()
        self.acks.clear()
        for key in self.wanted:
            self.pending.setdefault(key, Pending(True, None)).version = None
        for key in [key for key, operation in self.pending.items() if not operation.register]:
            self._settled(key)
            self._deliver(RegistrationStatus(key, False))

    def _compare(self, theirs: ServerDigest) -> None:
        self.server_digest = theirs
        if self._agree():
            self._confirm_agreed()
        elif theirs.number >= self.last_operation:
            # Show our digest, and the server will ask for what differs; but not to every message.
            self.show_at = max(self.now, self.settle_at, self.shown_at + self.config.backoff_first)

    def _agree(self) -> bool:
        """The server has what we want, after everything that we sent."""
        theirs = self.server_digest
        return (
            theirs is not None
            and theirs.number >= self.last_operation
            and (theirs.count, theirs.sum) == (self.digest.count, self.digest.sum)
        )

    def _confirm_agreed(self) -> None:
        """A declared version is for the server to hear, whatever the digests say."""
        for key in [key for key, pending in self.pending.items() if pending.version is None]:
            self._confirmed(key)

    def _confirmed(self, key: Key) -> None:
        operation = self._settled(key)
        if not operation.register:
            self.former.pop(key, None)
        self._deliver(RegistrationStatus(key, operation.register))

    def _settled(self, key: Key) -> Pending:
        self.unsent.pop(key, None)
        operation = self.pending.pop(key)
        if not self.pending:
            self.retry_at = None
            self.retries.reset()
        return operation

    def _notified(self, notification: Notification) -> None:
        key, epoch = notification.object, notification.epoch
        if key not in self.wanted:
            if self.now < self.settle_at:
                self.early[key] = notification
            return
        version = NO_VERSION if notification.version is None else notification.version
        known = (version, epoch)
        if key in self.left and epoch in self.left[key]:
            self.left[key][epoch] = version
            self.counters["delivered"] += 1
            self._deliver(NotifyUnknown(key, epoch))  # late, and no reason to go back to that mark
            return
        acked = self.acked.get(key, NEVER)
        told = due(acked, known)
        if told is Due.VERSION and mark_of(acked[1]) not in (NO_MARK, mark_of(epoch)):
            told = Due.UNKNOWN  # late, from before a reset that was acked; or from after another
        if told is Due.NOTHING and version != NO_VERSION:
            self.counters["repeated"] += 1
            self._send_ack(Ack(key, notification.version, epoch))
            return
        self.heard[key] = known
        self.counters["delivered"] += 1
        if told is Due.VERSION:
            self._deliver(Notify(key, version, epoch, notification.payload))
        else:
            self._deliver(NotifyUnknown(key, epoch))

    def _status(self, status: OperationStatus) -> None:
        operation = self.pending.get(status.object)
        if operation is None:
            newest = status.number >= self.last_operation
            if newest and status.code is not None and status.object in self.wanted:
                self._refused(status.object, status.retriable, status.code)  # in a sync
            return
        if not 0 < operation.number <= status.number:
            return  # about an operation that is over
        if status.code is not None:
            self._refused(status.object, status.retriable, status.code)
        elif status.registered != operation.register:
            self._refused(status.object, True, "contradicted")
        else:
            self._confirmed(status.object)

    def _refused(self, key: Key, transient: bool, code: str) -> None:
        if key in self.pending:
            self._settled(key)
        if key in self.wanted:
            self._drop(key)
        self._deliver(RegistrationFailure(key, transient, code))

    def _sync_requested(self, request: SyncRequest) -> None:
        """Remember which parts to send; what is in them is looked up when they leave."""
        if not request.sums:
            self.to_sync = [b""]
        else:
            ours = bucket_sums(map(hash_of, self.wanted))
            pairs = zip(ours, request.sums, strict=False)
            self.to_sync = [bytes([i]) for i, (mine, theirs) in enumerate(pairs) if mine != theirs]
        self._flush_soon()

    def _failed(self, error: ServerError) -> None:
        if error.code in (TokenRejected.code, UnknownClient.code):
            if error.code == UnknownClient.code:
                self._start_anew()
            self.token = None
            self._effects.append(SaveIdentity(None))
            if error.code == TokenRejected.code and self.phase is ClientPhase.GREETING:
                self.greet_at = max(self.now, self.not_before, self.rate.free_at())
                self.answer_by = None
                return
            self._give_up_connection()
            return
        self._deliver(Trouble(error.code, error.text))
        if error.code == Unauthorised.code:
            for key in list(self.wanted):
                self._refused(key, False, error.code)
        elif error.code == Fenced.code:
            self.not_before = self.now + self.dice.smear(self.config.fenced_wait)
            self._give_up_connection()

    # What is sent, and when.

    def _flush_soon(self) -> None:
        if self.phase is ClientPhase.READY and self.flush_at is None:
            self.flush_at = max(self.now + self.config.batch_delay, self.rate.free_at())

    def _tick(self) -> None:
        if self.connect_at is not None and self.now >= self.connect_at:
            self._connect()
        if self.greet_at is not None and self.now >= self.greet_at:
            self._greet()
        if self.answer_by is not None and self.now >= self.answer_by:
            self._give_up_connection()
        if self.retry_at is not None and self.now >= self.retry_at:
            self._retry()
        if self.show_at is not None and self.now >= self.show_at:
            self.show_at = None
            if not self._agree():
                self.shown_at = self.now
                self._beat()
                self._flush()
        if self.beat_at is not None and self.now >= self.beat_at:
            self._beat()
        if self.flush_at is not None and self.now >= self.flush_at:
            self._flush()

    def _connect(self) -> None:
        allowed_at = max(self.not_before, self.rate.free_at())
        if self.now < allowed_at:
            self.connect_at = allowed_at
            return
        self.connect_at = None
        self.phase = ClientPhase.CONNECTING
        self._effects.append(OpenConnection())
        self.answer_by = self.now + self.config.answer_timeout

    def _retry(self) -> None:
        self.retry_at = None
        self.counters["resent"] += len(self.pending)
        self.unsent = dict.fromkeys(self.pending)
        self._flush_soon()

    def _beat(self) -> None:
        self.beat_at = self.now + self.dice.smear(self.heartbeat)
        self.beat_due = True
        if self.now >= self.settle_at:
            self.early.clear()
        self._flush_soon()

    def _flush(self) -> None:
        """All that waits, in as few messages as hold it; a heartbeat is one with nothing in it."""
        self.flush_at = None
        if self.phase is not ClientPhase.READY:
            return
        allowed_at = max(self.not_before, self.rate.free_at())
        if self.now < allowed_at:
            self.flush_at = allowed_at
            return
        if self._agree():
            self._confirm_agreed()
        room = _MESSAGE_ROOM
        syncs = self._take_syncs(room)
        room -= sum(_size(sync.objects) for sync in syncs)
        operations = self._take_operations(room)
        room -= _size(operation.object for operation in operations)
        acks = self._take_acks(room)
        if operations or syncs or acks or self.beat_due:
            self._transmit(operations, acks, syncs)
        if self.acks or (self.to_sync and self.now >= self.settle_at):
            self._flush_soon()  # it did not fit
        elif self.unsent and not self._holding():
            self._flush_soon()

    def _transmit(self, operations: list[Operation], acks: list[Ack], syncs: list[Sync]) -> None:
        assert self.session is not None
        self.number += 1
        if operations or syncs:
            self.last_operation = self.number
        if self.pending and self.retry_at is None:
            delay = self.config.answer_timeout + self.retries.next_delay(self.dice)
            self.retry_at = self.now + self.dice.smear(delay)
        if operations or syncs or not acks:
            self.answer_by = self.answer_by or self.now + self.config.answer_timeout
        self.rate.take(self.now)
        self.beat_due = False
        self.last_sent = self.now
        # While the application restates its registrations, what is missing is not meant.
        settled = self.now >= self.settle_at or self._agree()
        digest = Digest(self.digest.count, self.digest.sum) if settled else None
        self._effects.append(
            Transmit(
                ClientMessage(PROTOCOL, self.session, self.number, digest, operations, acks, syncs)
            )
        )

    def _holding(self) -> bool:
        """Restated registrations wait for the server's digest: it may have them."""
        return self.server_digest is None and self.now < self.settle_at

    def _take_operations(self, room: int) -> list[Operation]:
        """Registrations that the server may have are first compared: see the head of this file."""
        taken: list[Operation] = []
        holding = self._holding()
        by_digest = self.now < self.settle_at and len(self.unsent) > _MANY
        if by_digest:
            self.show_at = self.settle_at
        for key in list(self.unsent):
            pending = self.pending[key]
            if pending.version is None and pending.register:
                if holding:
                    continue
                if by_digest:
                    del self.unsent[key]
                    continue
            if room <= 0:
                break
            del self.unsent[key]
            pending.number = self.number + 1
            taken.append(Operation(key, pending.register, pending.version))
            room -= _size((key,))
        if holding and self.unsent:
            self.flush_at = self.settle_at
        return taken

    def _take_acks(self, room: int) -> list[Ack]:
        taken: list[Ack] = []
        for ack in list(self.acks.values()):
            if room <= 0:
                break
            del self.acks[ack.object]
            taken.append(ack)
            room -= _size((ack.object,))
        return taken

    def _take_syncs(self, room: int) -> list[Sync]:
        """As many of the parts asked for as fit; one that never would is cut by longer prefixes."""
        syncs: list[Sync] = []
        if self.to_sync and self.now < self.settle_at:
            self.flush_at = self.settle_at
            return syncs
        held = self._keys_under(self.to_sync)
        while self.to_sync and room > 0:
            prefix = self.to_sync.pop()
            size = _size(held[prefix])
            if size > _MESSAGE_ROOM:
                longer = [prefix + bytes([byte]) for byte in range(BUCKETS)]
                self.to_sync.extend(longer)
                held.update(self._keys_under(longer))
            elif syncs and size > room:
                self.to_sync.append(prefix)
                return syncs
            else:
                syncs.append(Sync(prefix, held[prefix]))
                room -= size + _PART_OVERHEAD
        return syncs

    def _keys_under(self, prefixes: list[bytes]) -> dict[bytes, list[Key]]:
        held: dict[bytes, list[Key]] = {prefix: [] for prefix in prefixes}
        lengths = {len(prefix) for prefix in prefixes}
        for key in self.wanted if prefixes else ():
            hashed = hash_of(key).to_bytes(8)
            for length in lengths:
                if hashed[:length] in held:
                    held[hashed[:length]].append(key)
        return held

    def _deliver(self, event: ClientEvent) -> None:
        self._effects.append(Deliver(event))


def _size(keys: Iterable[Key]) -> int:
    return sum(len(key.encode()) + _PART_OVERHEAD for key in keys)
