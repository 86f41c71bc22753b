"""MQTT 3.1.1 and 5: SUBSCRIBE registers, PUBLISH notifies, PUBACK acks. See docs/mqtt.md.

`connection.py` joins one TCP connection to the core's session, with `host/mqtt.py` for what goes to
the client, `requests.py` for subscriptions under way and `publishes.py` for what clients publish;
`channel.py` is what the connections of a process share. The bytes are in `wire/mqtt/`.
"""

from roskva.channels.mqtt.channel import MqttChannel
from roskva.channels.mqtt.terms import MqttLimits

__all__ = ["MqttChannel", "MqttLimits"]
