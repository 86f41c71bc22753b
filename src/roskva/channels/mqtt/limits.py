"""How much an MQTT client may ask for, and why it is not read from for a while."""

from typing import Final

import msgspec

from roskva.channels.base import MAX_UNREAD_BYTES

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
    handshake_timeout_s: float = 10.0
    closing_timeout_s: float = 5.0
    """For what was sent last, before the connection is cut."""
