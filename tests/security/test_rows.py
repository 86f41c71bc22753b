"""One principal that registers as one new client after the other, and leaves each behind."""

import asyncio
from pathlib import Path
from typing import Final

from tests.channels import mqtt_side
from tests.probe.test_probe import client_rows
from tests.serving.keyed import Issuer, KeyedNode
from tests.serving.raw_mqtt import RawMqtt

from roskva.wire.mqtt import codes, fields
from roskva.wire.mqtt.codes import V3, V5, Reason

SHARDS: Final = 4
MOST: Final = 3
TRIES: Final = 8 * MOST
REGISTRATIONS: Final = 20
_REFUSED: Final = 0x80


async def subscribed(
    node: KeyedNode, jwt: str, version: int, id: str, count: int
) -> tuple[int, list[bytes]]:
    """What a client that asks for so many objects gets for the last of them, and, if that is a
    refusal, what else is said to it until it is hung up on."""
    kept = {fields.SESSION_EXPIRY: 0xFFFFFFFF} if version == V5 else fields.NONE
    said = mqtt_side.connect(
        version, id, clean=False, user="contacts", password=jwt.encode(), said=kept
    )
    wanted = [(f"contacts/{number}", 1) for number in range(count)]
    async with RawMqtt(node.mqtt_port) as device:
        await device.answers(codes.CONNACK, said)
        subscribe = mqtt_side.subscribe(version, 1, *wanted)
        heard = await device.answers(codes.SUBACK, subscribe)
        granted = next(packet for packet in heard if packet[0] >> 4 == codes.SUBACK)[-1]
        if granted >= _REFUSED and heard[-1][0] >> 4 != codes.DISCONNECT:
            heard += await device.answers(codes.DISCONNECT)
        return granted, heard


def test_rows_of_one_principal_are_limited_and_others_have_room(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path / "jwks.json")
    node = KeyedNode(
        tmp_path / "data",
        f"""
[limits]
max_clients_per_principal = {MOST}
max_registrations_per_principal = {REGISTRATIONS}
[apps.contacts]
jwks = "{issuer.jwks}"
register = ["**"]
""",
        *("--shards", str(SHARDS)),
    )
    mallory, alice = issuer.jwt("mallory", "contacts"), issuer.jwt("alice", "contacts")

    async def refused(version: int) -> list[tuple[int, list[bytes]]]:
        answers = [
            await subscribed(node, mallory, version, f"{version}-{number}", 1)
            for number in range(TRIES)
        ]
        return [answer for answer in answers if answer[0] >= _REFUSED]

    try:
        node.start()
        on_5 = asyncio.run(refused(V5))
        assert len(on_5) >= TRIES - SHARDS * MOST
        granted, heard = on_5[0]
        assert granted == heard[-1][3] == Reason.QUOTA_EXCEEDED
        assert b"max_clients_per_principal" in heard[-1]
        assert {granted for granted, _ in asyncio.run(refused(V3))} == {_REFUSED}
        for count in (REGISTRATIONS + 1, REGISTRATIONS):
            granted, _ = asyncio.run(subscribed(node, alice, V5, "fleet", count))
            assert granted == (1 if count <= REGISTRATIONS else Reason.QUOTA_EXCEEDED)
        node.stop()
        assert client_rows(node) <= SHARDS * MOST + 1
    finally:
        node.end()
