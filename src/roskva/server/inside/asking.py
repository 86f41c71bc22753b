"""The processes of a node, as one of them asks the others."""

from typing import Any, Final, Protocol, TypeVar

import msgspec

from roskva.links.framing import ask
from roskva.links.processes import Process
from roskva.model import Key, shard_of
from roskva.server.inside.answering import Answers
from roskva.wire.links import Ask

TIMEOUT_S: Final = 2.0
T = TypeVar("T")


class Place(Protocol):
    """Which process this is, and which others there are."""

    @property
    def name(self) -> str: ...

    @property
    def processes(self) -> tuple[Process, ...]: ...

    @property
    def socket(self) -> str: ...


class Processes:
    def __init__(self, place: Place, answers: Answers) -> None:
        """`answers`: of this process."""
        self.own = place.name
        self.all = place.processes
        self.owners = {shard: process for process in self.all for shard in process.shards}
        self.fronts = [process for process in self.all if not process.shards] or list(self.all)
        """Those with clients."""
        self._answers = answers

    def shard_of(self, identity: Key | bytes) -> int:
        return shard_of(identity, len(self.owners))

    def owner(self, identity: Key | bytes) -> Process:
        return self.owners[self.shard_of(identity)]

    async def ask(self, process: Process, question: Ask, kind: type[T]) -> T | None:
        """None: it does not answer."""
        told: Any
        if process.name == self.own:
            told = await self._answers.answer(question)
            return told if isinstance(told, kind) else None
        told = await ask(process.socket, question, TIMEOUT_S)
        return None if "error" in told else msgspec.convert(told, kind)
