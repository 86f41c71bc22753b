"""An end of a link to a shard, and the kind that goes over a socket."""

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Any, Final

import msgspec

from roskva.core.effects import FromLink, LinkDown, LinkUp
from roskva.errors import BadMessage
from roskva.links.framing import Framed
from roskva.links.members import LinkAddress, MemberCertificates
from roskva.links.streams import HUNG_UP, NoLink, connect
from roskva.wire.codec import decode_from_shard, encode_link
from roskva.wire.links import LinkRefused, ToShard

_log = logging.getLogger(__name__)
_REDIAL_S: Final = 0.1
_LONGEST_REDIAL_S: Final = 2.0
"""Between machines, where each try shakes hands, and is made for every shard of a member."""


class LinkEnd(msgspec.Struct, frozen=True):
    """As the executor on this side of it has it."""

    send: Callable[[Any], None]
    drop: Callable[[], None]


class SocketLink:
    """Over a socket on which the shard's owner listens; it is opened again when it breaks."""

    def __init__(
        self,
        shard: int,
        address: LinkAddress,
        step: Callable[[Any], None],
        certificates: MemberCertificates | None = None,
    ) -> None:
        """`certificates`: for an owner on another machine."""
        self._number = shard
        self._address = address
        self._certificates = certificates
        self._step = step
        self._stream: Framed | None = None
        self._heard = False
        """Anything, over the newest stream."""
        self._lost = asyncio.Event()
        self.end = LinkEnd(self._send, self._drop)

    async def run(self) -> None:
        pause_s = _REDIAL_S
        while True:
            self._lost.clear()
            self._heard = False
            stream = Framed(self._opened, self._received, self._closed)
            try:
                await connect(self._address, stream, self._certificates)
                await self._lost.wait()
            except NoLink as error:
                _log.warning(f"shard {self._number} cannot be linked to: %s", error)
            except OSError:
                pass  # it is not there yet
            if self._heard or isinstance(self._address, str):
                pause_s = _REDIAL_S
                await asyncio.sleep(pause_s)
            else:
                await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
                pause_s = min(_LONGEST_REDIAL_S, 2 * pause_s)

    def _send(self, message: ToShard) -> None:
        if self._stream is not None:
            self._stream.send(encode_link(message))

    def _drop(self) -> None:
        if self._stream is not None:
            self._stream.drop()

    def _opened(self, stream: Framed) -> None:
        self._stream = stream
        self._step(LinkUp(self._number))

    def _received(self, stream: Framed, frame: bytes) -> None:
        self._heard = True
        try:
            message = decode_from_shard(frame)
        except BadMessage:
            _log.error("shard %d says what is no message: dropping the link", self._number)
            stream.drop()
            return
        if isinstance(message, LinkRefused):
            _log.error("shard %d refuses the link: %s", self._number, message.text)
        self._step(FromLink(self._number, message))

    def _closed(self, stream: Framed) -> None:
        if self._stream is stream:
            self._stream = None
            if not self._heard and self._certificates is not None:
                _log.warning(f"shard {self._number} cannot be linked to: %s", HUNG_UP)
            self._step(LinkDown(self._number))
        self._lost.set()
