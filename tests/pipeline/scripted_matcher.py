"""The state process of a node, as far as a bridge sees it: a Unix socket that takes offers."""

import socket
import threading
from contextlib import suppress
from pathlib import Path

from roskva.links.running import Process, Running, announce
from roskva.wire.codec import decode_to_shard, encode_link
from roskva.wire.links import Offer, Taken


class ScriptedMatcher:
    """Owns some shards. `position` of each is where it stands; it takes what begins there."""

    def __init__(self, data: Path, socket_path: Path, shards: list[int], lineage: int) -> None:
        self.position = dict.fromkeys(shards, 0)
        self.lineage = lineage
        self.offers: list[Offer] = []
        self.silent = False
        self._data = data
        self._path = socket_path
        self._shards = shards
        self._open: list[socket.socket] = []
        self.start()
        announce(data, Running(1, "http://x", 0.0, [Process("state-0", str(socket_path), shards)]))

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

    def _accept(self, server: socket.socket) -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        file = connection.makefile("rb")
        with file, connection:
            while head := _read(file, 4):
                offer = decode_to_shard(_read(file, int.from_bytes(head)))
                assert isinstance(offer, Offer)
                answer = encode_link(self._answer(offer))
                if not self.silent:
                    connection.sendall(len(answer).to_bytes(4) + answer)

    def _answer(self, offer: Offer) -> Taken:
        at = self.position[offer.shard]
        if offer.updates:
            self.offers.append(offer)
            if offer.lineage == self.lineage and offer.first <= at + 1:
                self.position[offer.shard] = at = max(at, offer.last)
        return Taken(offer.request, self.lineage, at)


def _read(file: object, count: int) -> bytes:
    try:
        return file.read(count)  # type: ignore[attr-defined, no-any-return]
    except OSError:
        return b""
