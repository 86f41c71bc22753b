"""paho-mqtt, unmodified, with a persistent session."""

import asyncio
import uuid
from typing import Any, ClassVar, Self

from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions
from tests.serving.drivers.base import Driver, Told
from tests.serving.nodes import PATIENCE_S, Node

WEEK_S = 7 * 24 * 3600


class MqttDriver(Driver):
    protocol: ClassVar[MQTTProtocolVersion]
    not_a_version: ClassVar[str]
    """How a publish is answered that is none."""

    def __init__(self, node: Node, application: str = "", qos: int = 1) -> None:
        super().__init__(node, application or uuid.uuid4().hex)
        self.qos = qos
        self.clean = False
        """Whether it wants to begin anew when it connects."""
        self.resumed = False
        self._paho: paho.Client | None = None

    async def _connect(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._greeted: asyncio.Future[bool] = self._loop.create_future()
        self._granted: dict[int, asyncio.Future[list[ReasonCode]]] = {}
        self._published: dict[int, asyncio.Future[ReasonCode]] = {}
        client = self._paho = self._new()
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_subscribe = self._on_subscribe
        client.on_publish = self._on_publish
        client.on_message = self._on_message
        await asyncio.to_thread(
            client.connect, "127.0.0.1", self.node.mqtt_port, **self._connect_options()
        )
        client.loop_start()
        self.resumed = await self._greeted

    def _new(self) -> paho.Client:
        return paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.application,
            clean_session=self.clean if self.protocol == MQTTProtocolVersion.MQTTv311 else None,
            protocol=self.protocol,
            manual_ack=True,
            reconnect_on_failure=False,
        )

    def _connect_options(self) -> dict[str, Any]:
        return {}

    async def disconnect(self) -> None:
        client, self._paho = self._paho, None
        if client is not None:
            client.disconnect()
            await asyncio.to_thread(client.loop_stop)

    async def _register(self, keys: list[str], version: int | None) -> None:
        codes = await self.subscribe(*keys)
        assert not any(code.is_failure for code in codes), codes

    async def subscribe(self, *topics: str) -> list[ReasonCode]:
        assert self._paho is not None
        answer = self._loop.create_future()
        _, id = self._paho.subscribe([(topic, self._options()) for topic in topics])
        assert id is not None
        self._granted[id] = answer
        codes: list[ReasonCode] = await answer
        return codes

    def _options(self) -> Any:
        return self.qos

    async def publish(self, topic: str, payload: bytes, retain: bool = False) -> ReasonCode:
        """What it was answered with."""
        assert self._paho is not None
        answer = self._loop.create_future()
        self._published[self._paho.publish(topic, payload, qos=1, retain=retain).mid] = answer
        async with asyncio.timeout(PATIENCE_S):
            code: ReasonCode = await answer
        return code

    async def ack(self, told: Told) -> None:
        assert self._paho is not None
        if told.receipt.qos:
            self._paho.ack(told.receipt.mid, told.receipt.qos)

    def twin(self) -> Self:
        twin = type(self)(self.node, self.application)
        twin.keys = list(self.keys)
        return twin

    # On paho's thread.

    def _on_connect(
        self, client: paho.Client, data: object, flags: Any, reason: ReasonCode, _: object
    ) -> None:
        def take() -> None:
            if reason.is_failure:
                self._greeted.set_exception(ConnectionError(str(reason)))
            else:
                self._greeted.set_result(flags.session_present)

        self._loop.call_soon_threadsafe(take)

    def _on_disconnect(
        self, client: paho.Client, data: object, flags: Any, reason: ReasonCode, _: object
    ) -> None:
        if client is self._paho:
            self._loop.call_soon_threadsafe(self._end, str(reason))

    def _on_subscribe(
        self, client: paho.Client, data: object, id: int, codes: list[ReasonCode], _: object
    ) -> None:
        self._loop.call_soon_threadsafe(lambda: self._granted.pop(id).set_result(codes))

    def _on_publish(
        self, client: paho.Client, data: object, id: int, code: ReasonCode, _: object
    ) -> None:
        self._loop.call_soon_threadsafe(lambda: self._published.pop(id).set_result(code))

    def _on_message(self, client: paho.Client, data: object, message: paho.MQTTMessage) -> None:
        self._loop.call_soon_threadsafe(self.inbox.put_nowait, self._told(message))

    def _told(self, message: paho.MQTTMessage) -> Told:
        text = bytes(message.payload)
        if text == b"?":
            return Told(message.topic, None, None, message)
        beside = dict(getattr(message.properties, "UserProperty", []))
        if "version" in beside:
            return Told(message.topic, int(beside["version"]), text, message)
        if text.isdigit():
            return Told(message.topic, int(text), None, message)
        return Told(message.topic, None, text, message)


class Mqtt3Driver(MqttDriver):
    protocol = MQTTProtocolVersion.MQTTv311
    tells_payload_and_version = False
    fenced = "Unspecified error"
    """Nothing: this version of MQTT has no word for it."""
    not_a_version = "Success"


class Mqtt5Driver(MqttDriver):
    protocol = MQTTProtocolVersion.MQTTv5
    fenced = "Session taken over"
    not_a_version = "Payload format invalid"
    receive_maximum: int | None = None
    expiry_s = WEEK_S

    def _connect_options(self) -> dict[str, Any]:
        said = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        said.SessionExpiryInterval = 0 if self.clean else self.expiry_s
        if self.receive_maximum is not None:
            said.ReceiveMaximum = self.receive_maximum
        return {"clean_start": self.clean, "properties": said}

    def _options(self) -> Any:
        return SubscribeOptions(qos=self.qos)
