"""As much of an MQTT 3.1.1 client as it takes to be told of one object."""

import asyncio
import secrets
import ssl
from types import TracebackType
from typing import Final, Self

import msgspec

from roskva.errors import Unauthorised
from roskva.wire.mqtt.fields import binary, string, varint

_KEEP_ALIVE_S: Final = 60
_CONNACK, _PUBLISH, _SUBACK = 2, 3, 9
_CLEAN, _WITH_CREDENTIAL = 0x02, 0xC0
_REFUSED: Final = 0x80


class MqttAddress(msgspec.Struct, frozen=True):
    host: str
    port: int
    context: ssl.SSLContext | None


class MqttListener:
    """Used as `async with`: it is subscribed when it is entered. It leaves no row behind."""

    def __init__(self, at: MqttAddress, app: str, name: str, credential: str | None) -> None:
        self._at = at
        self._app, self._topic = app, f"{app}/{name}"
        self._credential = credential

    async def __aenter__(self) -> Self:
        at = self._at
        self._reader, self._writer = await asyncio.open_connection(
            at.host, at.port, ssl=at.context, server_hostname=at.host if at.context else None
        )
        try:
            await self._subscribe()
        except BaseException:
            self._writer.close()
            raise
        return self

    async def _subscribe(self) -> None:
        flags, shown = _CLEAN, b""
        if self._credential is not None:
            flags |= _WITH_CREDENTIAL
            shown = string(self._app) + binary(self._credential.encode())
        head = string("MQTT") + bytes((4, flags)) + _KEEP_ALIVE_S.to_bytes(2)
        self._send(0x10, head + string(f"roskva-probe-{secrets.token_hex(4)}") + shown)
        _, body = await self._await(_CONNACK)
        if body[1]:
            raise Unauthorised(f"MQTT refuses to connect ({body[1]})")
        self._send(0x82, b"\x00\x01" + string(self._topic) + b"\x01")
        _, body = await self._await(_SUBACK)
        if body[2] == _REFUSED:
            raise Unauthorised("MQTT refuses to subscribe")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._writer.close()

    async def version(self) -> int | None:
        """The next that it is told; None: unknown."""
        flags, body = await self._await(_PUBLISH)
        topic = 2 + int.from_bytes(body[:2])
        payload = body[topic:]
        if flags & 0x06:
            self._send(0x40, payload[:2])
            payload = payload[2:]
        return None if payload == b"?" else int(payload)

    def _send(self, first: int, body: bytes) -> None:
        self._writer.write(bytes((first,)) + varint(len(body)) + body)

    async def _await(self, wanted: int) -> tuple[int, bytes]:
        while True:
            kind, flags, body = await self._packet()
            if kind == wanted:
                return flags, body

    async def _packet(self) -> tuple[int, int, bytes]:
        first = (await self._reader.readexactly(1))[0]
        length, shift = 0, 0
        while True:
            byte = (await self._reader.readexactly(1))[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return first >> 4, first & 15, await self._reader.readexactly(length)
