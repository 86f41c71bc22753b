"""Real hosts over a fake wire, in one virtual time.

    ClientSide ⇄ RegistrarSide ⇄ ShardSide

Every message crosses as bytes of the real codec. Nothing happens by itself: `settle` lets arrive
what can arrive now, `run` lets time pass. In between a test holds wires, drops or swaps frames,
breaks connections, holds the disk, or takes state away. No chance, no threads, no sleeping.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from tests.core.client_side import ClientSide
from tests.core.links import Connection
from tests.core.registrar_side import RegistrarSide
from tests.core.shard_side import ShardSide

from roskva.core.backoff import Dice
from roskva.core.client import ClientConfig
from roskva.core.expiry import Keep
from roskva.core.registrar import RegistrarConfig
from roskva.core.shares import SHARE_BY_DEFAULT
from roskva.model import Key, Update, shard_of

APP = "app"
_TOO_BUSY = 1_000_000


class Pair:
    def __init__(self, *, shards: int = 1, registrars: int = 1, **options: object) -> None:
        """`options` go to every registrar's configuration."""
        self.now = 1000.0
        self.keep = Keep(None)
        """For how long shards keep what nobody asks for."""
        self.max_share = SHARE_BY_DEFAULT
        """Of one principal, for shards that start after this was set."""
        self.dice = Dice(7)
        self.ids = 0
        self.loses: Callable[[], bool] = lambda: False
        """Whether the next message of a client's connection is lost."""
        self._soon: deque[Callable[[], None]] = deque()
        self.on_step: Callable[[object, Sequence[object]], None] = lambda machine, effects: None
        self.shards = [ShardSide(self, index, shards) for index in range(shards)]
        self.registrars = [
            RegistrarSide(self, name, RegistrarConfig(name, shards, **options))  # type: ignore[arg-type]
            for name in (f"registrar-{i}" for i in range(registrars))
        ]
        self.clients: list[ClientSide] = []
        self.settle()

    @property
    def shard(self) -> ShardSide:
        return self.shards[0]

    @property
    def registrar(self) -> RegistrarSide:
        return self.registrars[0]

    def client(self, identity: bytes | None = None, **options: object) -> ClientSide:
        config = ClientConfig(APP, **options)  # type: ignore[arg-type]
        self.clients.append(ClientSide(self, config, identity))
        return self.clients[-1]

    def publish(self, key: Key, version: int, **fields: object) -> None:
        shard = self.shards[shard_of(key, len(self.shards))]
        shard.publish(Update(key, version, **fields))  # type: ignore[arg-type]

    # Time.

    def settle(self) -> None:
        """Until nothing more can happen at this moment."""
        for _ in range(_TOO_BUSY):
            if not (self._do_one() or self._tick_one()):
                return
        raise AssertionError("it never comes to rest")

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        self.settle()
        while (at := min(self._deadlines(), default=end + 1)) <= end:
            self.now = at
            self.settle()
        self.now = end
        self.settle()

    def run_until(self, happened: Callable[[], bool], within: float = 60.0) -> None:
        end = self.now + within
        self.settle()
        while not happened():
            assert self.now < end, "it did not happen in time"
            self.run(0.01)

    def _do_one(self) -> bool:
        if self._soon:
            self._soon.popleft()()
            return True
        if any(registrar.dial() for registrar in self.registrars):
            return True
        if any(carry() for carry in self._carries()):
            return True
        for conn in self._conns():
            if conn.lagging and not conn.down.frames:
                conn.registrar.drained(conn)
                return True
        return any(shard.answer_one() for shard in self.shards)

    def _carries(self) -> Iterator[Callable[[], bool]]:
        for conn in self._conns():
            yield conn.up.carry
            yield conn.down.carry
        for registrar in self.registrars:
            for link in list(registrar.links.values()):
                yield link.up.carry
                yield link.down.carry

    def _conns(self) -> list[Connection]:
        return [client.conn for client in self.clients if client.conn is not None]

    def _tick_one(self) -> bool:
        for side in self._sides():
            deadline = side.deadline()
            if deadline is not None and deadline <= self.now:
                side.tick()
                return True
        return False

    def _deadlines(self) -> list[float]:
        deadlines = [side.deadline() for side in self._sides()]
        return [deadline for deadline in deadlines if deadline is not None]

    def _sides(self) -> list[ClientSide | RegistrarSide | ShardSide]:
        return [*self.clients, *self.registrars, *self.shards]

    def soon(self, do: Callable[[], None]) -> None:
        """After the effects in hand, in the order in which things happened."""
        self._soon.append(do)

    # Chance and names, the same in every run.

    def bits(self) -> int:
        return self.dice.bits()

    def random_bytes(self, count: int) -> bytes:
        return b"".join(self.bits().to_bytes(8) for _ in range(count // 8 + 1))[:count]

    def next_id(self) -> int:
        self.ids += 1
        return self.ids

    def note_step(self, machine: object, effects: Sequence[object]) -> None:
        self.on_step(machine, effects)


def registered(*keys: Key) -> tuple[Pair, ClientSide]:
    """A client that is registered, and has been told unknown of what was never published."""
    pair = Pair()
    client = pair.client()
    client.register(*keys)
    pair.run(5)
    client.clear()
    return pair, client


def knowing(key: Key, version: int) -> tuple[Pair, ClientSide]:
    """A client that has acked this version, and its row says so."""
    pair, client = registered(key)
    pair.publish(key, version)
    pair.run(5)
    assert client.told(key) == [version]
    client.clear()
    return pair, client
