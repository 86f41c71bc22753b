"""Roskva and its peers, as they are measured: what each is told, and what its clients do.

All come from Debian's packages, with the settings in `config/`, which say why. Clients speak the
protocol of their server: MQTT 3.1.1 to Roskva and Mosquitto, NATS's own, and Redis's.
"""

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.machine import found
from benchmarks.ports import free_port
from benchmarks.serving.generator import Generator, Population, Protocol
from benchmarks.serving.servers import (
    Server,
    mosquitto,
    roskva,
    running,
)
from benchmarks.turns import OURS

_CONFIG: Final = Path(__file__).parent / "config"
_BUCKET: Final = {
    "name": "KV_bench",
    "subjects": ["$KV.bench.>"],
    "max_msgs_per_subject": 1,
    "retention": "limits",
    "discard": "new",
    "storage": "file",
    "num_replicas": 1,
    "max_msgs": -1,
    "max_bytes": -1,
    "allow_rollup_hdrs": True,
    "deny_delete": True,
    "allow_direct": True,
}
_PATIENCE_S: Final = 30.0


class Peer(msgspec.Struct, frozen=True):
    name: str
    program: str
    protocol: Protocol
    start: Callable[..., AbstractContextManager[Server]]
    """Of a directory and cores; with `again`, where another was."""
    sessions: bool = False
    """The server remembers its clients."""
    latest: bool = False
    """It keeps the newest of each object, and not what came before."""

    @property
    def installed(self) -> bool:
        return found(self.program) is not None

    @contextmanager
    def clients(
        self,
        generator: Generator,
        server: Server,
        *,
        subscribers: int,
        objects: int,
        each: int,
        app: str,
        reconnect: bool = False,
    ) -> Iterator[Population]:
        """They connect as fast as the server lets them."""
        with generator.population(
            server,
            subscribers=subscribers,
            objects=objects,
            each=each,
            app=app,
            reconnect=reconnect,
            protocol=self.protocol,
            clean=not self.sessions,
            retain=self.latest,
            pace=900 if self.name == OURS and subscribers > 1000 else 0,
        ) as population:
            yield population


@contextmanager
def _nats(
    directory: Path, cores: set[int], settings: str = "nats.conf", again: Server | None = None
) -> Iterator[Server]:
    port = again.port if again else free_port()
    command = [found("nats-server") or "", "-c", str(_CONFIG / settings), "-p", str(port)]
    with running(command, directory, cores, port) as pid:
        if settings == "nats-kv.conf" and again is None:
            _make_bucket(port)
        yield Server("NATS", pid, port=port)


def _make_bucket(port: int) -> None:
    config = json.dumps(_BUCKET)
    create = f"PUB $JS.API.STREAM.CREATE.{_BUCKET['name']} _INBOX.made {len(config)}\r\n{config}"
    with socket.create_connection(("127.0.0.1", port), _PATIENCE_S) as connection:
        connection.sendall(f"CONNECT {{}}\r\nSUB _INBOX.made 1\r\n{create}\r\n".encode())
        heard = b""
        while b"MSG _INBOX.made" not in heard or not heard.endswith(b"}\r\n"):
            more = connection.recv(65536)
            if not more:
                raise RuntimeError(f"NATS closed the connection: {heard!r}")
            heard += more
        if b'"error"' in heard:
            raise RuntimeError(f"NATS made no bucket: {heard!r}")


@contextmanager
def _redis(
    directory: Path, cores: set[int], settings: str = "redis.conf", again: Server | None = None
) -> Iterator[Server]:
    port = again.port if again else free_port()
    command = [found("redis-server") or "", str(_CONFIG / settings)]
    command += ["--port", str(port), "--dir", str(directory)]
    with running(command, directory, cores, port) as pid:
        yield Server("Redis", pid, port=port)


def _mosquitto(settings: str) -> Callable[..., AbstractContextManager[Server]]:
    return partial(mosquitto, settings=(_CONFIG / settings).read_text())


ROSKVA: Final = Peer(OURS, "roskva", "mqtt", roskva, sessions=True)
QUEUES: Final = Peer(
    "Mosquitto QoS 1", "mosquitto", "mqtt", _mosquitto("mosquitto.conf"), sessions=True
)
BOUNDED: Final = Peer(
    "Mosquitto QoS 1, bounded",
    "mosquitto",
    "mqtt",
    _mosquitto("mosquitto-bounded.conf"),
    sessions=True,
)
RETAINED: Final = Peer(
    "Mosquitto retained", "mosquitto", "mqtt", _mosquitto("mosquitto.conf"), latest=True
)
CORE: Final = Peer("NATS core", "nats-server", "nats", _nats)
KV: Final = Peer(
    "NATS KV", "nats-server", "kv", partial(_nats, settings="nats-kv.conf"), latest=True
)
PUBSUB: Final = Peer("Redis pub/sub", "redis-server", "redis", _redis)
STREAMS: Final = Peer(
    "Redis streams",
    "redis-server",
    "streams",
    partial(_redis, settings="redis-streams.conf"),
)
LAST_ENTRY: Final = Peer(
    "Redis streams, MAXLEN 1",
    "redis-server",
    "streams",
    partial(_redis, settings="redis-streams.conf"),
    latest=True,
)

ALL: Final = (ROSKVA, QUEUES, RETAINED, CORE, KV, PUBSUB, STREAMS)
LIVE: Final = tuple(peer for peer in ALL if peer is not RETAINED)
"""Where everybody is there all the time: to them Mosquitto sends the same, retained or not."""


def saved(peer: Peer) -> Peer:
    """As durable as it can be made: Mosquitto saves once a second, the others are so already."""
    if peer.program != "mosquitto":
        return peer
    return msgspec.structs.replace(peer, start=_mosquitto("mosquitto-saved.conf"))


def installed(peers: tuple[Peer, ...]) -> list[Peer]:
    return [peer for peer in peers if peer is ROSKVA or peer.installed]


def absent(peers: tuple[Peer, ...]) -> dict[str, list[Any]]:
    """Their turns: none. So their row can say that they are missing."""
    here = installed(peers)
    return {peer.name: [] for peer in peers if peer not in here}
