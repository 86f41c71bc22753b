"""CONNECT: who it is, what it asks for, and on what terms it is let in."""

import hashlib
import secrets
from collections.abc import Coroutine
from typing import Any, Final

import msgspec

from roskva.channels.base import Front
from roskva.channels.mqtt import properties
from roskva.channels.mqtt.codes import V3, V5, Reason
from roskva.channels.mqtt.decode import Connect
from roskva.channels.mqtt.limits import MqttLimits
from roskva.channels.mqtt.properties import NONE, Properties, Value, number
from roskva.channels.mqtt.publishing import reason_of, update_of
from roskva.core.packets import MAX_ID
from roskva.errors import Overloaded, RoskvaError, Unauthorised, Unavailable
from roskva.model import Principal

FOREVER: Final = 0xFFFFFFFF
"""A session expiry; any but 0 is taken for it."""
NO_LIMIT: Final = 2**32
_PATIENCE: Final = 1.5
"""Times the keep alive."""
_AROUND_TEXT: Final = 16
"""Bytes of a packet around its reason string, at most; ours are plain ASCII."""


class Terms(msgspec.Struct, frozen=True, gc=False):
    client: str
    resume: bool
    keep: bool
    """The session outlives the connection."""
    patience_s: float
    """How long the client may be silent."""
    receive_maximum: int
    max_packet: int
    explains: bool
    """Reason strings are welcome."""

    def reason_string(self, text: str) -> str:
        """Nothing, if the client does not want it or it does not fit."""
        fits = len(text) + _AROUND_TEXT <= self.max_packet
        return text if self.explains and fits else ""


def terms_of(connect: Connect, limits: MqttLimits) -> Terms:
    asked = connect.properties
    if connect.version == V5:
        keep = number(asked, properties.SESSION_EXPIRY, 0) > 0
        keep_alive = keep_alive_of(connect, limits)
    else:
        keep, keep_alive = not connect.clean, connect.keep_alive
    window = number(asked, properties.RECEIVE_MAXIMUM, MAX_ID)
    return Terms(
        client=connect.client or secrets.token_hex(8),
        resume=not connect.clean,
        keep=keep,
        patience_s=keep_alive * _PATIENCE if keep_alive else NO_LIMIT,
        receive_maximum=min(window, limits.max_in_flight),
        max_packet=number(asked, properties.MAXIMUM_PACKET_SIZE, NO_LIMIT),
        explains=bool(number(asked, properties.REQUEST_PROBLEM_INFORMATION, 1)),
    )


def keep_alive_of(connect: Connect, limits: MqttLimits) -> int:
    """On 5, where the server can say so, nobody is silent for as long as it likes."""
    return min(connect.keep_alive or limits.max_keep_alive_s, limits.max_keep_alive_s)


def connack_properties(connect: Connect, terms: Terms, limits: MqttLimits) -> Properties:
    """What MQTT 5 clients are told; what is not said here has the standard's default."""
    if connect.version != V5:
        return NONE
    said: dict[int, Value] = {
        properties.RECEIVE_MAXIMUM: limits.receive_maximum,
        properties.MAXIMUM_PACKET_SIZE: limits.max_packet_bytes,
        properties.WILDCARDS_AVAILABLE: 0,
        properties.SUBSCRIPTION_IDS_AVAILABLE: 0,
        properties.SHARED_AVAILABLE: 0,
    }
    if terms.keep and connect.properties[properties.SESSION_EXPIRY] != FOREVER:
        said[properties.SESSION_EXPIRY] = FOREVER
    if not connect.client:
        said[properties.ASSIGNED_CLIENT_ID] = terms.client
    keep_alive = keep_alive_of(connect, limits)
    if keep_alive != connect.keep_alive:
        said[properties.SERVER_KEEP_ALIVE] = keep_alive
    return said


Identified = Principal | Reason
"""Who it is, or why it is not let in."""


def identify(
    connect: Connect, front: Front, certificate: str | None
) -> Identified | Coroutine[Any, Any, Identified]:
    """The user name is the app, if a credential alone does not say whose it is."""
    if properties.AUTHENTICATION_METHOD in connect.properties:
        return Reason.BAD_AUTHENTICATION_METHOD
    if not connect.client and connect.version == V3 and not connect.clean:
        return Reason.CLIENT_ID_NOT_VALID
    try:
        found = front.identify(connect.user or None, _credential(connect), certificate)
        if connect.will is not None and connect.version == V5:
            update_of(connect.will, front)  # to say at once what would be wrong with it
    except RoskvaError as error:
        return _refusal(error, connect)
    return found if isinstance(found, Principal) else _identify_later(found, connect)


async def _identify_later(
    found: Coroutine[Any, Any, Principal], connect: Connect
) -> Principal | Reason:
    try:
        return await found
    except RoskvaError as error:
        return _refusal(error, connect)


def _credential(connect: Connect) -> str | None:
    return None if connect.password is None else connect.password.decode(errors="replace")


def _refusal(error: RoskvaError, connect: Connect) -> Reason:
    if isinstance(error, Unauthorised):
        anonymous = connect.user is None and connect.password is None
        return Reason.NOT_AUTHORISED if anonymous else Reason.BAD_USER_NAME_OR_PASSWORD
    if isinstance(error, Overloaded):
        return Reason.SERVER_BUSY
    if isinstance(error, Unavailable):
        return Reason.SERVER_UNAVAILABLE
    return reason_of(type(error))


def row_id(principal: Principal, client: str) -> bytes:
    """Two principals, or apps, may use the same MQTT id and have nothing in common."""
    parts = [part.encode() for part in (principal.app or "", principal.name, client)]
    named = b"".join(len(part).to_bytes(4) + part for part in parts)
    return hashlib.sha256(named).digest()[:16]
