"""MQTT 3.1.1 and 5: SUBSCRIBE registers, PUBLISH notifies, PUBACK acks. See docs/mqtt.md.

`decode.py` and `encode.py` know the bytes and nothing else; `connection.py` joins one TCP
connection to the core's session, with `delivery.py` for what goes to the client, `requests.py` for
subscriptions under way and `publishing.py` for what clients publish; `channel.py` is what the
connections of a process share.
"""

from roskva.channels.mqtt.channel import MqttChannel, mqtt_factory
from roskva.channels.mqtt.limits import MqttLimits

__all__ = ["MqttChannel", "MqttLimits", "mqtt_factory"]
