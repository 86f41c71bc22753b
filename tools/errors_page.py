"""docs/errors.md, from the errors and from what each channel makes of them."""

import inspect
from collections.abc import Iterator

from roskva import errors
from roskva.channels.conversation import MAX_BAD_MESSAGES
from roskva.channels.http import status_of
from roskva.channels.mqtt.connection import CLOSING
from roskva.channels.mqtt.terms import reason_of
from roskva.channels.websocket import close_code
from roskva.errors import BadMessage, Refused, RoskvaError, Unavailable
from roskva.wire.mqtt.codes import V3_CONNACK, Reason
from roskva.wire.websocket import CloseCode

_HEAD = """\
# Errors

Every error has a code, which is the same everywhere: in a message over WebSocket, in the body of
an HTTP answer (`{"error": {"code": …, "text": …, "retriable": …}}`), in the libraries as a class
of `roskva`. The text beside it is for people and may change. This page is made from the code.

*Retriable*: the same again may succeed later, and the libraries do try again. *Fatal*: the session
is over, and the client shakes hands again.

| code | meaning | retriable | fatal |
|---|---|---|---|
"""

_CHANNELS = f"""
## What each channel makes of them

HTTP answers with a status; where it is retriable, with Retry-After as well. Over WebSocket an error
is a message, and the connection goes on unless the last column has a code that it is closed with. A
frame that cannot be read closes it at once, and so do {MAX_BAD_MESSAGES} messages that are none of
ours. When a session ends for a reason of ours, the client is told, often with "not before", and
closed with {CloseCode.COME_BACK}.

MQTT 5 has a reason code for a connection (CONNACK, or DISCONNECT) and one for a publish (PUBACK).
On 3.1.1 a CONNACK has few codes, shown in brackets; for anything else the connection is closed. Who
is not let in hears {{anonymous}} without a credential, and {{known}} with one. On
3.1.1 a publish that failed and may be tried again closes the connection instead of being
acknowledged, so that the client sends it again; one that will never succeed is acknowledged,
counted and logged.

| code | HTTP | MQTT connection | MQTT publish | WebSocket closes |
|---|---|---|---|---|
"""


def errors_page() -> str:
    kinds: list[type[RoskvaError]] = [RoskvaError, *_below(RoskvaError)]
    rows = [
        f"| `{k.code}` | {inspect.getdoc(k)} | {_yes(k.retriable)} | {_yes(k.fatal)} |\n"
        for k in kinds
    ]
    channels = [
        f"| `{k.code}` | {status_of(k)} | {_connection(k)} | {_reason(reason_of(k))} "
        f"| {_websocket(k)} |\n"
        for k in kinds
    ]
    text = _CHANNELS.format(
        anonymous=_answer(Reason.NOT_AUTHORISED), known=_answer(Reason.BAD_USER_NAME_OR_PASSWORD)
    )
    return "".join([_HEAD, *rows, text, *channels])


def _below(kind: type[RoskvaError]) -> Iterator[type[RoskvaError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from _below(child)


def _yes(yes: bool) -> str:
    return "yes" if yes else ""


def _reason(reason: Reason) -> str:
    return f"0x{reason:02x} {reason.name.lower().replace('_', ' ')}"


def _connection(kind: type[RoskvaError]) -> str:
    reason = CLOSING.get(kind.code)
    return "" if reason is None else _answer(reason)


def _answer(reason: Reason) -> str:
    old = f" ({V3_CONNACK[reason]})" if reason in V3_CONNACK else ""
    return _reason(reason) + old


def _websocket(kind: type[RoskvaError]) -> str:
    if issubclass(kind, BadMessage):
        return str(close_code(kind))
    ends = kind.fatal or kind.code in CLOSING or issubclass(kind, Unavailable)
    return str(CloseCode.COME_BACK) if ends and issubclass(kind, (Refused, Unavailable)) else ""
