"""MQTT 3.1.1 and 5: packets to bytes and back. Nothing here knows connections."""
