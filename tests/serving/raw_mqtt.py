"""An MQTT client that sends bytes, whatever the answers are."""

import asyncio
from typing import Self

from tests.channels.mqtt_side import split


class RawMqtt:
    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def answers(self, *packets: bytes) -> list[bytes]:
        """All that comes until the server hangs up, or has answered a PINGREQ after them."""
        self._writer.write(b"".join(packets) + b"\xc0\x00")
        got = b""
        async with asyncio.timeout(10):
            while True:
                part = await self._reader.read(65536)
                got += part
                if not part or got.endswith(b"\xd0\x00"):
                    return split(got)
