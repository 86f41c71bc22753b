"""The settings: one frozen struct per part of a node, and of what runs beside it.

What stands below a setting is what `roskva config init` and docs/configuration.md say of it. A
struct checks how its own settings go together, and `Config` how those of different sections do;
ranges and types are checked where settings come in (`sources.py`), who may do what in `access.py`.
"""

import ipaddress
import re
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple, get_args, get_type_hints

import msgspec
from msgspec import Meta

from roskva.errors import BadConfig
from roskva.model import MAX_PAYLOAD_BYTES, PROBE_APP, PROBE_SLOW_APP
from roskva.wire.messages import MAX_FRAME_BYTES

Port = Annotated[int, Meta(ge=0, le=65535)]
Word = Annotated[str, Meta(min_length=1)]
Moment = Annotated[datetime, Meta(tz=True)]

SLIS: Final = (
    "register",
    "publish",
    "notify-websocket",
    "notify-events",
    "notify-mqtt",
    "notify-pipeline",
    "reconnect",
)
"""What is measured."""

Milliseconds = Annotated[int, Meta(ge=1, le=600_000)]
Share = Annotated[float, Meta(ge=0.0, le=0.99999)]

OFF: Final = "off"
"""How None is written in a file, a variable or a flag, where it is not the default."""

FILES_NOT_CLIENTS: Final = 256
"""Of the files a process may open, those it needs for itself: store, feed, links, listeners."""

_ENVELOPE_BYTES: Final = 1024
"""What surrounds a payload in a frame or in the body of a publish, generously."""

_ORIGIN: Final = re.compile(r"https?://[^/\s]+")
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


class AppConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How apps behave. What the table of an app does not set is taken from `[defaults]`."""

    versions: Literal["app", "assigned"] = "app"
    """Who numbers the versions: the publisher, or Roskva. With assigned versions an MQTT message is
    a payload, and otherwise the version in digits."""
    max_payload_bytes: Annotated[int, Meta(ge=0, le=16 * MAX_PAYLOAD_BYTES)] = MAX_PAYLOAD_BYTES
    """The largest payload of an update."""
    fast_path: bool = True
    """Tell clients as soon as an update is durable. Without it they are told when the feed is next
    read, which is later."""
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
    allowed_origins: tuple[str, ...] = ()
    """Web pages of other origins that may use this node from a browser: `https://app.example.com`,
    or `*` for all."""
    log: Literal["text", "json"] = "text"
    """Log lines for people, or one JSON object per line."""
    trace_one_in: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = 100
    """Follow one in so many updates from publishing to their acks: for the stages on the console
    and in the metrics, and for `roskva job latency`."""
    token_hours: Annotated[int, Meta(ge=1, le=24 * 366)] = 90 * 24
    """How long a client may stay away and come back by the token that it was granted, without
    another JWT."""

    def __post_init__(self) -> None:
        check_networks(self.behind_proxy)
        check_origins(self.allowed_origins)
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
    retention_bytes: Bytes | None = None
    """The oldest updates beyond this size are dropped, but never what a reader still needs. Not
    set: no limit."""
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
    handshakes_per_second: Annotated[int, Meta(ge=1, le=1000)] = 1000
    """Clients beyond this, per process that serves them, are told to come back later."""
    handshake_seconds: Annotated[float, Meta(ge=0.1, le=60.0)] = 5.0
    """For each step until a client is known: the TLS handshake, the head of an HTTP request, a
    WebSocket's hello, MQTT's CONNECT."""
    body_seconds: Annotated[float, Meta(ge=0.1, le=600.0)] = 30.0
    """For the body of an HTTP request to arrive."""
    publishes_per_second: Annotated[int, Meta(ge=1, le=10_000_000)] = 10_000
    """Updates that may be published with one publish key, per process that serves clients; a
    second's worth, or one request, at once."""
    client_publishes_per_second: Annotated[int, Meta(ge=1, le=10_000_000)] = 100
    """Updates of one principal with a JWT; likewise."""
    max_sessions_per_principal: Annotated[int, Meta(ge=1, le=10_000_000)] = 1000
    """Sessions and streams of one principal, per process that serves clients."""
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
    """Connections per process that serves clients. Not set, or set too high: the open-file limit
    less 256."""

    def connections(self, open_files: int) -> int:
        """How many connections a process may hold that may open so many files."""
        room = max(1, open_files - FILES_NOT_CLIENTS)
        return room if self.max_connections is None else min(self.max_connections, room)


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
    """Any that Spark can read as a stream."""
    path: str | None = None
    """What is read, if the format reads files or tables."""
    options: dict[str, str | int | float | bool] | None = None
    """Of the format, as Spark names them."""
    columns: str | None = None
    """The columns and their types, for formats that do not say: `id BIGINT, changed TIMESTAMP`."""
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
    """How often the source is looked at for more."""
    key: str | None = None
    """A publish key of its app, for a node with keys: `env:NAME` or `file:PATH`."""
    with_node: bool = True
    """Run it with the node. Otherwise `roskva pipeline ingest NAME` runs it."""


_OF_PROBER: Final = {PROBE_APP: AppConfig(), PROBE_SLOW_APP: AppConfig(fast_path=False)}
"""Whatever the defaults are."""


class Config(msgspec.Struct, frozen=True, kw_only=True):
    node: NodeConfig = NodeConfig()
    defaults: AppConfig = AppConfig()
    apps: dict[str, AppConfig] = {}
    feed: FeedConfig = FeedConfig()
    limits: LimitsConfig = LimitsConfig()
    tls: TlsConfig = TlsConfig()
    admin: AdminConfig = AdminConfig()
    pipeline: PipelineConfig = PipelineConfig()
    ingest: dict[str, IngestConfig] = {}
    probe: ProbeConfig = ProbeConfig()
    slo: SloConfig = SloConfig()

    def __post_init__(self) -> None:
        for section, app in self._app_sections():
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

    def _app_sections(self) -> Iterator[tuple[str, AppConfig]]:
        yield "defaults", self.defaults
        for name, app in self.apps.items():
            yield f"apps.{name}", app


NAMED: Final = ("apps", "ingest")
"""Sections with a table of its own for each app, or each source."""

SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    name: get_args(kind)[1] if name in NAMED else kind
    for name, kind in get_type_hints(Config).items()
}
