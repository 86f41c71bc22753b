"""The settings: one frozen struct per part of a node, and of what runs beside it.

What stands below a setting is what `roskva config init` and docs/configuration.md say of it. A
struct checks how its own settings go together, and `Config` how those of different sections do;
ranges and types are checked where settings come in (`sources.py`), who may do what in `access.py`.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta

from roskva.core.expiry import DAY_S, Keep
from roskva.core.shares import MaxShare
from roskva.errors import BadConfig, BadName
from roskva.model import MAX_PAYLOAD_BYTES, PROBE_APP, PROBE_SLOW_APP, check_app
from roskva.wire.messages import MAX_FRAME_BYTES

Port = Annotated[int, Meta(ge=0, le=65535)]
Word = Annotated[str, Meta(min_length=1)]
Moment = Annotated[datetime, Meta(tz=True)]

Channel = Literal["websocket", "mqtt", "events", "http", "own"]
CHANNELS: Final[tuple[Channel, ...]] = get_args(Channel)

Days = Annotated[float, Meta(ge=0.01, le=36_600)]

Milliseconds = Annotated[int, Meta(ge=1, le=600_000)]
Share = Annotated[float, Meta(ge=0.0, le=0.99999)]

OFF: Final = "off"
"""How None is written in a file, a variable or a flag, where it is not the default."""

# Of the files a process may open, those that it needs for itself.
_FILES_OF_NODE: Final = 128
"""Listeners, links, questions to apps' hooks, backups."""
_FILES_OF_SHARD: Final = 32
"""At least; of these"""
_FILES_NOT_OF_STORE: Final = 12
"""are of its feed and its log."""
_MOST_FILES_OF_STORE: Final = 256

_ENVELOPE_BYTES: Final = 1024
"""What surrounds a payload in a frame or in the body of a publish, generously."""

_ORIGIN: Final = re.compile(r"https?://[^/\s]+")
_HOST: Final = re.compile(r"(\*\.)?[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")
_MIB: Final = 1 << 20
_TIB: Final = 1 << 40

Processes = Annotated[int, Meta(ge=0, le=256)]
Bytes = Annotated[int, Meta(ge=_MIB, le=1024 * _TIB)]


class Conflict(BadConfig):
    """Settings that do not go together; `keys` are the ones to look at, in this order."""

    def __init__(self, sentence: str, *keys: str) -> None:
        super().__init__(sentence)
        self.keys = keys


def check_networks(networks: Iterable[str]) -> None:
    for text in networks:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise Conflict(
                f"behind_proxy has {text!r}, which is no address or network: write 10.1.2.3 or "
                "10.0.0.0/8",
                "node.behind_proxy",
            ) from None


def check_origins(origins: Iterable[str]) -> None:
    for text in origins:
        if text != "*" and not _ORIGIN.fullmatch(text):
            raise Conflict(
                f"allowed_origins has {text!r}, which is no origin: write https://app.example.com, "
                "without a path, or *",
                "node.allowed_origins",
            )


def check_hosts(hosts: Iterable[str]) -> None:
    for text in hosts:
        if text != "*" and not _HOST.fullmatch(text):
            raise Conflict(
                f"allowed_hosts has {text!r}, which is no name: write node.example.com without "
                "scheme or port, *.example.com, or *; addresses are always allowed",
                "node.allowed_hosts",
            )


BatchMs = Annotated[int, Meta(ge=0, le=60_000)] | Literal["auto"]


class AppConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How apps behave. What the table of an app does not set is taken from `[defaults]`."""

    versions: Literal["app", "assigned"] = "app"
    """Who numbers the versions: the publisher, or Roskva. With assigned versions an MQTT message is
    a payload, and otherwise the version in digits."""
    max_payload_bytes: Annotated[int, Meta(ge=0, le=16 * MAX_PAYLOAD_BYTES)] = MAX_PAYLOAD_BYTES
    """The largest payload of an update."""
    fast_path: bool = True
    """Tell clients as soon as an update is durable. Without it the bridge brings it, later; or, if
    there is none, the shard reads its feed by itself."""
    batch_ms: BatchMs = 0
    """So long a shard keeps a new version back, to tell registrars the newest one only: less work
    for an object that changes all the time, and a delay for each. `auto`: not at all while the
    shard keeps up, and up to 100 ms when it does not."""
    registrar_batch_ms: BatchMs = 0
    """The same in each registrar, before it tells clients: `auto` follows whether it keeps up."""
    channels: tuple[Channel, ...] = CHANNELS
    """Over which the app may be used: WebSocket, MQTT, streams of events and long polls, requests
    over HTTP (publish, reset, read), and the node's own channel."""
    keep_clients_days: Days | None = 30
    """Clients that were away for so long are forgotten: who comes back later is told everything
    once. A client of several apps is kept for the longest of them; an MQTT 5 session goes earlier
    if it says so itself."""
    keep_objects_days: Days | None = None
    """Objects that were not updated for so long, and that nobody online is registered for, are
    dropped: who registers later is told that the version is unknown. Not set: never."""
    publish_keys: list[str] = []
    """Who shows one of these may publish and reset any object of the app: `sha256:` and the hash of
    the key in hex, `env:` and a variable, or `file:` and a path. See docs/security.md."""
    jwks: str | None = None
    """The public keys that this app's JWTs are signed with: a file, or an https URL that is asked
    again from time to time."""
    audience: Word | None = None
    """The `aud` of this app's JWTs. Not set: the app's name."""
    issuer: Word | None = None
    """The `iss` that JWTs must have. Not set: any."""
    register: list[str] = []
    """Names that whoever has a JWT may register for and read: `*` is anything up to the next `/`,
    `**` at the end anything at all, `{principal}` the `sub` of the JWT."""
    publish: list[str] = []
    """Names that whoever has a JWT may publish and reset; likewise."""
    hook: str | None = None
    """An https URL of the app's backend that is asked, too, about every registration that
    `register` allows."""
    hook_timeout_ms: Annotated[int, Meta(ge=10, le=10_000)] = 2000
    """After this the answer of the hook is no."""
    hook_cache_seconds: Annotated[int, Meta(ge=0, le=300)] = 10
    """For so long a yes of the hook is not asked for again."""
    authorise_at_notify: bool = False
    """Ask again before each notification. It costs time for every client that is told; without it a
    registration stays good until it is given up."""
    authorise_at_publish: bool = False
    """Ask the hook, too, about every update and reset that `publish` allows whoever has a JWT. Who
    has a publish key is not asked about."""
    generation: Moment | None = None
    """JWTs and tokens of the app's clients that were issued before this moment are void."""
    revoked: dict[str, Moment] | None = None
    """The same for single principals: `alice = 2026-01-31T12:00:00Z`."""


class Slo(NamedTuple):
    target_ms: int
    share: float


class ProbeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The prober: real clients over each channel that measure what users would see."""

    enabled: bool = True
    """Run it with the node."""
    every_seconds: Annotated[float, Meta(ge=0.5, le=3600.0)] = 5.0
    """From one round to the next."""
    key: Word | None = None
    """On a node with keys, what `roskva probe --key` has to show from elsewhere: `env:NAME` or
    `file:PATH`. Not set: only the node's own prober gets in."""


class SloConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the node is held to, for each that the prober measures: the time it may take, and the
    share of rounds that have to keep it, over a day. What may miss it is the error budget."""

    register_ms: Milliseconds = 500
    """To connect over WebSocket and register."""
    register_share: Share = 0.99
    """Of the rounds."""
    publish_ms: Milliseconds = 250
    """Until a publish is acknowledged, and thus durable."""
    publish_share: Share = 0.99
    """Of the rounds."""
    notify_websocket_ms: Milliseconds = 500
    """From publishing to being told, over WebSocket."""
    notify_websocket_share: Share = 0.99
    """Of the rounds."""
    notify_events_ms: Milliseconds = 500
    """The same by a stream of events."""
    notify_events_share: Share = 0.99
    """Of the rounds."""
    notify_mqtt_ms: Milliseconds = 500
    """The same over MQTT."""
    notify_mqtt_share: Share = 0.99
    """Of the rounds."""
    notify_pipeline_ms: Milliseconds = 5000
    """The same without the fast path: it waits for a batch of the pipeline."""
    notify_pipeline_share: Share = 0.95
    """Of the rounds."""
    reconnect_ms: Milliseconds = 1000
    """To come back and be told what was missed."""
    reconnect_share: Share = 0.99
    """Of the rounds."""

    def of(self, sli: str) -> Slo:
        key = sli.replace("-", "_")
        return Slo(getattr(self, f"{key}_ms"), getattr(self, f"{key}_share"))


SLIS: Final = tuple(
    field.removesuffix("_ms").replace("_", "-")
    for field in SloConfig.__struct_fields__
    if field.endswith("_ms")
)
"""What is measured."""


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """TLS 1.2 and 1.3, on every port or on none. The files are read again on SIGHUP."""

    certificate: Path | None = None
    """The node's certificate and those between it and its CA, as PEM."""
    key: Path | None = None
    """The private key of the certificate, as PEM, unencrypted."""
    client_ca: Path | None = None
    """The CAs, as PEM, whose client certificates are believed: the common name of one that is shown
    is who the client is."""
    require_client_certificate: bool = False
    """Clients without a certificate of client_ca cannot connect."""

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            given, missing = ("key", "certificate") if self.key else ("certificate", "key")
            raise Conflict(f"[tls] has a {given} and no {missing}: set both", f"tls.{given}")
        if self.client_ca is not None and self.certificate is None:
            raise Conflict(
                "client certificates need TLS: set certificate and key under [tls] too",
                "tls.client_ca",
            )
        if self.require_client_certificate and self.client_ca is None:
            raise Conflict(
                "client certificates are required, and none is believed: set client_ca to the "
                "certificate of their CA",
                "tls.require_client_certificate",
            )

    @property
    def enabled(self) -> bool:
        return self.certificate is not None


class AdminConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who may see what the node says of itself: `/v1/status`, and the console with the API behind
    it. Without port and key, that is everybody on a node on loopback without keys, and otherwise
    nobody."""

    port: Port | None = None
    """A port of its own. 0 takes any free one. Not set: none."""
    host: Word = "127.0.0.1"
    """The address that port listens on."""
    key: Word | None = None
    """Where the key is that has to be sent as `Authorization: Bearer …`, on either port: `env:NAME`
    or `file:PATH`. Read again on SIGHUP."""


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where this node listens, where its data is, and how many processes it uses."""

    host: Word = "127.0.0.1"
    """The address to listen on, for every channel."""
    port: Port = 7600
    """HTTP and WebSocket listen here. 0 takes any free port."""
    mqtt_port: Port | None = 1883
    """MQTT listens here. 0 takes any free port."""
    data: Path = Path("roskva-data")
    """The data directory, on a local disk. Created if it is not there. A relative path counts from
    where the node is started."""
    shards: Annotated[int, Meta(ge=1, le=1024)] | None = None
    """How many slices a new data directory is cut into (4 if this is not set). It can never change:
    a directory that has another number is refused."""
    registrars: Processes = 0
    """Processes that serve clients and share the ports. With 0, here and in matchers, one process
    does everything."""
    matchers: Processes = 0
    """Processes that share the shards between them. May change from one start to the next."""
    behind_proxy: tuple[str, ...] = ()
    """Addresses or networks (`10.0.0.0/8`) of the proxies that end TLS in front of this node. Only
    they are believed whom they speak for (X-Forwarded-For and X-Forwarded-Proto)."""
    channel: Word | None = None
    """A channel of your own, as `module:function`, beside the others: see docs/client.md. The
    module has to be installed, or on PYTHONPATH."""
    allowed_origins: tuple[str, ...] = ()
    """Web pages of other origins that may use this node from a browser: `https://app.example.com`,
    or `*` for all."""
    allowed_hosts: tuple[str, ...] = ()
    """Names that this node may be called by, beside those in its certificate, localhost and every
    address: `node.example.com`, `*.example.com`, or `*` for any. See docs/security.md."""
    log: Literal["text", "json"] = "text"
    """Log lines for people, or one JSON object per line."""
    trace_one_in: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = 100
    """Follow one in so many updates from publishing to their acks: for the stages on the console
    and in the metrics, and for `roskva job latency`."""
    token_hours: Annotated[int, Meta(ge=1, le=24 * 366)] = 90 * 24
    """How long a client may stay away and come back by the token that it was granted, without
    another JWT."""

    @property
    def several(self) -> bool:
        """Processes, instead of one that does everything."""
        return bool(self.registrars or self.matchers)

    def __post_init__(self) -> None:
        check_networks(self.behind_proxy)
        check_origins(self.allowed_origins)
        check_hosts(self.allowed_hosts)
        if self.mqtt_port and self.mqtt_port == self.port:
            raise Conflict(
                f"port and mqtt_port are both {self.port}: give one of them another number",
                "node.mqtt_port",
                "node.port",
            )
        if self.shards is not None and self.matchers > self.shards:
            raise Conflict(
                f"{self.matchers} matchers cannot share {self.shards} shards: set matchers to "
                f"{self.shards} or less",
                "node.matchers",
            )


class FeedConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The feed. Sizes are per shard."""

    retention_hours: Annotated[int, Meta(ge=1, le=24 * 3660)] | None = 7 * 24
    """Updates older than this are dropped, but never what a reader still needs."""
    retention_share: Share | None = 0.25
    """Of the disk, for the feeds of all shards together: the oldest updates beyond it are dropped,
    but never what a reader still needs. One file per shard is kept whatever it is."""
    retention_bytes: Bytes | None = None
    """The same for each shard as a size, if that is less. Not set: no limit but the share."""
    last_resort_bytes: Bytes | None = None
    """Beyond this size the oldest updates are dropped whoever needs them; the shard may then begin
    a new epoch. Not set: never."""
    segment_bytes: Annotated[int, Meta(ge=_MIB, le=4096 * _MIB)] = 16 * _MIB
    """The size of a file of the feed."""
    commit_wait_ms: Annotated[float, Meta(ge=0, le=1000)] = 2.0
    """Under load a publish waits so long for others, to share one sync of the disk with them."""

    def __post_init__(self) -> None:
        for key in ("retention_bytes", "last_resort_bytes"):
            size = getattr(self, key)
            if size is not None and size < self.segment_bytes:
                raise Conflict(
                    f"{key} is below segment_bytes, and whole segments are dropped: set it to "
                    f"{self.segment_bytes} or more, or segment_bytes to {size} or less",
                    f"feed.{key}",
                )
        if self.last_resort_bytes is not None and self.last_resort_bytes < (
            self.retention_bytes or 0
        ):
            raise Conflict(
                "last_resort_bytes is below retention_bytes, so the last resort would come first: "
                f"set it to {self.retention_bytes} or more",
                "feed.last_resort_bytes",
            )

    def max_bytes(self, disk_bytes: int, shards: int) -> int | None:
        """Of the feed of one of so many shards, on a disk of this size."""
        found = [] if self.retention_bytes is None else [self.retention_bytes]
        if self.retention_share is not None:
            share = int(disk_bytes * self.retention_share) // shards
            found.append(max(share, self.segment_bytes))
        if found and self.last_resort_bytes is not None:
            found.append(self.last_resort_bytes)
        return min(found, default=None)


def files_of_store(open_files: int, shards: int) -> int:
    """How many a shard's store may hold open: the process has a quarter for itself."""
    room = (open_files // 4 - _FILES_OF_NODE) // shards
    return min(max(room, _FILES_OF_SHARD) - _FILES_NOT_OF_STORE, _MOST_FILES_OF_STORE)


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What one client or one request may take of a node."""

    max_frame_bytes: Annotated[int, Meta(ge=4096, le=MAX_FRAME_BYTES)] = MAX_FRAME_BYTES
    """A message from a client, on any channel."""
    max_registrations: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    """Objects that one client may register for."""
    max_publish_updates: Annotated[int, Meta(ge=1, le=10_000)] = 1000
    """Updates in one publish request."""
    max_body_bytes: Annotated[int, Meta(ge=4096, le=64 * _MIB)] = 4 * _MIB
    """The body of one HTTP request."""
    handshakes_per_second: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    """Clients beyond this, per process that serves them, are told to come back later."""
    handshake_seconds: Annotated[float, Meta(ge=0.1, le=60.0)] = 5.0
    """For each step until a client is known: the TLS handshake, the head of an HTTP request, a
    WebSocket's hello, MQTT's CONNECT."""
    body_seconds: Annotated[float, Meta(ge=0.1, le=600.0)] = 30.0
    """For the body of an HTTP request to arrive."""
    write_seconds: Annotated[float, Meta(ge=0.1, le=600.0)] = 30.0
    """Who takes nothing of what was written to it for so long is closed: answers and streams over
    HTTP, and on WebSocket and MQTT the answers to its own requests. A client that is slow to read
    notifications is none of these."""
    publish_patience_s: Annotated[float, Meta(ge=0.0, le=60.0)] = 5.0
    """Publishes for a process that is away wait so many seconds for another to take its place. 0:
    they are refused at once. Publishers wait 10 seconds for an answer."""
    held_updates: Annotated[int, Meta(ge=1, le=10_000_000)] = 100_000
    """Updates that wait so, per process that serves clients. More are refused for now."""
    held_bytes: Annotated[int, Meta(ge=_MIB, le=64 * _MIB)] = 32 * _MIB
    """Their size; likewise."""
    publishes_per_second: Annotated[int, Meta(ge=1, le=10_000_000)] = 10_000
    """Updates that may be published with one publish key, per process that serves clients; a
    second's worth, or one request, at once."""
    client_publishes_per_second: Annotated[int, Meta(ge=1, le=10_000_000)] = 100
    """Updates of one principal with a JWT; likewise."""
    keyless_publish_bytes_per_second: Annotated[int, Meta(ge=1024, le=_TIB)] | None = 4 * _MIB
    """Bytes that one address may publish where there are no keys, per process that serves clients;
    four seconds' worth at once. `off`: as fast as the disk takes them."""
    min_free_disk_bytes: Annotated[int, Meta(ge=0, le=1024 * _TIB)] | None = None
    """If the disk with the data has less free than this, nothing is published until it has more
    again; clients are served. Not set: a twentieth of the disk, 1 GiB at most."""
    events_per_second: Annotated[int, Meta(ge=100, le=10_000_000)] = 10_000
    """Events to the streams and polls of one principal, all together, per process that serves
    clients; of nobody in particular, to those of one address."""
    max_sessions_per_principal: Annotated[int, Meta(ge=1, le=10_000_000)] = 100
    """Sessions and streams of one principal, per process that serves clients."""
    max_clients_per_principal: Annotated[int, Meta(ge=1, le=100_000_000)] = 1000
    """Clients of one principal that are stored, online or not, per shard; of nobody in particular,
    those of one address, if addresses are counted there (as for max_connections_per_address)."""
    max_registrations_per_principal: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 100_000
    """What they are all registered for; likewise."""
    max_connections_per_address: Annotated[int, Meta(ge=1, le=10_000_000)] = 1000
    """Per process that serves clients. This machine and the proxies of behind_proxy may have any
    number."""
    max_lag_ms: Annotated[int, Meta(ge=10, le=60_000)] = 500
    """If everything waits longer than this, clients that connect are told to come back later, and
    publishers too, until it is well again."""
    max_memory_bytes: Bytes | None = None
    """If a process uses more than this, likewise. Not set: nine tenths of what its container may
    have, if it is in one."""
    max_connections: Annotated[int, Meta(ge=1, le=10_000_000)] | None = None
    """Connections per process that serves clients, whatever they are for, from the moment they are
    accepted. Not set, or set too high: the open-file limit less what the process needs itself: a
    quarter of it, and more for many shards."""

    @property
    def max_share(self) -> MaxShare:
        return MaxShare(self.max_clients_per_principal, self.max_registrations_per_principal)

    def connections(self, open_files: int, shards: int) -> int:
        """How many connections a process may hold that may open so many files."""
        own = _FILES_OF_NODE + shards * (files_of_store(open_files, shards) + _FILES_NOT_OF_STORE)
        room = max(1, open_files - own, open_files // 4)
        return room if self.max_connections is None else min(self.max_connections, room)


class SessionsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What is done for clients from time to time, and how long they may be silent. Longer times
    spare batteries, and shorter ones notice sooner."""

    heartbeat_seconds: Annotated[float, Meta(ge=10.0, le=86_400.0)] = 1200.0
    """A client that has nothing to say over a WebSocket says so this often: it is told to."""
    missed_heartbeats: Annotated[int, Meta(ge=2, le=100)] = 4
    """After so many heartbeats without a word a session is over."""
    resend_seconds: Annotated[float, Meta(ge=1.0, le=86_400.0)] = 60.0
    """How often a session is looked at: whether it is over, and what it has not acked, which is
    told again (not over MQTT and HTTP)."""
    ack_flush_seconds: Annotated[float, Meta(ge=0.01, le=600.0)] = 2.0
    """Acks are written after so long, many at once. What a crash takes of them is told again."""
    websocket_ping_seconds: Annotated[float, Meta(ge=1.0, le=86_400.0)] = 30.0
    """How often a WebSocket is pinged. One that has sent nothing since the last ping is closed."""
    events_ping_seconds: Annotated[float, Meta(ge=1.0, le=86_400.0)] = 15.0
    """How often a stream of events gets a comment, if there is nothing else. Proxies close streams
    that are silent, often after a minute."""
    mqtt_keep_alive_seconds: Annotated[int, Meta(ge=10, le=65_535)] = 1800
    """The longest keep alive of MQTT 5 clients; who asks for more, or for none, is told this."""

    def __post_init__(self) -> None:
        silent_s = self.heartbeat_seconds * self.missed_heartbeats
        if self.resend_seconds > silent_s:
            raise Conflict(
                f"a session is over after {silent_s:g} s of silence, and would be looked at every "
                f"{self.resend_seconds:g} s only: make resend_seconds shorter, or heartbeats rarer",
                "sessions.resend_seconds",
                "sessions.heartbeat_seconds",
                "sessions.missed_heartbeats",
            )
        if self.events_ping_seconds > self.heartbeat_seconds:
            raise Conflict(
                "a stream of events is heard of with its pings, which have to come as often as "
                "heartbeats: make events_ping_seconds shorter, or heartbeat_seconds longer",
                "sessions.events_ping_seconds",
                "sessions.heartbeat_seconds",
            )


class PipelineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The pipeline on Spark that runs beside the node. It needs `roskva[spark]` and Java."""

    enabled: bool = True
    """Run it with the node. Without it the node reads its own feed after a gap, and nothing is
    ingested."""
    master: Word = "local[*]"
    """Where Spark runs: on this machine, or `spark://…`."""
    driver_memory: Annotated[str, Meta(pattern=r"^[1-9][0-9]*[mg]$")] = "1g"
    """The most that its JVM takes for itself."""
    niceness: Annotated[int, Meta(ge=0, le=19)] = 10
    """How far the pipeline stands back when cores are scarce."""


class IngestConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A source of rows that become updates, each by SQL expressions over its columns."""

    format: Word = "json"
    """Any that Spark can read as a stream; `roskva-changes` for the changes of a source."""
    path: str | None = None
    """What is read, if the format reads files or tables; of `roskva-changes` the name of the
    source."""
    table: Word | None = None
    """Of `roskva-changes`: whose rows, as named in the tables of the source. Not set: of all."""
    options: dict[str, str | int | float | bool] | None = None
    """Of the format, as Spark names them."""
    columns: str | None = None
    """The columns and their types, for formats that do not say: `id BIGINT, changed TIMESTAMP`. Of
    `roskva-changes` those of the table."""
    app: Word = "app"
    """SQL for the app; a constant has quotes of its own."""
    name: Word = "name"
    """SQL for the name of the object."""
    version: str | None = "version"
    """SQL for the version. Off where versions are assigned."""
    source: str | None = None
    """SQL for the application id of who made the change."""
    payload: str | None = None
    """SQL for the payload, text or binary."""
    filter: str | None = None
    """SQL that is true for the rows that count; others are skipped."""
    interval_seconds: Annotated[float, Meta(ge=0.0, le=86400.0)] = 1.0
    """How often the source is looked at for more; the changes of a source come as they are read."""
    key: str | None = None
    """A publish key of its app, for a node with keys: `env:NAME` or `file:PATH`."""
    dead_letter_days: Days | None = 30
    """Files of dead letters that were not written to for so long are deleted."""
    with_node: bool = True
    """Run it with the node. Otherwise `roskva pipeline ingest NAME` runs it."""


class SourceConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A database that publishes by itself what is changed in it. PostgreSQL needs
    `roskva[postgres]`, MariaDB and MySQL need `roskva[mysql]`."""

    url: str | None = None
    """The database: `postgresql://USER@HOST:PORT/DATABASE`, `mariadb://…` or `mysql://…`, without a
    password."""
    password: str | None = None
    """Where its password is: `env:NAME` or `file:PATH`."""
    ca: Path | None = None
    """Certificates, in PEM, of which one has signed that of the database. Not set: whether the
    connection is encrypted is left to the database, and nobody checks whose it is."""
    tables: tuple[Word, ...] = ()
    """Which tables are published: `products`, or `sales.orders` in another schema."""
    keys: dict[str, tuple[Word, ...]] | None = None
    """By table: the columns that name a row, where it is not the primary key."""
    app: str | None = None
    """The app that is published to, and by nobody else. Not set: the name of the source."""
    payload: Literal["none", "row"] = "none"
    """What clients are told beside the version: nothing, or the row as JSON."""
    direct: bool = True
    """Publish every row under its own name. Otherwise only what ingests make of the changes, those
    with `format = "roskva-changes"`, is published."""
    retention_hours: Annotated[int, Meta(ge=1, le=24 * 3660)] = 24
    """Changes older than this are dropped from the log of changes, but never what a flow needs."""
    retention_bytes: Bytes = 1024 * _MIB
    """The same as a size."""
    last_resort_bytes: Bytes | None = None
    """Beyond this size the oldest changes are dropped whoever needs them; a flow that did resets
    the app when it finds out. Not set: never."""
    max_lag_bytes: Bytes = 1024 * _MIB
    """The console says so when the database has to keep more of its log than this for us."""
    with_node: bool = True
    """Read it with the node. Otherwise `roskva source run NAME` does."""

    def app_of(self, name: str) -> str:
        """`name`: its own."""
        return name if self.app is None else self.app


_OF_PROBER: Final = {
    PROBE_APP: AppConfig(keep_clients_days=1),
    PROBE_SLOW_APP: AppConfig(keep_clients_days=1, fast_path=False),
}
"""Whatever the defaults are."""


def _check_databases(sources: dict[str, SourceConfig]) -> None:
    apps: dict[str, str] = {}
    for name, source in sources.items():
        section = f"source.{name}"
        if source.url is None:
            raise Conflict(
                'say where the database is: url = "postgresql://USER@HOST:PORT/DATABASE"',
                *(f"{section}.{key}" for key in ("url", "tables", "password")),
            )
        if not source.tables:
            raise Conflict('say what is published: tables = ["products"]', f"{section}.url")
        if (source.last_resort_bytes or source.retention_bytes) < source.retention_bytes:
            raise Conflict(
                "last_resort_bytes is below retention_bytes, so the last resort would come first",
                f"{section}.last_resort_bytes",
            )
        if unknown := set(source.keys or ()) - set(source.tables):
            raise Conflict(
                f"keys has {min(unknown)}, which is not among the tables", f"{section}.keys"
            )
        app = source.app_of(name)
        try:
            check_app(app)
        except BadName as error:
            raise Conflict(str(error), f"{section}.app", f"{section}.url") from None
        if app in _OF_PROBER:
            raise Conflict(
                f"{app} is kept for the prober: give the source another app",
                f"{section}.app",
                f"{section}.url",
            )
        if app in apps:
            raise Conflict(
                f"the sources {apps[app]} and {name} both publish to {app}: an app has one source, "
                "so give one of them another app",
                f"{section}.app",
                f"{section}.url",
            )
        apps[app] = name


CHANGES_FORMAT: Final = "roskva-changes"
"""The format of an ingest that is a flow of a source."""


def _check_flows(ingests: dict[str, IngestConfig], sources: dict[str, SourceConfig]) -> None:
    for name, ingest in ingests.items():
        section = f"ingest.{name}"
        if ingest.format != CHANGES_FORMAT:
            if ingest.table is not None:
                raise Conflict(f'table is for format = "{CHANGES_FORMAT}"', f"{section}.table")
            continue
        source = sources.get(ingest.path or "")
        if source is None:
            known = ", ".join(sources) or "none"
            raise Conflict(
                f"path is the name of a source, and there is no [source.{ingest.path}]; there is: "
                f"{known}",
                f"{section}.path",
                f"{section}.format",
            )
        app = source.app_of(ingest.path or "")
        if ingest.app not in ("app", f"'{app}'"):
            raise Conflict(
                f"an ingest of the source {ingest.path} publishes to the app {app} only, which is "
                "reset when changes may be missing: leave app out",
                f"{section}.app",
            )
        if ingest.version != "version":
            raise Conflict(
                "the versions are those of the source: leave version out", f"{section}.version"
            )
        if unknown := set(ingest.options or ()) - {"maxUpdatesPerTrigger"}:
            raise Conflict(
                f"an ingest of a source has no option {min(unknown)}; it has: maxUpdatesPerTrigger",
                f"{section}.options",
            )
        if ingest.key is not None:
            raise Conflict(
                "an ingest of a source needs no key: the node knows it", f"{section}.key"
            )
        if ingest.table is not None and ingest.table not in source.tables:
            raise Conflict(
                f"{ingest.table} is not among the tables of the source {ingest.path}: "
                f"{', '.join(source.tables)}",
                f"{section}.table",
            )


class Config(msgspec.Struct, frozen=True, kw_only=True):
    node: NodeConfig = NodeConfig()
    defaults: AppConfig = AppConfig()
    apps: dict[str, AppConfig] = {}
    feed: FeedConfig = FeedConfig()
    limits: LimitsConfig = LimitsConfig()
    sessions: SessionsConfig = SessionsConfig()
    tls: TlsConfig = TlsConfig()
    admin: AdminConfig = AdminConfig()
    pipeline: PipelineConfig = PipelineConfig()
    ingest: dict[str, IngestConfig] = {}
    source: dict[str, SourceConfig] = {}
    probe: ProbeConfig = ProbeConfig()
    slo: SloConfig = SloConfig()

    def __post_init__(self) -> None:
        if 2 * self.sessions.resend_seconds > self.node.token_hours * 3600:
            raise Conflict(
                "tokens are replaced half-way to their end, when a session is looked at: make "
                "resend_seconds shorter than half of token_hours",
                "sessions.resend_seconds",
                "node.token_hours",
            )
        _check_databases(self.source)
        for name in self.apps_of_sources:
            if self.app(name).versions == "assigned":
                raise Conflict(
                    f'the source of {name} numbers its versions: set versions = "app" in '
                    f"[apps.{name}]",
                    f"apps.{name}.versions",
                    "defaults.versions",
                )
        _check_flows(self.ingest, self.source)
        apps = {f"apps.{name}": app for name, app in self.apps.items()}
        for section, app in {"defaults": self.defaults, **apps}.items():
            # Three characters of JSON carry two bytes of a payload, or more.
            needed = app.max_payload_bytes * 3 // 2 + _ENVELOPE_BYTES
            for limit in ("max_frame_bytes", "max_body_bytes"):
                if needed > getattr(self.limits, limit):
                    raise Conflict(
                        f"a payload of {app.max_payload_bytes} bytes does not fit into {limit}: "
                        f"make it smaller, or set {limit} in [limits] to {needed} or more",
                        f"{section}.max_payload_bytes",
                        "defaults.max_payload_bytes",
                        f"limits.{limit}",
                    )

    def app(self, name: str) -> AppConfig:
        return _OF_PROBER.get(name) or self.apps.get(name, self.defaults)

    @property
    def apps_of_sources(self) -> dict[str, str]:
        """The apps that a change source publishes to, each with the name of the source."""
        return {source.app_of(name): name for name, source in self.source.items()}

    def windows(
        self, setting: Literal["batch_ms", "registrar_batch_ms"]
    ) -> Callable[[str], BatchMs] | None:
        """By app; None if no app has one."""
        if not any(getattr(app, setting) for app in (self.defaults, *self.apps.values())):
            return None
        return lambda app: getattr(self.app(app), setting)

    def keep(self, app: str) -> Keep:
        """For how long what belongs to an app is kept."""
        found = self.app(app)
        return Keep(_seconds(found.keep_clients_days), _seconds(found.keep_objects_days))

    @property
    def drops_objects(self) -> bool:
        apps = (self.defaults, *self.apps.values())
        return any(app.keep_objects_days is not None for app in apps)


def _seconds(days: float | None) -> float | None:
    return None if days is None else days * DAY_S


NAMED: Final = ("apps", "ingest", "source")
"""Sections with a table of its own for each app, or each source."""

SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    name: get_args(kind)[1] if name in NAMED else kind
    for name, kind in get_type_hints(Config).items()
}
