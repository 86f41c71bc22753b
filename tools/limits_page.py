"""docs/limits.md, from the settings and the constants."""

from collections.abc import Sequence
from typing import Final

from roskva import model
from roskva.channels import base, events, http_protocol, peers, websocket
from roskva.channels.mqtt import MqttLimits
from roskva.client import link
from roskva.config import LimitsConfig, Setting, settings
from roskva.feed import log
from roskva.links import framing
from roskva.publisher import publisher
from roskva.server import admission, authorisation, listeners, pressure
from roskva.server.access import hook, jwt
from roskva.store import worker
from roskva.wire import links, messages

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
    "publishes_per_second": "`too_fast`, 429 with Retry-After; MQTT 5: PUBACK 0x97, 3.1.1 closes",
    "client_publishes_per_second": "likewise",
    "max_sessions_per_principal": "`limit_exceeded` and the end; streams: 429; MQTT 5: 0x97",
    "max_connections_per_address": f"429 with Retry-After {peers.RETRY_AFTER_S}; MQTT: closed",
    "max_lag_ms": 'handshakes: `overloaded` with "not before"; publishes, reads and streams: 503',
    "max_memory_bytes": "likewise",
    "max_connections": "WebSocket: 503 with Retry-After 10; MQTT: closed",
}

_mqtt = MqttLimits()

FIXED: Final[Sequence[tuple[str, object, str]]] = (
    ("the name of an object, in bytes", model.MAX_NAME_BYTES, "`bad_name`"),
    ("a source, in bytes", model.MAX_SOURCE_BYTES, "`too_large`"),
    ("a credential, in characters", messages.MAX_CREDENTIAL_CHARS, "`unauthorised`"),
    ("parts (operations, acks, …) in one message", messages.MAX_PARTS, "`bad_message`"),
    ("messages over one WebSocket that are none of ours", websocket.MAX_BAD_MESSAGES, "1002"),
    ("the head of a request, in bytes", http_protocol.MAX_HEAD_BYTES, "400, closed"),
    ("headers of a request", http_protocol.MAX_HEADERS, "400, closed"),
    ("bodies on their way, all together, in bytes", http_protocol.MAX_BODIES_BYTES, "503"),
    ("a body with a Content-Encoding", "none", "415: nothing is ever unpacked"),
    ("WebSocket extensions (permessage-deflate)", "none", "not agreed on"),
    ("objects of one stream of events", events.MAX_OBJECTS, "400"),
    ("filters in one SUBSCRIBE", _mqtt.max_filters, "SUBACK 0x97 (0x80 on 3.1.1)"),
    ("keep alive on MQTT 5, in seconds", _mqtt.max_keep_alive_s, "the CONNACK says so"),
    ("wills that wait", _mqtt.max_wills, "published at once"),
)

BUFFERS: Final[Sequence[tuple[str, str, object, str]]] = (
    (
        "server",
        "connections the kernel holds until they are accepted, per port",
        listeners.BACKLOG,
        "the kernel drops them",
    ),
    (
        "server",
        "unsent bytes to a client before notifications are left out",
        listeners.MAX_UNSENT_BYTES,
        "it is told the newest of each object when it has read",
    ),
    (
        "server",
        "unsent answers to a client, in bytes",
        base.MAX_UNREAD_BYTES,
        "it is not read from until it has read; pings are not answered",
    ),
    (
        "server",
        "of a stream of events: what waits",
        "one notification per object",
        "the newer takes the place of the older",
    ),
    (
        "server",
        "MQTT: publishes of one client that are not answered",
        _mqtt.receive_maximum,
        "3.1.1: it is not read from; 5: 0x93",
    ),
    (
        "server",
        "MQTT: requests of one client that are not confirmed",
        _mqtt.max_requests,
        "it is not read from",
    ),
    (
        "server",
        "MQTT: packets sent to one client and not acked",
        f"{_mqtt.max_in_flight}, or its Receive Maximum",
        "as for unsent bytes",
    ),
    (
        "server",
        "messages of one client that wait for the app's hook",
        authorisation.MAX_WAITING,
        "`unavailable` for their registrations",
    ),
    (
        "server",
        "clients with such messages",
        authorisation.MAX_CONNECTIONS,
        "likewise",
    ),
    (
        "server",
        "notifications that wait for the app's hook",
        authorisation.MAX_ASKING,
        "the next scan of the session brings them",
    ),
    ("server", "answers of a hook that are remembered", hook.MAX_REMEMBERED, "all are forgotten"),
    ("server", "JWTs that are remembered", jwt.MAX_REMEMBERED, "all are forgotten"),
    (
        "server",
        "publishers whose rate is remembered",
        admission.MAX_BUCKETS,
        "those that were idle are forgotten",
    ),
    ("feed", "updates that wait for the disk, per shard", log.MAX_GROUP_ROWS, "`overloaded`"),
    ("store", "cells that wait for the disk, per shard", worker.MAX_WAITING, "`overloaded`"),
    (
        "links",
        "a frame between processes, in bytes",
        links.MAX_LINK_FRAME_BYTES,
        "the link is dropped",
    ),
    (
        "links",
        "unsent bytes to another process",
        framing.MAX_UNSENT_BYTES,
        "the link is dropped, and restored by digest",
    ),
    (
        "client",
        "messages that wait to be written",
        link.MAX_UNWRITTEN,
        "dropped: the protocol sends again what matters",
    ),
    (
        "client",
        "events that wait for the application",
        "two per object",
        "the newer takes the place of the older",
    ),
    (
        "publisher",
        "updates that wait to be sent",
        f"{publisher.MAX_WAITING}, {publisher.MAX_WAITING_BYTES} bytes",
        "publish() waits",
    ),
)

_FIXED = """
## Fixed

| | at most | what is beyond |
|---|---|---|
"""

_BUFFERS = """
## Buffers and queues

There are no queues of updates per client: what a client must still be told is derived.

| where | | at most | then |
|---|---|---|---|
"""

_SHEDDING = f"""
## Too much to do

A process measures every {pressure.LOOK_S:g} s by how much a timer comes late, and every second
its memory. If that is worse than `max_lag_ms`, or memory is short, {pressure.BAD_IN_A_ROW} times in
a row, it sheds load: clients that connect are told when to come back, publishes, reads and streams
that begin are refused for now, and those who are connected are served. It ends when
{pressure.GOOD_IN_A_ROW} measurements in a row were good, at half the lag. Memory is short above
`max_memory_bytes`, or if less than {pressure.LEAST_FREE:.0%} of the machine's is free. `roskva
status --json` shows `shedding`, `longest_lag_ms` and the counters `turned_away`, `shed_publishes`,
`shed_reads` and `too_fast`.
"""


def limits_page() -> str:
    return "".join(
        [
            _HEAD,
            *(_setting(setting) for setting in settings(LimitsConfig)),
            _FIXED,
            *(f"| {what} | {_figure(limit)} | {answer} |\n" for what, limit, answer in FIXED),
            _SHEDDING,
            _BUFFERS,
            *(
                f"| {where} | {what} | {_figure(limit)} | {answer} |\n"
                for where, what, limit, answer in BUFFERS
            ),
        ]
    )


def _setting(setting: Setting) -> str:
    default = "" if setting.default is None else _figure(setting.default)
    return f"| `{setting.key}` | {default} | {setting.description} | {ANSWERS[setting.key]} |\n"


def _figure(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)
