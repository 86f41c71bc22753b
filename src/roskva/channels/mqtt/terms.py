"""CONNECT: who it is, what it asks for, on what terms it is let in, and how much it may ask for."""

import hashlib
import secrets
from typing import Final

import msgspec

from roskva import errors
from roskva.channels.base import MAX_UNREAD_BYTES, Gateway
from roskva.errors import BadInput, RoskvaError
from roskva.host.mqtt import MAX_ID
from roskva.model import NO_VERSION, Principal, Update, is_version, parse_key
from roskva.wire.mqtt import fields
from roskva.wire.mqtt.codes import V3, V5, Reason
from roskva.wire.mqtt.decode import ConnectPacket, PublishPacket, Will
from roskva.wire.mqtt.fields import NONE, Properties, Value, number

NO_LIMIT: Final = 2**32
_PATIENCE: Final = 1.5
"""Times the keep alive."""
_AROUND_TEXT: Final = 16
"""Bytes of a packet around its reason string, at most; ours are plain ASCII."""

# Why a client is not read from for a while.
FOR_SESSION: Final = 1
FOR_PUBLISHES: Final = 2
FOR_REQUESTS: Final = 4
FOR_UNREAD: Final = 8


class MqttLimits(msgspec.Struct, frozen=True):
    max_packet_bytes: int = 64 * 1024
    receive_maximum: int = 100
    """Publishes of one client that are not answered yet; it is not read from beyond that."""
    max_in_flight: int = 1000
    """Packets sent to one client and not acked, whatever its own Receive Maximum."""
    max_filters: int = 1000
    """In one SUBSCRIBE."""
    max_requests: int = 100
    """SUBSCRIBEs and UNSUBSCRIBEs of one client that are not confirmed yet."""
    max_unread_bytes: int = MAX_UNREAD_BYTES
    max_wills: int = 1000
    """Wills that wait; what comes beyond that is published at once."""
    max_keep_alive_s: int = 1800
    """What MQTT 5 clients are told to use if they ask for more, or for none."""
    sign_of_life_s: float = 600.0
    """How often the core hears of a client that says nothing it would hear of."""
    handshake_timeout_s: float = 10.0
    write_timeout_s: float = 30.0
    """To read answers to the end, once they are so many that the client is not read from."""
    closing_timeout_s: float = 5.0
    """For what was sent last, before the connection is cut."""


class Terms(msgspec.Struct, frozen=True, gc=False):
    client: str
    resume: bool
    keep: bool
    """The session outlives the connection."""
    expiry_s: int | None
    """For no longer than this; None: it has not said."""
    kept_s: float | None
    """For no longer than its app allows either."""
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


def terms_of(connect: ConnectPacket, limits: MqttLimits, kept_s: float | None) -> Terms:
    asked, expiry_s = connect.properties, None
    if connect.version == V5:
        expiry_s = number(asked, fields.SESSION_EXPIRY, 0)
        keep, keep_alive = expiry_s > 0, keep_alive_of(connect, limits)
    else:
        keep, keep_alive = not connect.clean, connect.keep_alive
    window = number(asked, fields.RECEIVE_MAXIMUM, MAX_ID)
    return Terms(
        client=connect.client or secrets.token_hex(8),
        resume=not connect.clean,
        keep=keep,
        expiry_s=expiry_s or None,
        kept_s=kept_s,
        patience_s=keep_alive * _PATIENCE if keep_alive else NO_LIMIT,
        receive_maximum=min(window, limits.max_in_flight),
        max_packet=number(asked, fields.MAXIMUM_PACKET_SIZE, NO_LIMIT),
        explains=bool(number(asked, fields.REQUEST_PROBLEM_INFORMATION, 1)),
    )


def keep_alive_of(connect: ConnectPacket, limits: MqttLimits) -> int:
    """On 5, where the server can say so, nobody is silent for as long as it likes."""
    return min(connect.keep_alive or limits.max_keep_alive_s, limits.max_keep_alive_s)


def connack_properties(connect: ConnectPacket, terms: Terms, limits: MqttLimits) -> Properties:
    """What MQTT 5 clients are told; what is not said here has the standard's default."""
    if connect.version != V5:
        return NONE
    said: dict[int, Value] = {
        fields.RECEIVE_MAXIMUM: limits.receive_maximum,
        fields.MAXIMUM_PACKET_SIZE: limits.max_packet_bytes,
        fields.WILDCARDS_AVAILABLE: 0,
        fields.SUBSCRIPTION_IDS_AVAILABLE: 0,
        fields.SHARED_AVAILABLE: 0,
    }
    if terms.kept_s is not None and (terms.expiry_s or 0) > terms.kept_s:
        said[fields.SESSION_EXPIRY] = int(terms.kept_s)
    if not connect.client:
        said[fields.ASSIGNED_CLIENT_ID] = terms.client
    keep_alive = keep_alive_of(connect, limits)
    if keep_alive != connect.keep_alive:
        said[fields.SERVER_KEEP_ALIVE] = keep_alive
    return said


def unacceptable(connect: ConnectPacket) -> Reason | None:
    """What is wrong with it, whoever it is from."""
    if fields.AUTHENTICATION_METHOD in connect.properties:
        return Reason.BAD_AUTHENTICATION_METHOD
    if not connect.client and connect.version == V3 and not connect.clean:
        return Reason.CLIENT_ID_NOT_VALID
    return None


def refusal(error: RoskvaError, connect: ConnectPacket) -> Reason:
    if isinstance(error, errors.Unauthorised):
        anonymous = connect.user is None and connect.password is None
        return Reason.NOT_AUTHORISED if anonymous else Reason.BAD_USER_NAME_OR_PASSWORD
    if isinstance(error, errors.Overloaded):
        return Reason.SERVER_BUSY
    if isinstance(error, errors.Unavailable):
        return Reason.SERVER_UNAVAILABLE
    return reason_of(type(error))


def row_id(principal: Principal, client: str) -> bytes:
    """Two principals, or apps, may use the same MQTT id and have nothing in common."""
    parts = [part.encode() for part in (principal.app or "", principal.name, client)]
    named = b"".join(len(part).to_bytes(4) + part for part in parts)
    return hashlib.sha256(named).digest()[:16]


# What it publishes.


class BadPayload(BadInput):
    """Not a version, where the app chooses its versions itself."""


_REASONS: Final[tuple[tuple[type[RoskvaError], Reason], ...]] = (
    (BadPayload, Reason.PAYLOAD_FORMAT_INVALID),
    (errors.BadName, Reason.TOPIC_NAME_INVALID),
    (errors.Unauthorised, Reason.NOT_AUTHORISED),
    (errors.LimitExceeded, Reason.QUOTA_EXCEEDED),
    (errors.Overloaded, Reason.QUOTA_EXCEEDED),
    (errors.TooLarge, Reason.QUOTA_EXCEEDED),
)


def reason_of(error: type[RoskvaError]) -> Reason:
    for kind, reason in _REASONS:
        if issubclass(error, kind):
            return reason
    return Reason.IMPLEMENTATION_SPECIFIC


def version_in(payload: bytes) -> int:
    if is_version(payload.decode("latin-1")):
        return int(payload)
    raise BadPayload("the payload is not a version: an integer from 0 to 2^63-1 in digits")


def update_of(packet: PublishPacket | Will, front: Gateway, now_us: int) -> Update:
    object = parse_key(packet.topic)
    front.check_channel(object.app, "mqtt")
    if front.assigns_versions(object.app):
        return Update(packet.topic, NO_VERSION, None, packet.payload, now_us)
    return Update(packet.topic, version_in(packet.payload), published_at=now_us)
