"""An MQTT client that sends bytes, whatever the answers are."""

import asyncio
from typing import Self

from tests.channels.mqtt_side import split
from tests.serving.nodes import PATIENCE_S


class RawMqtt:
    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def answers(self, until: int, *packets: bytes) -> list[bytes]:
        """All that comes until a packet of this type, or until the server hangs up."""
        self._writer.write(b"".join(packets))
        got = b""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                part = await self._reader.read(65536)
                got += part
                if not part or any(packet[0] >> 4 == until for packet in split(got)):
                    return split(got)
