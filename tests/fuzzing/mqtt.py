"""MQTT: the packets, whole and in pieces; and connections with a registrar behind them."""

from functools import cache, partial
from typing import Final

from tests.channels import mqtt_side as side
from tests.fuzzing.core_front import CoreFront, Turning
from tests.fuzzing.target import Target

from roskva.wire.mqtt import fields as p
from roskva.wire.mqtt.codes import V3, V5, BadPacket
from roskva.wire.mqtt.decode import Decoder, Packet

_MAX: Final = 4096
_SAID: Final = {p.SESSION_EXPIRY: 600, p.RECEIVE_MAXIMUM: 3, p.MAXIMUM_PACKET_SIZE: 200}
_WILL: Final = {p.WILL_DELAY: 5}


def _packets(version: int) -> list[bytes]:
    said, will_said = (_SAID, _WILL) if version == V5 else ({}, {})
    return [
        side.connect(version),
        side.connect(
            version,
            clean=False,
            will=("app/w", b"9"),
            user="app",
            password=b"secret",
            said=said,
            will_said=will_said,
            will_flags=0x28,
        ),
        side.subscribe(version, 1, ("app/x", 1), ("app/y", 0), ("app/+", 2)),
        side.unsubscribe(version, 2, "app/x", "app/z"),
        side.publish(version, "app/x", b"42", 1, 3),
        side.publish(version, "app/x", b"43", 2, 4),
        side.publish(version, "app/y", b"hello"),
        side.pubrel(4),
        side.puback(1),
        side.PINGREQ,
        side.DISCONNECT,
    ]


def _decoded(data: bytes, version: int, piece: int) -> tuple[list[Packet], bool]:
    """The packets up to the first that is none, and whether there was one."""
    decoder, packets = Decoder(_MAX), list[Packet]()
    decoder.version = version
    try:
        for at in range(0, len(data), piece):
            decoder.feed(data[at : at + piece])
            while (packet := decoder.next()) is not None:
                packets.append(packet)
    except BadPacket:
        return packets, True
    return packets, False


def _decodes(version: int, data: bytes) -> bool:
    whole = _decoded(data, version, max(1, len(data)))
    assert whole == _decoded(data, version, 3), "pieces make a difference"
    return bool(whole[0])


class _Connections:
    def __init__(self) -> None:
        self._turning = Turning()
        self._turning.run(self._open)

    def _open(self) -> None:
        self._front = CoreFront()
        self._mqtt = side.channel(self._front, max_packet_bytes=_MAX)

    def takes(self, data: bytes) -> bool:
        conns: list[side.Side] = []

        def begin() -> None:
            conns.append(side.Side(mqtt=self._mqtt, front=self._front))
            conns[0].receive(data)

        def end() -> None:
            self._mqtt.next_turn()
            conns[0].lose()
            self._front.pass_time(0.01)

        self._turning.run(begin, end)
        if self._front.broken is not None:
            raise self._front.broken
        assert conns[0].delivery not in self._front.core.conns, "a session is left behind"
        return bool(conns[0].transport.written)


@cache
def _connections() -> _Connections:
    return _Connections()


def _streams(version: int) -> list[bytes]:
    connects, rest = _packets(version)[:2], _packets(version)[2:]
    return [
        connects[0] + b"".join(rest),
        connects[1] + rest[0] + side.puback(1) + side.puback(2) + rest[2] + rest[3],
        connects[0] + rest[0] + rest[1] + rest[4] + side.PINGREQ,
    ]


TARGETS: Final = [
    Target("mqtt 3.1.1 packets", _packets(V3), partial(_decodes, V3)),
    Target("mqtt 5 packets", _packets(V5), partial(_decodes, V5)),
    Target(
        "mqtt connections",
        _streams(V3) + _streams(V5),
        lambda data: _connections().takes(data),
        rounds=200_000,
    ),
]
