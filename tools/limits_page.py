"""docs/limits.md, from the settings and the constants."""

from collections.abc import Sequence
from typing import Final

from roskva import model
from roskva.channels import (
    base,
    bodies,
    connections,
    conversation,
    http_protocol,
    own,
    peers,
    poll,
    watch,
)
from roskva.channels.mqtt import MqttLimits
from roskva.client import handlers, link
from roskva.config import LimitsConfig, Setting, settings
from roskva.feed import log
from roskva.links import framing
from roskva.publisher import publisher
from roskva.server import acceptor, admission, authorisation, listeners, pressure
from roskva.server.access import hook, jwt
from roskva.store import worker
from roskva.wire import links, messages
from roskva.wire.mqtt import fields

_HEAD = """\
# Limits

Everything that somebody outside could have too much of is limited, and every buffer ends somewhere.
This page is made from the code. What the codes mean is in [errors](errors.md).

## Settings

Under `[limits]` in the [settings](configuration.md#limits); they hold for each process that serves
clients. What is beyond is answered as shown, and changes nothing else.

| key | default | | what is beyond |
|---|---|---|---|
"""

ANSWERS: Final = {
    "max_frame_bytes": "`too_large`: WebSocket closes with 1009, MQTT 5 with 0x95, 3.1.1 closes",
    "max_registrations": "`limit_exceeded` for that registration; SUBACK 0x97 (0x80 on 3.1.1)",
    "max_publish_updates": "`too_large`, 413: none of them is published",
    "max_body_bytes": "`too_large`, 413",
    "handshakes_per_second": '`overloaded` with "not before"; MQTT: server busy (3 on 3.1.1)',
    "handshake_seconds": "408, or it is closed; WebSocket 1008 after the upgrade",
    "body_seconds": "408",
    "write_seconds": "closed",
    "publish_patience_s": "`unavailable` for these updates",
    "held_updates": "likewise",
    "held_bytes": "likewise",
    "publishes_per_second": "`too_fast`, 429 with Retry-After; MQTT 5: PUBACK 0x97, 3.1.1 closes",
    "client_publishes_per_second": "likewise",
    "keyless_publish_bytes_per_second": "likewise; a large request before its body is read",
    "min_free_disk_bytes": "`storage_unavailable`, 503 with Retry-After; MQTT 5: PUBACK 0x83, "
    "3.1.1 closes",
    "events_per_second": "they wait: each stream is told the newest of each object in its turn",
    "max_sessions_per_principal": "`limit_exceeded` and the end; streams: 429; MQTT 5: 0x97",
    "max_clients_per_principal": "`limit_exceeded` for the registrations, and the end; SUBACK 0x97 "
    "(0x80 on 3.1.1), then DISCONNECT 0x97",
    "max_registrations_per_principal": "likewise",
    "max_connections_per_address": f"429 with Retry-After {peers.RETRY_AFTER_S}; MQTT: closed",
    "max_lag_ms": 'handshakes: `overloaded` with "not before"; publishes, reads and streams: 503',
    "max_memory_bytes": "likewise",
    "max_connections": "[whoever has waited longest gives way](#connections); if nobody waits, 503 "
    f"with Retry-After {peers.RETRY_AFTER_S}, or closed",
}

_mqtt = MqttLimits()

FIXED: Final[Sequence[tuple[str, object, str]]] = (
    ("the name of an object, in bytes", model.MAX_NAME_BYTES, "`bad_name`"),
    ("a source, in bytes", model.MAX_SOURCE_BYTES, "`too_large`"),
    ("a credential, in characters", messages.MAX_CREDENTIAL_CHARS, "`unauthorised`"),
    ("parts (operations, acks, …) in one message", messages.MAX_PARTS, "`bad_message`"),
    ("messages over one connection that are none of ours", conversation.MAX_BAD_MESSAGES, "1002"),
    ("the head of a request, in bytes", http_protocol.MAX_HEAD_BYTES, "400, closed"),
    ("headers of a request", http_protocol.MAX_HEADERS, "400, closed"),
    (
        "requests that wait for the answer to an earlier one of their connection",
        http_protocol.MAX_PIPELINED,
        "400, closed",
    ),
    (
        "bodies on their way, all together, in bytes",
        bodies.MAX_BYTES,
        "503 for the one that began first",
    ),
    ("of one address, and of one principal", bodies.MAX_SHARE_BYTES, "likewise"),
    (
        "bytes of a body in a second, over `handshake_seconds`",
        f"{bodies.MIN_BYTES_PER_S:,} or more",
        "408",
    ),
    ("a body with a Content-Encoding", "none", "415: nothing is ever unpacked"),
    ("WebSocket extensions (permessage-deflate)", "none", "not agreed on"),
    ("objects of one stream of events, or of one poll", watch.MAX_OBJECTS, "400"),
    ("the wait of a poll, in seconds", int(poll.MAX_WAIT_S), "400"),
    ("filters in one SUBSCRIBE", _mqtt.max_filters, "SUBACK 0x97 (0x80 on 3.1.1)"),
    ("user properties in one MQTT packet", fields.MAX_USER_PROPERTIES, "0x97, closed"),
    ("wills that wait", _mqtt.max_wills, "published at once"),
)

_FIXED = """
## Fixed

| | at most | what is beyond |
|---|---|---|
"""

_BUFFERS = f"""
## Buffers and queues

There are no queues of updates per client: what a client must still be told is derived.

| where | | at most | then |
|---|---|---|---|
| server | connections the kernel holds until they are accepted, per port | {acceptor.BACKLOG:,} \
| the kernel drops them |
| server | unsent bytes to a client before notifications are left out | \
{listeners.MAX_UNSENT_BYTES:,} | it is told the newest of each object when it has read |
| server | unsent answers to a client, in bytes | {base.MAX_UNREAD_BYTES:,} | it is not read from \
until it has read; pings are not answered |
| server | unsent bytes to a client of your own channel | {own.HIGH_WATER_BYTES:,} | as for unsent \
bytes |
| server | of a stream of events: what waits | one notification per object | the newer takes the \
place of the older |
| server | MQTT: publishes of one client that are not answered | {_mqtt.receive_maximum:,} | \
3.1.1: it is not read from; 5: 0x93 |
| server | MQTT: requests of one client that are not confirmed | {_mqtt.max_requests:,} | it is \
not read from |
| server | MQTT: packets sent to one client and not acked | {_mqtt.max_in_flight}, or its Receive \
Maximum | as for unsent bytes |
| server | messages of one client that wait for the app's hook | {authorisation.MAX_WAITING:,} | \
`unavailable` for their registrations |
| server | clients with such messages | {authorisation.MAX_CONNECTIONS:,} | likewise |
| server | questions to apps' hooks about notifications, under way | \
{authorisation.MAX_ASKING:,} | others wait, one for each registration, and are asked as soon as \
there is room |
| server | updates that wait for the app's hook | {authorisation.MAX_PUBLISHING:,} | \
`overloaded` |
| server | questions to a hook under way, and those of them about one principal | \
{hook.AT_ONCE:,} / {hook.OF_ONE:,} | others wait |
| server | answers of a hook that are remembered | {hook.MAX_REMEMBERED:,} | all are forgotten |
| server | JWTs that are remembered | {jwt.MAX_REMEMBERED:,} | all are forgotten |
| server | publishers whose rate is remembered | {admission.MAX_BUCKETS:,} | those that were idle \
are forgotten |
| feed | updates that wait for the disk, per shard | {log.MAX_GROUP_ROWS:,} | `overloaded` |
| store | cells that wait for the disk, per shard | {worker.MAX_WAITING:,} | `overloaded` |
| links | a frame between processes, in bytes | {links.MAX_LINK_FRAME_BYTES:,} | the link is \
dropped |
| links | unsent bytes to another process | {framing.MAX_UNSENT_BYTES:,} | the link is dropped, \
and restored by digest |
| client | handlers that run at once | {handlers.PLACES} | others wait for a place; one that takes \
longer than {handlers.PLACE_S:g} s gives its place up |
| client | messages that wait to be written | {link.MAX_UNWRITTEN:,} | dropped: the protocol sends \
again what matters |
| client | events that wait for the application | two per object | the newer takes the place of \
the older |
| publisher | updates that wait to be sent | {publisher.MAX_WAITING}, \
{publisher.MAX_WAITING_BYTES} bytes | publish() waits |
"""

_CONNECTIONS = f"""
## Connections

Every socket that a process accepts counts for `max_connections` until it is closed: HTTP and the
admin port, streams and polls, WebSocket, MQTT, and TLS handshakes under way. (Connections of your
own channel count, too.) Of the files that a process may open a quarter is its own, for its shards,
links and questions to hooks: clients cannot take those.

When all places are taken, the connection that has waited longest for its client gives way to the
next: one that has not said anything yet, has not finished its request, is idle between two
requests, or does not read its answer. Requests that are being answered, sessions, streams and polls
do not give way. One place in {connections.KEPT_PART}, but no more than {connections.MOST_KEPT},
is not for sessions, streams and polls, so that publishes and reads always find one. Who would stay
beyond that is told to come back: streams, polls and handshakes of WebSockets by 503, a WebSocket by
1012, MQTT by *server busy*.

Addresses are counted one by one, an IPv6 address by its /64, of which a customer has all. Three
limits of an address are not for this machine (127.0.0.0/8 and ::1): `max_connections_per_address`,
its share of the bodies, and the clients and registrations of nobody in particular. What runs beside
a node comes from there, and so does whatever a tunnel or a sidecar brings: all of that would be one
address. What holds for everybody holds there, too: `max_connections` and who gives way, the bodies
all together, `keyless_publish_bytes_per_second`, `events_per_second`, the rates of keys and
principals, every deadline. A proxy of `behind_proxy` is not counted by its own address; whom it
speaks for is, where HTTP's headers say so.
"""

_SHEDDING = f"""
## Too much to do

A process measures every {pressure.LOOK_S:g} s by how much a timer comes late, and every second
its memory. If that is worse than `max_lag_ms`, or memory is short, {pressure.BAD_IN_A_ROW} times in
a row, it sheds load: clients that connect are told when to come back, publishes, reads and streams
that begin are refused for now, and those who are connected are served. It ends when
{pressure.GOOD_IN_A_ROW} measurements in a row were good, at half the lag. Memory is short above
`max_memory_bytes`, or if less than {pressure.LEAST_FREE:.0%} of the machine's is free. `roskva
status --json` shows `shedding`, `longest_lag_ms` and the counters `handshakes_turned_away`,
`reads_refused` and `updates_refused.shedding`, `.disk`, `.rate` and `.bytes`.
"""


def limits_page() -> str:
    return "".join(
        [
            _HEAD,
            *(_setting(setting) for setting in settings(LimitsConfig)),
            _FIXED,
            *(f"| {what} | {_figure(limit)} | {answer} |\n" for what, limit, answer in FIXED),
            _CONNECTIONS,
            _SHEDDING,
            _BUFFERS,
        ]
    )


def _setting(setting: Setting) -> str:
    default = "" if setting.default is None else _figure(setting.default)
    return f"| `{setting.key}` | {default} | {setting.description} | {ANSWERS[setting.key]} |\n"


def _figure(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
