"""A client on some channel, as a test drives it: it comes, registers, is told, acks, and goes.

Whoever comes back is the same client as before: by its token, its MQTT client id, or the id of the
last event it has acked. Nothing here knows more of the server than its documents say.
"""

import asyncio
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Any, ClassVar, NamedTuple, Self

import httpx
from tests.serving.nodes import PATIENCE_S, Node


class Told(NamedTuple):
    object: str
    version: int | None
    """None: unknown."""
    payload: bytes | None
    receipt: Any
    """What the channel needs for an ack."""

    def __str__(self) -> str:
        return f"{self.object} {self.version}"


class Driver(ABC):
    """Used as `async with`. `inbox` holds what was told and not yet asked for, in order."""

    has_identity: ClassVar[bool] = True
    """The server knows it again, and lets it be there once."""
    can_be_source: ClassVar[bool] = True
    can_declare: ClassVar[bool] = False
    """It can say which version it holds."""
    tells_payload_and_version: ClassVar[bool] = True
    fenced: ClassVar[str] = "fenced"
    """How the server ends an older session."""

    def __init__(self, node: Node, application: str = "") -> None:
        self.node = node
        self.application = application
        self.keys: list[str] = []
        self.inbox: asyncio.Queue[Told] = asyncio.Queue()
        self.told_before: dict[tuple[str, int | None, Any], dict[int, int]] = {}
        """What it was told in this session, and how many reasons there were by then to repeat."""
        self.twice: list[str] = []
        """Told again for no reason that the node counts."""
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """By the server, with its reason."""

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.disconnect()
        if error is None:
            assert not self.twice, self.twice

    async def connect(self) -> None:
        """Until the server has greeted it; for the second time as the one who was there before."""
        self.ended = asyncio.get_running_loop().create_future()
        self.inbox = asyncio.Queue()
        self.told_before = {}
        async with asyncio.timeout(PATIENCE_S):
            self._reasons = await asyncio.to_thread(self.node.reasons_to_repeat)
            await self._connect()

    @abstractmethod
    async def _connect(self) -> None: ...

    @abstractmethod
    async def disconnect(self) -> None:
        """After what was acked; does nothing if it is not connected."""

    async def register(self, *keys: str, version: int | None = None) -> None:
        """Until it is confirmed."""
        self.keys += [key for key in keys if key not in self.keys]
        self.told_before = {k: v for k, v in self.told_before.items() if k[0] not in keys}
        async with asyncio.timeout(PATIENCE_S):
            await self._register(list(keys), version)

    @abstractmethod
    async def _register(self, keys: list[str], version: int | None) -> None: ...

    async def told(self) -> Told:
        async with asyncio.timeout(PATIENCE_S):
            told = await self.inbox.get()
        assert not self.twice, self.twice
        return told

    def take(self, told: Told) -> None:
        """Into the inbox, but for a version that is told again with reason.

        A registrar that reopens a link to a shard, or scans a session, tells once more what is not
        acked, or whose ack crosses it. Any other version that is told twice in a session, acked or
        not, is a fault. *Unknown* is told again for every newer version that overtakes its ack.
        """
        same = (told.object, told.version, self.epoch_of(told))
        before = self.told_before.get(same)
        if before is None or told.version is None:
            self.told_before[same] = self._reasons
            self.inbox.put_nowait(told)
            return
        try:
            now = self.told_before[same] = self.node.reasons_to_repeat()
        except httpx.TransportError:
            return  # it has gone in the meantime: nobody can say
        if all(reasons <= before.get(registrar, 0) for registrar, reasons in now.items()):
            self.twice.append(
                f"{told} once more, and no link was opened since, nor its session scanned"
            )

    def epoch_of(self, told: Told) -> Any:
        """What else tells two notifications of the same version apart, where the channel has it."""
        return None

    @abstractmethod
    async def ack(self, told: Told) -> None: ...

    async def took(self) -> tuple[str, int | None]:
        """The next, acked."""
        told = await self.told()
        await self.ack(told)
        return told.object, told.version

    async def took_latest(self, wanted: dict[str, int]) -> list[Told]:
        """All that is told, acked, until each object was told at this version; its last ones."""
        last: dict[str, Told] = {}
        while {key: told.version for key, told in last.items()} != wanted:
            told = await self.told()
            await self.ack(told)
            last[told.object] = told
        return list(last.values())

    def twin(self) -> Self:
        """Another one with the same identity, not connected yet."""
        raise NotImplementedError

    def _end(self, reason: str) -> None:
        if not self.ended.done():
            self.ended.set_result(reason)

    async def told_the_end(self) -> str:
        async with asyncio.timeout(PATIENCE_S):
            return await self.ended
