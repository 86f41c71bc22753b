"""SUBSCRIBE and UNSUBSCRIBE: operations of the core, answered when all of them are confirmed.

A registration is confirmed when it is durable. Until then the packet waits here; a status of the
core settles every packet up to its number that named the object.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

from roskva.channels.base import Gateway
from roskva.errors import LimitExceeded, Unauthorised
from roskva.host.mqtt import MqttDelivery
from roskva.model import Key, is_key
from roskva.wire.messages import Operation, OperationStatus
from roskva.wire.mqtt import encode
from roskva.wire.mqtt.codes import V3, V3_REFUSED_SUBSCRIPTION, Reason
from roskva.wire.mqtt.decode import Subscribe, Unsubscribe

_SEND_CURRENT: Final = 0
_DO_NOT_SEND: Final = 2

_REFUSED: Final = {
    Unauthorised.code: Reason.NOT_AUTHORISED,
    LimitExceeded.code: Reason.QUOTA_EXCEEDED,
}


class Request(msgspec.Struct, eq=False):
    id: int
    number: int
    subscribes: bool
    codes: list[int] = []
    waiting: dict[Key, list[int]] = {}
    """The places of a topic among the codes."""


class Requests:
    __slots__ = ("_max_filters", "_pending", "_version")

    def __init__(self, version: int, max_filters: int) -> None:
        self._version = version
        self._max_filters = max_filters
        self._pending: list[Request] = []

    def __len__(self) -> int:
        return len(self._pending)

    def subscribe(
        self, packet: Subscribe, number: int, to: MqttDelivery, front: Gateway
    ) -> list[Operation]:
        request = Request(packet.id, number, subscribes=True)
        operations: list[Operation] = []
        again: set[Key] = set()
        for i, wanted in enumerate(packet.filters):
            key = wanted.topic
            refusal = Reason.QUOTA_EXCEEDED if i >= self._max_filters else refusal_of(key, front)
            if refusal is not None:
                request.codes.append(self._refused(refusal))
                continue
            request.codes.append(min(wanted.qos, 1))
            request.waiting.setdefault(key, []).append(i)
            to.subscribed(key, wanted.qos, wanted.retain_handling != _DO_NOT_SEND)
            if wanted.retain_handling == _SEND_CURRENT:
                again.add(key)
                # Registering anew what is registered makes the core tell its version again.
                operations.append(Operation(key, register=False))
            operations.append(Operation(key))
        to.subscribed_anew(again)
        self._pending.append(request)
        return operations

    def unsubscribe(self, packet: Unsubscribe, number: int, to: MqttDelivery) -> list[Operation]:
        request = Request(packet.id, number, subscribes=False)
        operations: list[Operation] = []
        for i, key in enumerate(packet.topics):
            if not is_key(key):
                request.codes.append(Reason.NO_SUBSCRIPTION_EXISTED)
                continue
            existed = to.unsubscribed(key)
            request.codes.append(Reason.SUCCESS if existed else Reason.NO_SUBSCRIPTION_EXISTED)
            request.waiting.setdefault(key, []).append(i)
            operations.append(Operation(key, register=False))
        self._pending.append(request)
        return operations

    def settle(self, status: OperationStatus) -> None:
        for request in self._pending:
            places = request.waiting.get(status.object)
            if places is None or request.number > status.number:
                continue
            del request.waiting[status.object]
            if status.code is not None and request.subscribes:
                refusal = _REFUSED.get(status.code, Reason.UNSPECIFIED)
                for place in places:
                    request.codes[place] = self._refused(refusal)

    def answers(self) -> Iterator[bytes]:
        """Of all that has nothing left to wait for."""
        settled = [request for request in self._pending if not request.waiting]
        if settled:
            self._pending = [request for request in self._pending if request.waiting]
        for request in settled:
            answer = encode.suback if request.subscribes else encode.unsuback
            yield answer(self._version, request.id, request.codes)

    def _refused(self, reason: Reason) -> int:
        return V3_REFUSED_SUBSCRIPTION if self._version == V3 else reason


def refusal_of(topic: str, front: Gateway) -> Reason | None:
    if topic.startswith("$share/"):
        return Reason.SHARED_NOT_SUPPORTED
    if "+" in topic or "#" in topic:
        return Reason.WILDCARDS_NOT_SUPPORTED
    if not is_key(topic):
        return Reason.TOPIC_FILTER_INVALID
    try:
        front.check_channel(topic.partition("/")[0], "mqtt")
    except Unauthorised:
        return Reason.NOT_AUTHORISED
    return None
