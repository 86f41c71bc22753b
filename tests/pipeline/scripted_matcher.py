"""The state process of a node, as far as a bridge sees it: a Unix socket that takes offers, and
says what is missing."""

import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from roskva.links.processes import Process, RunningNode, announce
from roskva.wire.codec import decode_to_shard, encode_link
from roskva.wire.links import AwaitGap, Gap, Offer, Taken


class ScriptedMatcher:
    """Owns some shards. `position` of each is where it stands; it takes what begins there."""

    def __init__(self, data: Path, socket_path: Path, shards: list[int], lineage: int) -> None:
        self.position = dict.fromkeys(shards, 0)
        self.feed_end = dict.fromkeys(shards, 0)
        """As far as it was told: see `misses`."""
        self.lineage = lineage
        self.offers: list[Offer] = []
        self.asked = 0
        self.silent = False
        self.waiting: dict[int, tuple[AwaitGap, socket.socket]] = {}
        """Who wants to be told of a gap, by shard."""
        self._telling = threading.Lock()
        self._data = data
        self._path = socket_path
        self._shards = shards
        self._open: list[socket.socket] = []
        self.start()
        announce(
            data, RunningNode(1, "http://x", 0.0, [Process("state-0", str(socket_path), shards)])
        )

    def start(self) -> None:
        self._path.unlink(missing_ok=True)
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(self._path))
        self._server.listen()
        threading.Thread(target=self._accept, args=(self._server,), daemon=True).start()

    def stop(self) -> None:
        """As if it were killed: the socket file is still there."""
        for one in (self._server, *self._open):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._open.clear()
        self.waiting.clear()

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        # Whoever asked may be gone at any moment, before our answer too.
        with suppress(OSError), connection, connection.makefile("rb") as file:
            while frame := _frame(file):
                offer = decode_to_shard(frame)
                if isinstance(offer, AwaitGap):
                    self.waiting[offer.shard] = offer, connection
                    self._tell(offer.shard)
                    continue
                assert isinstance(offer, Offer)
                answer = encode_link(self._answer(offer))
                if not self.silent:
                    connection.sendall(len(answer).to_bytes(4) + answer)

    def misses(self, shard: int, last: int) -> None:
        """What is beyond its position, up to there, is left to the bridge."""
        self.feed_end[shard] = last
        self._tell(shard)

    def _tell(self, shard: int) -> None:
        with self._telling:
            asked, connection = self.waiting.get(shard, (None, None))
            at, last = self.position[shard], self.feed_end[shard]
            if asked is None or connection is None or not max(at, asked.after) < last:
                return
            del self.waiting[shard]
            gap = encode_link(Gap(asked.request, shard, at, last))
            with suppress(OSError):
                connection.sendall(len(gap).to_bytes(4) + gap)

    def _answer(self, offer: Offer) -> Taken:
        at = self.position[offer.shard]
        if offer.updates:
            self.offers.append(offer)
            if offer.lineage == self.lineage and offer.first <= at + 1:
                self.position[offer.shard] = at = max(at, offer.last)
        else:
            self.asked += 1
        return Taken(offer.request, self.lineage, at)


def _frame(file: BinaryIO) -> bytes:
    """Empty at the end, be it in the middle of a frame."""
    length = int.from_bytes(file.read(4))
    frame = file.read(length)
    return frame if len(frame) == length else b""
