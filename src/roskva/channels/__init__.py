"""How bytes reach clients: WebSocket, MQTT and HTTP, each thin over the core's sessions."""
