"""What the admin API answers: the same to the console, to `roskva explain` and to scripts.

Versions and epochs are decimal strings, as everywhere in JSON; times are wall-clock seconds. Every
answer has a `sentence` that says in words what the figures mean (`server/admin/sentences.py`).

The same structs are what one process of a node answers to another that asks it: filled in as far as
it knows, and put together in `server/admin/`.
"""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType


class NodeTrouble(msgspec.Struct, frozen=True):
    """What is wrong, in words."""

    level: Literal["bad", "warn", "note"]
    """A note is about single clients, while the node does what it should."""
    text: str


class Freshness(msgspec.Struct, frozen=True):
    """The registrations of sessions: everything else about clients that are away is in rows."""

    registrations: int = 0
    fresh: int = 0
    pending: int = 0
    """Told, or about to be told, and not acked."""
    slow: int = 0
    """Of the pending: the client does not read what it is sent."""
    blind: int = 0
    """The object's shard does not answer, so nobody can say."""
    slow_sessions: int = 0
    age_seconds: float = 0.0
    """Since this was counted."""


class StageTime(msgspec.Struct, frozen=True):
    """From the stage before to this one, of the updates sampled lately."""

    stage: str
    p50_ms: float
    p99_ms: float
    count: int


class Objective(msgspec.Struct, frozen=True, kw_only=True):
    """A service level objective, and how it is kept."""

    sli: str
    """What is measured."""
    path: str
    """Between whom."""
    target_ms: int
    share: float
    """Of the rounds that have to keep it."""
    kept: bool | None
    """In the last round; null: it could not be measured in it."""
    took_ms: float | None
    text: str
    """What is wrong, in words; nothing if it is kept."""
    budget_left: float
    """Of the error budget of a day, from 1 down to 0 and below; time without a node is missed."""
    burn_1h: float
    """At 1 the budget is spent just as the window ends."""
    burn_24h: float
    measured: int
    """Rounds, since the prober started; the budget and its burning are also of earlier runs."""
    missed: int
    total_seconds: float
    counts: list[int]
    """Rounds by the time they took: see the buckets of `roskva_probe_seconds`."""


class ProbeNow(msgspec.Struct, frozen=True, kw_only=True):
    """The prober that runs with the node."""

    state: Literal["off", "starting", "running"] = "off"
    why: str = ""
    pid: int = 0
    at: float = 0.0
    """When its last round ended."""
    every_seconds: float = 0.0
    rounds: int = 0
    sentence: str = ""
    objectives: list[Objective] = []


class ProcessNow(msgspec.Struct, frozen=True):
    name: str
    role: str = ""
    pid: int = 0
    rss_bytes: int = 0
    cpu_seconds: float = 0.0
    sessions: dict[str, int] = {}
    """By channel."""
    shedding: bool = False
    longest_lag_ms: int = 0
    counters: dict[str, int] = {}
    """Since it started: the counters of `/metrics`, by their names there without `roskva_` and
    `_total`; what a label tells apart has it after a dot. Where they have the label `traffic`, of
    the users' only."""
    per_second: dict[str, float] = {}
    """The same, over the last seconds."""
    error: str | UnsetType = UNSET
    """Why it did not answer, if it did not."""


class ShardNow(msgspec.Struct, frozen=True):
    shard: int
    process: str = ""
    answers: bool = True
    epoch: str = ""
    applied: int = 0
    feed_end: int = 0
    caught_up: bool = True
    """With what its feed held when it started; before that it says nothing."""
    objects: int = 0
    links: int = 0
    """From registrars that are up."""
    durable: int = 0
    """Applied, and on disk in the store."""
    generations: dict[str, int] = {}
    """Of the apps that were reset."""
    collector_share: float = 0.0
    """Of its rows, how far the collector is in its round."""
    collected: int = 0
    """Clients and objects that it has dropped since the start."""
    ways: dict[str, int] = {}
    """Updates that were news, since the process started: those that came by the `fast` path, from
    the `bridge`, because the shard read its feed (`own`), or when it did at its `start`."""
    reads_alone: bool = False
    """For lack of a bridge the shard reads what is not on the fast path."""
    rows: dict[str, int] = {}
    """In its store, by kind: an estimate from the first few."""


class BatchTimes(msgspec.Struct, frozen=True):
    """A micro-batch that had something to do."""

    batch: int
    at: float
    rows: int
    total_ms: int
    stages_ms: dict[str, int]
    """As Spark names them."""


class PartNow(msgspec.Struct):
    """The bridge, or an ingest; an ingest of a source is a flow of it."""

    name: str = ""
    state: str = "starting"
    batches: int = 0
    batch_ms: int | None = None
    """What the last micro-batch took."""
    recent: list[BatchTimes] = []
    """One per second at most, the oldest first."""
    last_error: str = ""
    lag_updates: int | None = None
    """Of the bridge: what the feed has and the matchers have not, if there is a bridge to ask. Of
    a flow: what the log of changes has beyond its marker."""
    lag_seconds: float | None = None
    """Since the oldest of these was written."""
    delivered: int | None = None
    """Ranges that a matcher took over from the bridge, and not from the fast path."""
    gaps: list[int] = []
    """Shards whose gap is being closed beside the query."""
    gaps_closed: int = 0
    rows: int | None = None
    published: int | None = None
    superseded: int | None = None
    dead_letters: int | None = None
    source: str = ""
    """Of a flow: whose changes it publishes."""
    marker: int | None = None
    """Of a flow: everything up to this offset in the log of changes is published."""
    late: int | None = None
    """Of a flow: what the node refused, as its app was reset meanwhile."""
    lost: int | None = None
    """Of a flow: changes that were gone from the log before it had read them."""
    together: int | None = None
    """Of a flow: how many are read for at once, itself among them; 0 if it waits."""


class PipelineNow(msgspec.Struct):
    """What the pipeline says of itself, every second."""

    state: str = "off"
    why: str = ""
    """It is off."""
    pid: int = 0
    started_at: float = 0.0
    written_at: float = 0.0
    rss_bytes: int = 0
    """Of all its processes."""
    cpu_seconds: float = 0.0
    parts: list[PartNow] = []


class SourceNow(msgspec.Struct):
    """What a source says of itself, every second."""

    name: str
    app: str
    state: str
    """starting, connecting, reading or refused."""
    why: str = ""
    """It does not read."""
    pid: int = 0
    started_at: float = 0.0
    written_at: float = 0.0
    position: str | None = None
    """In its database's log: before it everything is in the log of changes."""
    ordinal: int = 0
    last: int = 0
    """The offset of the last record in the log of changes."""
    changes: int = 0
    """Read since it started."""
    complaints: list[str] = []
    """Tables that cannot be read for now, and why; the others are."""
    doubts: int = 0
    """Found since it started."""
    doubt: str = ""
    """The last one, in words, whenever that was."""
    doubt_cause: str = ""
    doubted_at: float = 0.0
    invisible: bool = False
    """A transaction has been committed for long, and nobody can see it."""
    lag_bytes: int | None = None
    """Of the database's log, which it keeps for this source."""
    max_lag_bytes: int = 0
    """What that should not pass, by the settings."""
    lag_seconds: float | None = None
    """Since everything was read that had been committed by then; null: it has not been yet."""
    changes_per_second: float = 0.0
    direct: bool = True
    """It has a direct flow: every row is published under its own name."""
    flow: int = 0
    """The direct flow has passed on everything up to this offset."""
    flow_lag_seconds: float = 0.0
    """How old the oldest change is that it has not passed on."""
    published: int = 0
    published_per_second: float = 0.0
    superseded: int = 0
    """Changes that were not published, as a later one of the same row was at hand."""


Passed = tuple[str, int, str, int]
"""An object, its version, the stage that it passed, and when in wall-clock microseconds."""


class ProcessReport(msgspec.Struct, frozen=True):
    """What one process adds to `Now`."""

    process: ProcessNow
    shards: list[ShardNow] = []
    freshness: Freshness = Freshness()
    passed: list[Passed] = []


class DiskNow(msgspec.Struct, frozen=True, kw_only=True):
    """The disk that the data is on. In bytes."""

    total: int = 0
    free: int = 0
    floor: int = 0
    """With less free than this nothing is published."""
    refuses: bool = False
    """That is so."""
    parts: dict[str, int] = {}
    """What the data directory takes."""
    feed_cap: int | None = None
    """Beyond this the oldest updates of the feeds are dropped, if no reader needs them."""
    feed_cap_in_s: float | None = None
    """At the rate of the last hour; null: not at this rate."""
    floor_in_s: float | None = None
    """Until nothing is published; likewise."""
    rows: dict[str, int] = {}
    """In the stores of all shards that answer, by kind: an estimate."""
    sentence: str = ""


class NodeStatus(msgspec.Struct, frozen=True, kw_only=True):
    version: str = ""
    started_at: float = 0.0
    processes: list[ProcessNow] = []
    shards: list[ShardNow] = []
    pipeline: PipelineNow | None = None
    sources: list[SourceNow] = []
    probe: ProbeNow | None = None
    disk: DiskNow | None = None


class Now(msgspec.Struct, frozen=True):
    version: str
    at: float
    started_at: float
    development: bool
    """On loopback and without keys: whoever sees this may publish as well."""
    sentence: str
    troubles: list[NodeTrouble]
    processes: list[ProcessNow]
    shards: list[ShardNow]
    sessions: dict[str, int]
    per_second: dict[str, float]
    freshness: Freshness
    stages: list[StageTime]
    traced_one_in: int | None
    """How many updates are sampled for `stages`; none, if it is null."""
    probe: ProbeNow
    pipeline: PipelineNow
    disk: DiskNow
    sources: list[SourceNow] = []
    clients_here: bool = True
    """Clients connect to this port, too."""
    mqtt_port: int | None = None


class AppNow(msgspec.Struct, frozen=True, kw_only=True):
    """How often an app was reset, and in how many shards."""

    app: str
    sentence: str = ""
    generation: str
    """The latest that any shard has; 0: none."""
    following: str
    """What the next reset begins."""
    shards: int
    have: int
    """Shards with this generation in their feeds, durably."""
    silent: list[int] = []
    """Shards that do not answer."""


class SlowSession(msgspec.Struct, frozen=True):
    client: str
    application: str
    channel: str
    process: str
    acked: str | None
    state: str
    silent_seconds: float


class ObjectAudit(msgspec.Struct, frozen=True):
    """What the last `roskva job audit` counted, over clients that are away as well."""

    at: float
    states: dict[str, int]


class OriginNow(msgspec.Struct, frozen=True):
    """Of an object that a change source publishes: the change that its version came from."""

    source: str
    ordinal: str
    """Of the version: it rises at each doubt."""
    offset: str
    """The rest of the version: where the change is in the log of changes."""
    object: str = ""
    """The row; the object may have another name if a flow on Spark has published it."""
    op: str = ""
    transaction: str = ""
    """As the database calls it."""
    at: float | None = None
    """When that was committed, by the clock of the database."""
    why: str = ""
    """The log does not have it any more."""


class ObjectNow(msgspec.Struct, frozen=True, kw_only=True):
    app: str = ""
    name: str = ""
    sentence: str = ""
    shard: int = 0
    process: str = ""
    answers: bool = False
    """Whether the process of its shard does. If not, nothing is known of the object itself."""
    caught_up: bool = True
    """The shard with its feed; before that it says nothing."""
    version: str | None = None
    """Null: nobody knows, clients are told to look."""
    epoch: str = ""
    lower_bound: str | None = None
    """From before a loss: the version is this or a later one."""
    reset: bool = False
    published_at: float | None = None
    source: str | None = None
    payload_bytes: int | None = None
    origin: OriginNow | None = None
    """Where its version came from, if a change source publishes it."""
    sessions: int = 0
    fresh: int = 0
    pending: int = 0
    slow: int = 0
    slowest: list[SlowSession] = []
    audit: ObjectAudit | None = None
    silent: list[str] = []
    """Processes that did not answer; who is connected to them is not counted."""
    development: bool = False
    assigned: bool = False
    """Versions of this app are assigned by the node."""
    fast_path: bool = True
    """Of this app: without it updates are left to the bridge."""
    ways: dict[str, int] = {}
    """By which updates of its shard came; `reads_alone`: as of the shard."""
    reads_alone: bool = False


class RegistrationNow(msgspec.Struct, frozen=True):
    object: str
    state: Literal["fresh", "pending", "unknown", "slow", "blind"]
    """`unknown`: it is told to look. `blind`: the object's shard does not answer."""
    acked: str | None
    version: str | None
    """That the object stands at."""


class NoteNow(msgspec.Struct, frozen=True):
    """Something that the node told this client lately, and that changed what it gets."""

    at: float
    code: str
    object: str
    process: str


class ClientNow(msgspec.Struct, frozen=True, kw_only=True):
    client: str
    sentence: str = ""
    presence: Literal["online", "offline", "nobody", "hidden"] = "nobody"
    """`nobody`: no client has this id. `hidden`: who would know does not answer."""
    application: str = ""
    principal: str = ""
    channel: str = ""
    process: str = ""
    session: str = ""
    opening: bool = False
    """Connected, and waiting for its row."""
    slow: bool = False
    """It does not read what it is sent."""
    unsaved: int = 0
    """Registrations on their way to its row."""
    silent_seconds: float | None = None
    created_at: float | None = None
    seen_at: float | None = None
    others: list[str] = []
    """Other clients of which the application gave the same id; at most a few."""
    counts: dict[str, int] = {}
    """Registrations, by state."""
    registrations: list[RegistrationNow] = []
    """Those that are behind come first; at most a few hundred."""
    notes: list[NoteNow] = []
    silent: list[str] = []


class ClientsSeen(msgspec.Struct, frozen=True):
    """What one process that serves clients knows of an id, which may be that of several."""

    online: list[ClientNow] = []
    notes: list[NoteNow] = []
    """The latest first."""
    noted: str = ""
    """Whom the latest of these is about."""


class DeadLetter(msgspec.Struct, frozen=True):
    ingest: str
    at: str
    reason: str
    row: str


class PartBatch(BatchTimes, frozen=True):
    part: str


class JobNow(msgspec.Struct, frozen=True):
    """What a job found when it last ran."""

    name: str
    at: float
    seconds: float
    found: dict[str, Any]
    plots: list[str]
    """To be had at `/v1/admin/jobs/NAME/PLOT`."""


class PipelineDetail(msgspec.Struct, frozen=True):
    sentence: str
    pipeline: PipelineNow
    batches: list[PartBatch]
    dead_letters: list[DeadLetter]
    jobs: list[JobNow]
