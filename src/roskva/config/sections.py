"""The settings: one frozen struct per part of a node.

The descriptions are the ones that `roskva config init` and docs/configuration.md show. A struct
checks how its own settings go together, and `Config` how those of different sections do; ranges and
types are checked where settings come in (`loading.py`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec
from msgspec import Meta

from roskva.config.apps import AppConfig
from roskva.config.kinds import Conflict, Port, check_networks, check_origins
from roskva.config.probing import ProbeConfig, SloConfig
from roskva.config.transport import AdminConfig, TlsConfig
from roskva.model import PROBE_APP, PROBE_SLOW_APP
from roskva.wire.messages import MAX_FRAME_BYTES

OFF: Final = "off"
"""How None is written in a file, a variable or a flag, where it is not the default."""

FILES_NOT_CLIENTS: Final = 256
"""Of the files a process may open, those it needs for itself: store, feed, links, listeners."""

_ENVELOPE_BYTES: Final = 1024
"""What surrounds a payload in a frame or in the body of a publish, generously."""

_MIB: Final = 1 << 20
_TIB: Final = 1 << 40

Processes = Annotated[int, Meta(ge=0, le=256)]
Bytes = Annotated[int, Meta(ge=_MIB, le=1024 * _TIB)]


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where this node listens, where its data is, and how many processes it uses."""

    host: Annotated[
        str, Meta(min_length=1, description="The address to listen on, for every channel.")
    ] = "127.0.0.1"
    port: Annotated[
        Port, Meta(description="HTTP and WebSocket listen here. 0 takes any free port.")
    ] = 7600
    mqtt_port: Annotated[
        Port | None, Meta(description="MQTT listens here. 0 takes any free port.")
    ] = 1883
    data: Annotated[
        Path,
        Meta(
            description="The data directory, on a local disk. Created if it is not there. A "
            "relative path counts from where the node is started."
        ),
    ] = Path("roskva-data")
    shards: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        Meta(
            description="How many slices a new data directory is cut into (4 if this is not set). "
            "It can never change: a directory that has another number is refused."
        ),
    ] = None
    registrars: Annotated[
        Processes,
        Meta(
            description="Processes that serve clients and share the ports. With 0, here and in "
            "matchers, one process does everything."
        ),
    ] = 0
    matchers: Annotated[
        Processes,
        Meta(
            description="Processes that share the shards between them. May change from one start "
            "to the next."
        ),
    ] = 0
    behind_proxy: Annotated[
        tuple[str, ...],
        Meta(
            description="Addresses or networks (`10.0.0.0/8`) of the proxies that end TLS in front "
            "of this node. Only they are believed whom they speak for (X-Forwarded-For and "
            "X-Forwarded-Proto)."
        ),
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...],
        Meta(
            description="Web pages of other origins that may use this node from a browser: "
            "`https://app.example.com`, or `*` for all."
        ),
    ] = ()
    log: Annotated[
        Literal["text", "json"],
        Meta(description="Log lines for people, or one JSON object per line."),
    ] = "text"
    trace_one_in: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000_000)] | None,
        Meta(
            description="Follow one in so many updates from publishing to their acks: for the "
            "stages on the console and in the metrics, and for `roskva job latency`."
        ),
    ] = 100
    token_hours: Annotated[
        int,
        Meta(
            ge=1,
            le=24 * 366,
            description="How long a client may stay away and come back by the token that it was "
            "granted, without another JWT.",
        ),
    ] = 90 * 24

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

    retention_hours: Annotated[
        Annotated[int, Meta(ge=1, le=24 * 3660)] | None,
        Meta(
            description="Updates older than this are dropped, but never what a reader still needs."
        ),
    ] = 7 * 24
    retention_bytes: Annotated[
        Bytes | None,
        Meta(
            description="The oldest updates beyond this size are dropped, but never what a reader "
            "still needs. Not set: no limit."
        ),
    ] = None
    last_resort_bytes: Annotated[
        Bytes | None,
        Meta(
            description="Beyond this size the oldest updates are dropped whoever needs them; the "
            "shard may then begin a new epoch. Not set: never."
        ),
    ] = None
    segment_bytes: Annotated[
        int, Meta(ge=_MIB, le=4096 * _MIB, description="The size of a file of the feed.")
    ] = 16 * _MIB
    commit_wait_ms: Annotated[
        float,
        Meta(
            ge=0,
            le=1000,
            description="Under load a publish waits so long for others, to share one sync of the "
            "disk with them.",
        ),
    ] = 2.0

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

    max_frame_bytes: Annotated[
        int,
        Meta(ge=4096, le=MAX_FRAME_BYTES, description="A message from a client, on any channel."),
    ] = MAX_FRAME_BYTES
    max_registrations: Annotated[
        int, Meta(ge=1, le=10_000_000, description="Objects that one client may register for.")
    ] = 100_000
    max_publish_updates: Annotated[
        int, Meta(ge=1, le=10_000, description="Updates in one publish request.")
    ] = 1000
    max_body_bytes: Annotated[
        int, Meta(ge=4096, le=64 * _MIB, description="The body of one HTTP request.")
    ] = 4 * _MIB
    handshakes_per_second: Annotated[
        int,
        Meta(
            ge=1,
            le=1000,
            description="Clients beyond this, per process that serves them, are told to come back "
            "later.",
        ),
    ] = 1000
    handshake_seconds: Annotated[
        float,
        Meta(
            ge=0.1,
            le=60.0,
            description="For each step until a client is known: the TLS handshake, the head of an "
            "HTTP request, a WebSocket's hello, MQTT's CONNECT.",
        ),
    ] = 5.0
    body_seconds: Annotated[
        float, Meta(ge=0.1, le=600.0, description="For the body of an HTTP request to arrive.")
    ] = 30.0
    publishes_per_second: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Updates that may be published with one publish key, per process that "
            "serves clients; a second's worth, or one request, at once.",
        ),
    ] = 10_000
    client_publishes_per_second: Annotated[
        int,
        Meta(ge=1, le=10_000_000, description="Updates of one principal with a JWT; likewise."),
    ] = 100
    max_sessions_per_principal: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Sessions and streams of one principal, per process that serves clients.",
        ),
    ] = 1000
    max_connections_per_address: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000_000,
            description="Per process that serves clients. This machine and the proxies of "
            "behind_proxy may have any number.",
        ),
    ] = 1000
    max_lag_ms: Annotated[
        int,
        Meta(
            ge=10,
            le=60_000,
            description="If everything waits longer than this, clients that connect are told to "
            "come back later, and publishers too, until it is well again.",
        ),
    ] = 500
    max_memory_bytes: Annotated[
        Bytes | None,
        Meta(
            description="If a process uses more than this, likewise. Not set: nine tenths of what "
            "its container may have, if it is in one."
        ),
    ] = None
    max_connections: Annotated[
        Annotated[int, Meta(ge=1, le=10_000_000)] | None,
        Meta(
            description="Connections per process that serves clients. Not set, or set too high: "
            f"the open-file limit less {FILES_NOT_CLIENTS}."
        ),
    ] = None

    def connections(self, open_files: int) -> int:
        """How many connections a process may hold that may open so many files."""
        room = max(1, open_files - FILES_NOT_CLIENTS)
        return room if self.max_connections is None else min(self.max_connections, room)


class PipelineConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The pipeline on Spark that runs beside the node. It needs `roskva[spark]` and Java."""

    enabled: Annotated[
        bool,
        Meta(
            description="Run it with the node. Without it the node reads its own feed after a gap, "
            "and nothing is ingested."
        ),
    ] = True
    master: Annotated[
        str,
        Meta(min_length=1, description="Where Spark runs: on this machine, or `spark://…`."),
    ] = "local[*]"
    driver_memory: Annotated[
        str,
        Meta(pattern=r"^[1-9][0-9]*[mg]$", description="The most that its JVM takes for itself."),
    ] = "1g"
    niceness: Annotated[
        int,
        Meta(ge=0, le=19, description="How far the pipeline stands back when cores are scarce."),
    ] = 10


class IngestConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A source of rows that become updates, each by SQL expressions over its columns."""

    format: Annotated[
        str, Meta(min_length=1, description="Any that Spark can read as a stream.")
    ] = "json"
    path: Annotated[
        str | None, Meta(description="What is read, if the format reads files or tables.")
    ] = None
    options: Annotated[
        dict[str, str | int | float | bool] | None,
        Meta(description="Of the format, as Spark names them."),
    ] = None
    columns: Annotated[
        str | None,
        Meta(
            description="The columns and their types, for formats that do not say: `id BIGINT, "
            "changed TIMESTAMP`."
        ),
    ] = None
    app: Annotated[
        str, Meta(min_length=1, description="SQL for the app; a constant has quotes of its own.")
    ] = "app"
    name: Annotated[str, Meta(min_length=1, description="SQL for the name of the object.")] = "name"
    version: Annotated[
        str | None,
        Meta(description="SQL for the version. Off where versions are assigned."),
    ] = "version"
    source: Annotated[
        str | None, Meta(description="SQL for the application id of who made the change.")
    ] = None
    payload: Annotated[str | None, Meta(description="SQL for the payload, text or binary.")] = None
    filter: Annotated[
        str | None,
        Meta(description="SQL that is true for the rows that count; others are skipped."),
    ] = None
    interval_seconds: Annotated[
        float,
        Meta(ge=0.0, le=86400.0, description="How often the source is looked at for more."),
    ] = 1.0
    key: Annotated[
        str | None,
        Meta(
            description="A publish key of its app, for a node with keys: `env:NAME` or `file:PATH`."
        ),
    ] = None
    with_node: Annotated[
        bool,
        Meta(description="Run it with the node. Otherwise `roskva pipeline ingest NAME` runs it."),
    ] = True


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


SECTIONS: Final[dict[str, type[msgspec.Struct]]] = {
    "node": NodeConfig,
    "defaults": AppConfig,
    "apps": AppConfig,
    "feed": FeedConfig,
    "limits": LimitsConfig,
    "tls": TlsConfig,
    "admin": AdminConfig,
    "pipeline": PipelineConfig,
    "ingest": IngestConfig,
    "probe": ProbeConfig,
    "slo": SloConfig,
}

NAMED: Final = ("apps", "ingest")
"""Sections with a table of its own for each app, or each source."""


class Setting(NamedTuple):
    """One key of a section, for people."""

    key: str
    default: Any
    description: str
    expected: str
    may_be_off: bool


def settings(section: type[msgspec.Struct]) -> list[Setting]:
    info = msgspec.inspect.type_info(section)
    assert isinstance(info, msgspec.inspect.StructType)
    found = []
    for field in info.fields:
        assert isinstance(field.type, msgspec.inspect.Metadata)
        assert field.type.extra_json_schema is not None
        optional = isinstance(field.type.type, msgspec.inspect.UnionType)
        may_be_off = optional and field.default is not None
        expected = _expected(field.type.type) + (f' or "{OFF}"' if may_be_off else "")
        description = field.type.extra_json_schema["description"]
        default = [] if field.default_factory is list else field.default
        found.append(Setting(field.name, default, description, expected, may_be_off))
    return found


def _expected(kind: msgspec.inspect.Type) -> str:
    match kind:
        case msgspec.inspect.UnionType(types=types):
            return _expected(types[0])  # the other one is None
        case msgspec.inspect.Metadata(type=inner):
            return _expected(inner)
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(f'"{value}"' for value in values)
        case msgspec.inspect.IntType(ge=low, le=high):
            return f"a whole number from {low:,} to {high:,}"
        case msgspec.inspect.FloatType(ge=low, le=high):
            return f"a number from {low:,} to {high:,}"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.VarTupleType():
            return "a list of texts in quotes"
        case msgspec.inspect.DictType():
            return "a table of its own"
        case msgspec.inspect.ListType():
            return "a list of text in quotes"
        case msgspec.inspect.DateTimeType():
            return "a date and time with its zone, as 2026-01-31T12:00:00Z"
    return "text in quotes"
