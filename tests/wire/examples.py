"""Named messages: at least one for every type, and for every part a message may have.

They are the vectors that clients in other languages are tested against, and what the fuzzer starts
from. A name never changes its meaning: add, do not edit.
"""

from typing import Final

from roskva.model import MAX_VERSION, Update, object_epoch
from roskva.wire import links
from roskva.wire.links import FromShard, ToShard
from roskva.wire.messages import (
    MAX_SUM,
    Ack,
    ClientMessage,
    Digest,
    FromClient,
    Grant,
    Hello,
    Notification,
    Operation,
    OperationStatus,
    ServerDigest,
    ServerError,
    ServerMessage,
    SessionConfig,
    Sync,
    SyncRequest,
)

NONCE: Final = bytes.fromhex("0011223344556677")
LONG_NONCE: Final = bytes(range(16))
CLIENT_ID: Final = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
TOKEN: Final = bytes(range(1, 70))
EPOCH: Final = object_epoch(0xABCDEF0123, 0)
RESET_EPOCH: Final = object_epoch(0xABCDEF0123, 0xFFFFF)
SESSION: Final = 7 << 32 | 1
LONGEST_KEY: Final = f"{'a' * 63}/{'n' * 255}"
WEEK_MS: Final = 7 * 24 * 3600 * 1000

FROM_CLIENT: Final[dict[str, FromClient]] = {
    "hello of a new client": Hello("1.0", NONCE, "contacts"),
    "hello of a known client": Hello("1.0", NONCE, token=TOKEN),
    "hello with an application id": Hello("1.0", NONCE, "contacts", application="phone-böb"),
    "hello of another minor version": Hello("1.7", NONCE, "contacts"),
    "hello at its limits": Hello("1.00000000000000", LONG_NONCE, "a" * 63, None, "x" * 64),
    "hello with the longest token": Hello("1.0", LONG_NONCE, token=bytes(1024)),
    "hello with a credential": Hello("1.0", NONCE, "contacts", credential="eyJ.e30.c2ln"),
    "hello with the longest credential": Hello("1.0", NONCE, "contacts", credential="c" * 4096),
    "empty envelope": ClientMessage("1.0", 0, 0),
    "heartbeat": ClientMessage("1.0", SESSION, 3, Digest(0, 0)),
    "heartbeat at its limits": ClientMessage(
        "1.0", MAX_VERSION, MAX_VERSION, Digest(MAX_VERSION, MAX_SUM)
    ),
    "register": ClientMessage("1.0", SESSION, 1, operations=[Operation("contacts/alice")]),
    "register with a declared version": ClientMessage(
        "1.0", SESSION, 1, operations=[Operation("contacts/alice", True, 41)]
    ),
    "register with version 0, which is a version": ClientMessage(
        "1.0", SESSION, 1, operations=[Operation("contacts/alice", True, 0)]
    ),
    "register with the highest version": ClientMessage(
        "1.0", SESSION, 1, operations=[Operation("contacts/alice", True, MAX_VERSION)]
    ),
    "register with a version that a browser's numbers do not have": ClientMessage(
        "1.0", SESSION, 1, operations=[Operation("contacts/alice", True, 2**53 + 1)]
    ),
    "register with the longest key": ClientMessage(
        "1.0", SESSION, 1, operations=[Operation(LONGEST_KEY)]
    ),
    "register names beyond ASCII": ClientMessage(
        "1.0",
        SESSION,
        1,
        operations=[
            Operation("contacts/böb/phone"),
            Operation("contacts/日本 語"),
            Operation("contacts/🙂"),
            Operation('contacts/"quoted"\\'),
        ],
    ),
    "unregister": ClientMessage("1.0", SESSION, 2, operations=[Operation("contacts/bob", False)]),
    "ack of a version": ClientMessage("1.0", SESSION, 4, acks=[Ack("contacts/alice", 42, EPOCH)]),
    "ack of unknown": ClientMessage("1.0", SESSION, 4, acks=[Ack("contacts/alice", None, EPOCH)]),
    "ack after a reset": ClientMessage(
        "1.0", SESSION, 4, acks=[Ack("contacts/alice", None, RESET_EPOCH)]
    ),
    "sync of everything": ClientMessage(
        "1.0", SESSION, 5, syncs=[Sync(b"", ["contacts/alice", "contacts/bob"])]
    ),
    "sync of nothing": ClientMessage("1.0", SESSION, 5, syncs=[Sync(b"", [])]),
    "sync by bucket": ClientMessage(
        "1.0",
        SESSION,
        5,
        syncs=[Sync(b"\x00", []), Sync(b"\xdc", ["contacts/alice"])],
    ),
    "sync by the longest prefix": ClientMessage(
        "1.0", SESSION, 5, syncs=[Sync(b"\xff" * 8, ["contacts/alice"])]
    ),
    "everything together": ClientMessage(
        "1.0",
        SESSION,
        6,
        Digest(2, 0xFEDCBA9876543210),
        [Operation("contacts/alice", True, 41), Operation("contacts/bob", False)],
        [Ack("contacts/carol", 7, EPOCH), Ack("contacts/dan", None, RESET_EPOCH)],
        [Sync(b"\x07", ["contacts/erin"])],
    ),
}

FROM_SERVER: Final[dict[str, ServerMessage]] = {
    "empty envelope": ServerMessage("1.0"),
    "grant": ServerMessage(
        "1.0",
        SESSION,
        config=SessionConfig(1_200_000),
        grant=Grant(CLIENT_ID, TOKEN, NONCE),
        digest=ServerDigest(0, 0, 0),
    ),
    "a newer token for the session": ServerMessage("1.0", SESSION, grant=Grant(CLIENT_ID, TOKEN)),
    "config": ServerMessage("1.0", SESSION, config=SessionConfig(1)),
    "config at its limit": ServerMessage("1.0", SESSION, config=SessionConfig(WEEK_MS)),
    "digest": ServerMessage("1.0", SESSION, digest=ServerDigest(2, 0xFEDCBA9876543210, 6)),
    "digest at its limits": ServerMessage(
        "1.0", MAX_VERSION, digest=ServerDigest(MAX_VERSION, MAX_SUM, MAX_VERSION)
    ),
    "notification to many": ServerMessage(
        "1.0", notifications=[Notification("contacts/alice", 42, EPOCH)]
    ),
    "notification of unknown": ServerMessage(
        "1.0", notifications=[Notification("contacts/alice", None, EPOCH)]
    ),
    "notification of version 0, which is a version": ServerMessage(
        "1.0", notifications=[Notification("contacts/alice", 0, 1)]
    ),
    "notification at its limits": ServerMessage(
        "1.0", notifications=[Notification(LONGEST_KEY, MAX_VERSION, MAX_VERSION)]
    ),
    "notification with a payload": ServerMessage(
        "1.0", notifications=[Notification("contacts/alice", 42, EPOCH, b"\x00payload\xff")]
    ),
    "notification with an empty payload": ServerMessage(
        "1.0", notifications=[Notification("contacts/alice", 42, EPOCH, b"")]
    ),
    "notification with a payload whose base64 spells null": ServerMessage(
        "1.0", notifications=[Notification("contacts/alice", 42, EPOCH, b"\x9e\xe9\x65")]
    ),
    "notification after a reset": ServerMessage(
        "1.0", SESSION, notifications=[Notification("contacts/alice", None, RESET_EPOCH)]
    ),
    "registered": ServerMessage(
        "1.0", SESSION, statuses=[OperationStatus("contacts/alice", True, 1)]
    ),
    "unregistered": ServerMessage(
        "1.0", SESSION, statuses=[OperationStatus("contacts/bob", False, 2)]
    ),
    "registration refused": ServerMessage(
        "1.0", SESSION, statuses=[OperationStatus("other/alice", False, 1, "unauthorised")]
    ),
    "registration refused for now": ServerMessage(
        "1.0", SESSION, statuses=[OperationStatus("contacts/alice", False, 1, "overloaded", True)]
    ),
    "sync request for everything": ServerMessage("1.0", SESSION, sync_request=SyncRequest()),
    "sync request by bucket": ServerMessage(
        "1.0", SESSION, sync_request=SyncRequest([*range(255), MAX_SUM])
    ),
    "not before": ServerMessage(
        "1.0", not_before_ms=1500, error=ServerError("overloaded", "too many at once")
    ),
    "not before at its limit": ServerMessage("1.0", not_before_ms=WEEK_MS),
    "token rejected": ServerMessage(
        "1.0", error=ServerError("token_rejected", "shake hands again")
    ),
    "fenced": ServerMessage("1.0", SESSION, error=ServerError("fenced")),
    "unknown client": ServerMessage("1.0", SESSION, error=ServerError("unknown_client")),
    "everything together": ServerMessage(
        "1.0",
        SESSION,
        250,
        SessionConfig(60_000),
        Grant(CLIENT_ID, TOKEN, LONG_NONCE),
        ServerDigest(3, 12345, 6),
        [Notification("contacts/alice", 42, EPOCH, b"x"), Notification("contacts/bob", None, 1)],
        [
            OperationStatus("contacts/alice", True, 6),
            OperationStatus("contacts/eve", False, 6, "limit_exceeded"),
        ],
        SyncRequest(),
        ServerError("unavailable", "a shard is away"),
    ),
}

TO_SHARD: Final[dict[str, ToShard]] = {
    "link hello": links.LinkHello("1.0", "registrar-1", 2, 4),
    "publisher hello": links.PublisherHello(2),
    "link hello with another kind of digest": links.LinkHello(
        "1.0", "registrar-1", 2, 4, "other-digest"
    ),
    "interest": links.Interest(["contacts/alice", "contacts/bob"]),
    "interest that ends": links.Interest(drop=["contacts/bob"]),
    "interest that starts anew": links.Interest(replace=True),
    "ping of no interest": links.Ping(0, 0),
    "ping": links.Ping(2, MAX_SUM),
    "open session": links.OpenSession(17, CLIENT_ID),
    "write a row that may have to be created": links.WriteRow(
        18,
        CLIENT_ID,
        SESSION,
        [links.Registered("contacts/alice", 41, EPOCH), links.Registered("contacts/bob", -1, 0)],
        application="phone-1",
    ),
    "write a row that loses a registration": links.WriteRow(
        19, CLIENT_ID, SESSION, drop=["contacts/bob"]
    ),
    "write a row that counts for a principal": links.WriteRow(
        26,
        CLIENT_ID,
        SESSION,
        [links.Registered("contacts/alice", -1, 0)],
        application="phone-1",
        account=bytes(range(8)),
        held=1,
    ),
    "write acks, unanswered": links.WriteRows(
        [
            links.WriteRow(
                0,
                CLIENT_ID,
                SESSION,
                [links.Registered("contacts/alice", MAX_VERSION, RESET_EPOCH)],
            )
        ]
    ),
    "open session, forgetting the row": links.OpenSession(20, CLIENT_ID, False, False),
    "close session": links.CloseSession(CLIENT_ID, SESSION),
    "open session that wants to be kept for an hour": links.OpenSession(
        25, CLIENT_ID, expiry_s=3600
    ),
    "write nothing: the session goes on": links.WriteRow(0, CLIENT_ID, SESSION, expiry_s=3600),
    "close session that wants to be kept for a minute": links.CloseSession(CLIENT_ID, SESSION, 60),
    "publish": links.PublishUpdates(
        21,
        [
            Update("contacts/alice", 43, "phone-1", b"payload", 1_700_000_000_000_000),
            Update("contacts/bob", -1),
            Update("contacts/carol", 7, reset=True),
        ],
    ),
    "offer nothing: where do you stand?": links.Offer(22, 3),
    "say when something is missing": links.AwaitGap(26, 3, 99, 8),
    "offer": links.Offer(
        23, 3, 99, 5, 8, [(5, Update("contacts/alice", 43)), (8, Update("a/b", 1))]
    ),
    "forget clients that have been away": links.Forget(24, 3, [(CLIENT_ID, SESSION)]),
    "ask": links.Ask("status"),
    "ask for a checkpoint": links.Ask("checkpoint", 3, "backup"),
    "ask what objects stand at": links.Ask("stands", 3, objects=["contacts/alice"]),
    "ask for the reset of an app": links.Ask("reset", 3, "contacts", 16524),
    "reset an app": links.ResetApp(25, "contacts", 16524),
}

FROM_SHARD: Final[dict[str, FromShard]] = {
    "welcome": links.Welcome(2),
    "welcome of an owner with a number": links.Welcome(2, 1_790_000_000),
    "link refused": links.LinkRefused("wrong_link", "this shard is 2 of 4"),
    "versions": links.Versions(
        [
            links.CurrentVersion("contacts/alice", 42, EPOCH),
            links.CurrentVersion("contacts/bob", -1, RESET_EPOCH),
            links.CurrentVersion("contacts/carol", MAX_VERSION, EPOCH, b"\x00payload\xff"),
        ]
    ),
    "no versions": links.Versions([]),
    "pushes": links.Pushes(
        [
            links.Push("contacts/bob", 43, EPOCH),
            links.Push(
                "contacts/alice",
                43,
                EPOCH,
                b"payload",
                previous=42,
                source="phone-1",
                published_at=1_780_000_000_000_000,
            ),
        ]
    ),
    "pong": links.Pong(True),
    "pong that disagrees": links.Pong(False),
    "session opened, no row": links.SessionOpened(17, SESSION),
    "session opened, part of a row": links.SessionOpened(
        17, SESSION, True, [links.Registered("contacts/alice", 41, EPOCH)], more=True
    ),
    "session opened, end of a row": links.SessionOpened(
        17, SESSION, True, [links.Registered("contacts/bob", -1, 0)]
    ),
    "row written": links.RowWritten(18),
    "row refused": links.RowRefused(CLIENT_ID, SESSION, "fenced"),
    "superseded": links.Superseded(CLIENT_ID, SESSION),
    "published": links.UpdatesPublished(21, [43, MAX_VERSION, 7]),
    "not published": links.NotPublished(21, "storage_unavailable", "no space left"),
    "taken": links.Taken(23, 99, 8),
    "something is missing": links.Gap(26, 3, 8, 11),
    "forgotten": links.Forgotten(24, 1),
    "told": links.ProcessAnswer(b"{}"),
}
