"""As much of an MQTT 3.1.1 client as it takes to be told of one object."""

import asyncio
import secrets
from types import TracebackType
from typing import Final, Self

_KEEP_ALIVE_S: Final = 60
_CONNACK, _PUBLISH, _SUBACK = 2, 3, 9


class MqttListener:
    """Used as `async with`: it is subscribed when it is entered."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._host, self._port, self._topic = host, port, topic

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        name = f"roskva-probe-{secrets.token_hex(4)}"
        head = _text("MQTT") + b"\x04\x02" + _KEEP_ALIVE_S.to_bytes(2)
        self._send(0x10, head + _text(name))
        await self._await(_CONNACK)
        self._send(0x82, b"\x00\x01" + _text(self._topic) + b"\x01")
        await self._await(_SUBACK)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._writer.close()

    async def version(self) -> int:
        """The next that it is told."""
        while True:
            _, flags, body = await self._await(_PUBLISH)
            topic = 2 + int.from_bytes(body[:2])
            payload = body[topic:]
            if flags & 0x06:
                self._send(0x40, payload[:2])
                payload = payload[2:]
            if payload != b"?":
                return int(payload)

    def _send(self, first: int, body: bytes) -> None:
        assert len(body) < 128  # nothing here is longer
        self._writer.write(bytes((first, len(body))) + body)

    async def _await(self, wanted: int) -> tuple[int, int, bytes]:
        while True:
            kind, flags, body = await self._packet()
            if kind == wanted:
                return kind, flags, body

    async def _packet(self) -> tuple[int, int, bytes]:
        first = (await self._reader.readexactly(1))[0]
        length, shift = 0, 0
        while True:
            byte = (await self._reader.readexactly(1))[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return first >> 4, first & 15, await self._reader.readexactly(length)


def _text(text: str) -> bytes:
    return len(text).to_bytes(2) + text.encode()
