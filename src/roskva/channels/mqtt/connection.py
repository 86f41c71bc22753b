"""One MQTT connection: a TCP connection on one side, a session of the core on the other.

    GREETING ── CONNECT, let in ──► OPENING ── session granted ──► OPEN ──► CLOSED
        └──────── refused ─────────────┴──────── refused ───────────────────►┘

CONNACK is sent when the core has granted the session, so the older one of the same client is fenced
by then. A client need not wait for it: what it sends meanwhile is left unread, and so it is while
too much that it asked for is unanswered.
"""

import asyncio
import socket
from collections.abc import Sequence
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from roskva import errors
from roskva.channels.mqtt.publishes import Publishes
from roskva.channels.mqtt.requests import Requests
from roskva.channels.mqtt.terms import (
    FOR_PUBLISHES,
    FOR_REQUESTS,
    FOR_SESSION,
    FOR_UNREAD,
    NO_LIMIT,
    Terms,
    connack_properties,
    reason_of,
    refusal,
    row_id,
    terms_of,
    unacceptable,
    update_of,
)
from roskva.channels.peers import certificate_name
from roskva.core.effects import Attached, Closed, Event
from roskva.errors import RoskvaError
from roskva.host.mqtt import MqttDelivery
from roskva.model import MAX_SOURCE_BYTES, NOBODY, Principal
from roskva.net.unread import reset
from roskva.wire.messages import (
    PROTOCOL,
    ClientMessage,
    Notification,
    Operation,
    ServerError,
    ServerMessage,
    Sync,
)
from roskva.wire.mqtt import decode, encode, fields
from roskva.wire.mqtt.codes import V3, V3_CONNACK, V5, BadPacket, Reason
from roskva.wire.mqtt.fields import number

if TYPE_CHECKING:
    from roskva.channels.mqtt.channel import MqttChannel

CLOSING: Final = {
    None: Reason.KEEP_ALIVE_TIMEOUT,
    errors.Fenced.code: Reason.SESSION_TAKEN_OVER,
    errors.TokenRejected.code: Reason.NOT_AUTHORISED,
    errors.LimitExceeded.code: Reason.QUOTA_EXCEEDED,
    errors.Overloaded.code: Reason.SERVER_BUSY,
    errors.Unavailable.code: Reason.SERVER_UNAVAILABLE,
}
"""By what the core said last."""

MOST_ACKS: Final = 128
"""Gathered before the core hears of them."""


class MqttPhase(Enum):
    GREETING = 0
    OPENING = 1
    OPEN = 2
    CLOSED = 3


class MqttConnection(asyncio.Protocol):
    __slots__ = (
        *(
            "_address",
            "_connect",
            "_decoder",
            "_error",
            "_expiry_s",
            "_heard_in",
            "_held",
            "_held_in",
            "_number",
            "_phase",
        ),
        *("_publishes", "_quick", "_requests", "_row", "_session", "_taking", "_terms", "_will"),
        *("delivery", "front", "limits", "mqtt", "principal", "transport", "version"),
        "visited_in",
    )
    transport: asyncio.Transport

    def __init__(self, mqtt: "MqttChannel") -> None:
        self.mqtt = mqtt
        self.front = mqtt.front
        self.limits = mqtt.limits
        self.delivery = MqttDelivery(mqtt.encode_v3, mqtt.acks)
        self.principal = NOBODY
        self.version = V3
        self.visited_in = 0
        self._address: str | None = None
        """By which its connections are counted."""
        self._phase = MqttPhase.GREETING
        self._decoder = decode.Decoder(self.limits.max_packet_bytes)
        self._connect: decode.ConnectPacket | None = None
        """Until it is answered."""
        self._terms: Terms | None = None
        self._will: decode.Will | None = None
        self._row = b""
        """The client's id in the core, once it is attached."""
        self._session = 0
        self._number = 0
        self._requests: Requests | None = None
        self._publishes: Publishes | None = None
        self._held = 0
        self._held_in = 0
        """The turn in which it began to leave too many answers unread."""
        self._taking = False
        self._quick = False
        """Whatever arrives now begins with a new packet, and is taken at once."""
        self._heard_in = mqtt.turn
        self._expiry_s: int | None = None
        """How long the session is kept, if its client has said so when it left."""
        self._error: ServerError | None = None
        """Why the core is about to close it."""

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.delivery.connection = self
        self.delivery.address = self.front.writer.enter(self.transport)
        self.mqtt.visit_later(self, self.limits.handshake_timeout_s)
        self.mqtt.connections.enter(self.transport)
        self._address = self.mqtt.addresses.enter(self.transport)
        if self._address is None:
            self.transport.abort()

    def data_received(self, data: bytes) -> None:
        mqtt = self.mqtt
        self._heard_in = mqtt.turn
        if self._quick:
            data = self.delivery.acked(data)
            if mqtt.acks.count >= MOST_ACKS or not mqtt.taking_acks_soon:
                mqtt.acks_gathered()
        if data:
            self._decoder.feed(data)
            self._take_packets()

    def pause_writing(self) -> None:
        self._hand_over(self.delivery.pause())

    def resume_writing(self) -> None:
        self._hand_over(self.delivery.resume())
        self.release(FOR_UNREAD)

    def connection_lost(self, exc: Exception | None) -> None:
        self.front.writer.leave(self.delivery.address)
        self._end()
        self.mqtt.forget(self)
        self.mqtt.addresses.leave(self._address)
        self.mqtt.connections.leave(self.transport)
        if self._row:
            self._hand_over(Closed(self.delivery, self._expiry_s))
            self._leave_will()
        self.delivery.connection = None

    def visit(self) -> None:
        """From time to time: is the client still there?"""
        match self._phase:
            case MqttPhase.CLOSED:
                self.transport.abort()
            case MqttPhase.GREETING:
                self.hang_up(Reason.KEEP_ALIVE_TIMEOUT)
            case MqttPhase.OPENING:  # the core has its own patience with shards
                self.mqtt.visit_later(self, self.limits.handshake_timeout_s)
            case MqttPhase.OPEN:
                self._check_presence()

    def _check_presence(self) -> None:
        unread_s = self.mqtt.turn - self._held_in if self._held & FOR_UNREAD else 0
        if unread_s > self.limits.write_timeout_s:
            self.mqtt.counters["unread_timeouts"] += 1
            reset(self.transport)
            return
        patience = self._terms.patience_s if self._terms is not None else NO_LIMIT
        silent = self.mqtt.turn - self._heard_in
        if silent > patience and not self._held & FOR_PUBLISHES:
            self.mqtt.counters["keep_alive_timeouts"] += 1
            self.hang_up(Reason.KEEP_ALIVE_TIMEOUT)
            return
        self.say()
        self.mqtt.visit_later(self, min(max(patience - silent, 0) + 1, self.limits.sign_of_life_s))

    # What the core says.

    def send(self, message: ServerMessage) -> Sequence[Notification]:
        if message.error is not None:
            self._error = message.error
        if self._phase is MqttPhase.OPENING and message.session is not None:
            self._open(message)
        requests = self._requests
        handed: list[Notification] = []
        if self._phase is not MqttPhase.OPEN:
            return handed
        if message.statuses and requests is not None:
            for status in message.statuses:
                requests.settle(status)
            self._answer_requests(requests)
        if message.notifications:
            packets, left_out = self.delivery.tell(message)
            if packets:
                self.transport.write(b"".join([packet for _, packet in packets]))
                handed = [notification for notification, _ in packets]
            self.mqtt.acks_gathered()
            self._hand_over(left_out)
        for status in message.statuses:
            self.delivery.settled(status.object, status.registered)
        return handed

    def close(self) -> None:
        error = self._error
        reason = CLOSING.get(error.code if error else None, Reason.UNSPECIFIED)
        if reason is Reason.SERVER_UNAVAILABLE and self._phase is MqttPhase.OPEN:
            reason, self._will = Reason.SERVER_SHUTTING_DOWN, None
        if reason is Reason.SESSION_TAKEN_OVER and self._will is not None and self._will.delay:
            self._will = None  # the client is back in time
        self.hang_up(reason, error.text if error else "")

    # What the client says.

    def _take_packets(self) -> None:
        if self._taking:
            return  # the loop below goes on
        self._taking, self._quick, decoder = True, False, self._decoder
        try:
            while not self._held and self._phase is not MqttPhase.CLOSED:
                packet = decoder.next()
                if packet is None:
                    break
                self._take(packet)
        except BadPacket as bad:
            self._refuse(bad)
        finally:
            self._taking = False
            if self._publishes is not None:
                self._publishes.pass_on()
        self._quick = self._phase is MqttPhase.OPEN and not self._held and decoder.idle()

    def _take(self, packet: decode.Packet) -> None:
        if self._phase is MqttPhase.GREETING:
            if not isinstance(packet, decode.ConnectPacket):
                raise BadPacket(Reason.PROTOCOL_ERROR, "the first packet is not a CONNECT")
            self._greet(packet)
            return
        assert self._phase is MqttPhase.OPEN, "nothing is taken while the session is being opened"
        match packet:
            case decode.PubAck(id=id):
                self.delivery.acked_id(id)
                self.mqtt.acks_gathered()
            case decode.PublishPacket():
                self._publisher().receive(packet)
            case decode.PubRel():
                self._publisher().release(packet)
            case decode.Subscribe() | decode.Unsubscribe():
                self._request(packet)
            case decode.PingReq():
                self.answer(encode.PINGRESP)
                self.say()
            case decode.DisconnectPacket():
                self._goodbye(packet)
            case decode.ConnectPacket():
                raise BadPacket(Reason.PROTOCOL_ERROR, "a second CONNECT")

    def _refuse(self, bad: BadPacket) -> None:
        self.mqtt.counters["bad_packets"] += 1
        if isinstance(bad, decode.UnsupportedVersion) and bad.level:
            version = V5 if bad.level > V5 else V3
            self.transport.write(encode.connack(version, bad.reason))
        self.hang_up(bad.reason, str(bad))

    def _request(self, packet: decode.Subscribe | decode.Unsubscribe) -> None:
        requests = self._requests
        if requests is None:
            requests = self._requests = Requests(self.version, self.limits.max_filters)
        if isinstance(packet, decode.Subscribe):
            operations = requests.subscribe(packet, self._number + 1, self.delivery, self.front)
        else:
            operations = requests.unsubscribe(packet, self._number + 1, self.delivery)
        if len(requests) >= self.limits.max_requests:
            self.hold(FOR_REQUESTS)
        if operations:
            self.say(operations)
        else:
            self._answer_requests(requests)

    def _answer_requests(self, requests: Requests) -> None:
        for answer in requests.answers():
            self.answer(answer)
        if len(requests) < self.limits.max_requests:
            self.release(FOR_REQUESTS)

    def _publisher(self) -> Publishes:
        if self._publishes is None:
            self._publishes = Publishes(self)
        return self._publishes

    def _goodbye(self, packet: decode.DisconnectPacket) -> None:
        expiry = packet.properties.get(fields.SESSION_EXPIRY)
        kept = self._terms is not None and self._terms.keep
        if expiry and not kept:
            raise BadPacket(Reason.PROTOCOL_ERROR, "a session that was not to be kept")
        if expiry is not None and kept:
            self._expiry_s = number(packet.properties, fields.SESSION_EXPIRY, 0)
        if expiry == 0 and kept:
            self.say(syncs=[Sync(b"", [])])  # nothing is left that would outlive it
        if packet.reason == Reason.SUCCESS:
            self._will = None
        self._end()

    # The beginning and the end.

    def _greet(self, connect: decode.ConnectPacket) -> None:
        self.version = connect.version
        self._phase = MqttPhase.OPENING
        refused = unacceptable(connect)
        if refused is None and self.mqtt.connections.full:
            refused = Reason.SERVER_BUSY
        if refused is not None:
            self._turn_away(refused)
            return
        self.hold(FOR_SESSION)
        # The user name is the app, if a credential alone does not say whose it is.
        app, password = connect.user or None, connect.password
        credential = None if password is None else password.decode(errors="replace")
        certificate = certificate_name(self.transport)
        self.front.identify(app, credential, certificate, partial(self._identified, connect))

    def _identified(self, connect: decode.ConnectPacket, found: Principal | RoskvaError) -> None:
        if self._phase is not MqttPhase.OPENING:
            return  # it has gone meanwhile
        if isinstance(found, RoskvaError):
            self._turn_away(refusal(found, connect))
            return
        kept_s = self.front.keeps_clients_s(found.app or "")
        found = found.at(self._address or "")
        terms = self._terms = terms_of(connect, self.limits, kept_s)
        try:
            if found.app is not None:
                self.front.check_channel(found.app, "mqtt")
            if connect.will is not None and self.version == V5:
                update_of(connect.will, self.front, 0)  # to say at once what is wrong with it
        except RoskvaError as error:
            self._turn_away(reason_of(type(error)), str(error))
            return
        self.principal, self._connect = found, connect
        self._will = connect.will
        if self.version == V5:
            self.delivery.encode = self.mqtt.encode_v5
        if terms.patience_s == NO_LIMIT:  # then the network has to notice that nobody is there
            peer = self.transport.get_extra_info("socket")
            if peer is not None:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._row = row_id(found, terms.client)
        self.mqtt.client_is_back(self._row, terms.resume)
        application = terms.client if len(terms.client.encode()) <= MAX_SOURCE_BYTES else ""
        self._hand_over(
            Attached(
                *(self.delivery, self._row, application, terms.resume, terms.keep, found),
                terms.expiry_s,
            )
        )

    def _turn_away(self, reason: Reason, text: str = "") -> None:
        self.mqtt.counters["refused"] += 1
        self.hang_up(reason, text)

    def _open(self, message: ServerMessage) -> None:
        """The session is granted; `message` is the first that names it."""
        connect, terms, session = self._connect, self._terms, message.session
        assert connect is not None and terms is not None and session is not None  # noqa: PT018
        if not self.mqtt.connections.stays(self.transport):
            self._turn_away(Reason.SERVER_BUSY)
            return
        self._session = session
        resumed = message.digest is not None and message.digest.count > 0
        self.delivery.begin(terms.receive_maximum, terms.max_packet, resumed)
        self._phase, self._connect = MqttPhase.OPEN, None
        said = connack_properties(connect, terms, self.limits)
        self.answer(encode.connack(self.version, Reason.SUCCESS, resumed, said))
        self.mqtt.visit_later(self, min(terms.patience_s + 1, self.limits.sign_of_life_s))
        self.release(FOR_SESSION)

    def hang_up(self, reason: Reason, text: str = "") -> None:
        """Say why, as far as the client's version has words for it."""
        if self._phase is MqttPhase.CLOSED:
            return
        if self._phase is MqttPhase.OPENING and (self.version == V5 or reason in V3_CONNACK):
            said = {fields.REASON_STRING: why} if (why := self.explain(text)) else fields.NONE
            self.transport.write(encode.connack(self.version, reason, found=said))
        elif self._phase is MqttPhase.OPEN and self.version == V5:
            self.answer(encode.disconnect(reason, self.explain(text)))
        self._end()

    def _end(self) -> None:
        if self._phase is not MqttPhase.CLOSED:
            self._phase, self._quick = MqttPhase.CLOSED, False
            self.delivery.end()
            self.transport.close()
            self.mqtt.visit_later(self, self.limits.closing_timeout_s)

    def _leave_will(self) -> None:
        will, self._will = self._will, None
        if will is None or self._terms is None:
            return
        publishes = self._publisher()
        if will.delay and self._terms.keep:
            self.mqtt.will_later(self._row, will.delay, lambda: publishes.will(will))
        else:
            publishes.will(will)

    # To the core.

    def say(self, operations: Sequence[Operation] = (), syncs: Sequence[Sync] = ()) -> None:
        self._number += 1
        message = ClientMessage(
            PROTOCOL, self._session, self._number, None, list(operations), [], list(syncs)
        )
        self.mqtt.take_acks()
        self.front.received(self.delivery, self.principal, message)

    def _hand_over(self, event: Event | None) -> None:
        """Behind what clients have acked before it."""
        if event is not None:
            self.mqtt.take_acks()
            self.front.step(event)

    # To the client.

    def answer(self, *packets: bytes) -> None:
        """Not notifications, and small; but a client that does not read may ask for many."""
        if self._phase is not MqttPhase.OPEN:
            return
        if self._terms is not None and max(map(len, packets)) > self._terms.max_packet:
            self._end()
            return
        self.transport.write(b"".join(packets))
        if self.transport.get_write_buffer_size() > self.limits.max_unread_bytes:
            self._hold_unread()

    def _hold_unread(self) -> None:
        if not self._held & FOR_UNREAD:
            self._held_in = self.mqtt.turn
            self.mqtt.visit_later(self, self.limits.write_timeout_s + 1)
        self.hold(FOR_UNREAD)

    def explain(self, text: str) -> str:
        return "" if self._terms is None else self._terms.reason_string(text)

    # Reading.

    def hold(self, why: int) -> None:
        if not self._held:
            self.transport.pause_reading()
        self._held |= why
        self._quick = False

    def release(self, why: int) -> None:
        if not self._held & why:
            return
        self._held &= ~why
        if not self._held and not self.transport.is_closing():
            self.transport.resume_reading()
            self._take_packets()
