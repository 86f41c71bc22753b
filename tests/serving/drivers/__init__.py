"""One driver for each way in which a client can talk to a node."""

from typing import Final

from tests.serving.drivers.base import Driver
from tests.serving.drivers.library import LibraryDriver
from tests.serving.drivers.mqtt import Mqtt3Driver, Mqtt5Driver
from tests.serving.drivers.poll import PollDriver
from tests.serving.drivers.sse import SseDriver
from tests.serving.drivers.websocket import JsonDriver, MsgpackDriver

__all__ = ["CHANNELS", "Driver"]

CHANNELS: Final[dict[str, type[Driver]]] = {
    "library": LibraryDriver,
    "websocket-msgpack": MsgpackDriver,
    "websocket-json": JsonDriver,
    "mqtt-3.1.1": Mqtt3Driver,
    "mqtt-5": Mqtt5Driver,
    "sse": SseDriver,
    "poll": PollDriver,
}
