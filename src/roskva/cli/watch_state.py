"""What `roskva watch --state FILE` remembers: the last version told of each object.

A line per notification, in the form that `--json` prints; the last word on an object counts. A line
is written before its notification is acked, so what is remembered is never ahead of what the server
takes for acked, and a last line that a crash tore is told again. The identities of the clients lie
beside it and mean nothing without it: a client that kept its identity and lost what it stands for
would not be told again.
"""

from pathlib import Path
from typing import Final, TextIO

import msgspec

from roskva.core.effects import Notify, NotifyUnknown
from roskva.errors import BadInput
from roskva.model import MAX_VERSION, Key, is_key

_SPARE_LINES: Final = 1000
"""The file is rewritten when it has so many lines more than objects, and again as many."""


class WatchLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A notification as scripts get it; the same as the data of a server-sent event."""

    object: Key
    version: str | None
    epoch: str
    payload: bytes | None = None


def told(event: Notify | NotifyUnknown) -> WatchLine:
    match event:
        case Notify(object=key, version=version, epoch=epoch, payload=payload):
            return WatchLine(key, str(version), str(epoch), payload)
        case NotifyUnknown(object=key, epoch=epoch):
            return WatchLine(key, None, str(epoch))


class WatchState:
    """Used as a context; without a path it remembers nothing beyond this run."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[Key, WatchLine] = {}
        self._file: TextIO | None = None
        self._lines = 0

    def __enter__(self) -> "WatchState":
        if self._path is not None:
            try:
                if self._path.exists():
                    self._known = _read(self._path)
                else:
                    self._forget_identities(self._path)
                self._rewrite(self._path)
            except OSError as error:
                raise BadInput(f"{self._path} cannot be used: {error.strerror}") from None
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()

    def identity(self, app: str) -> Path | None:
        if self._path is None:
            return None
        return self._path.with_name(f"{self._path.name}.{app}.identity")

    def version(self, key: Key) -> int | None:
        known = self._known.get(key)
        return None if known is None or known.version is None else int(known.version)

    def remember(self, line: WatchLine) -> None:
        if self._file is None or self._path is None:
            return
        self._known[line.object] = line
        if self._lines > 2 * len(self._known) + _SPARE_LINES:
            self._rewrite(self._path)
        else:
            self._file.write(_encoded(line))
            self._file.flush()
            self._lines += 1

    def _rewrite(self, path: Path) -> None:
        if self._file is not None:
            self._file.close()
        new = path.with_name(path.name + ".tmp")
        new.write_text("".join(_encoded(line) for line in self._known.values()))
        new.replace(path)
        self._file = path.open("a")
        self._lines = len(self._known)

    def _forget_identities(self, path: Path) -> None:
        for identity in path.parent.glob(f"{path.name}.*.identity"):
            identity.unlink()


def _encoded(line: WatchLine) -> str:
    """The payload is not needed to go on."""
    return msgspec.json.encode(msgspec.structs.replace(line, payload=None)).decode() + "\n"


def _read(path: Path) -> dict[Key, WatchLine]:
    known: dict[Key, WatchLine] = {}
    *whole, _torn = path.read_bytes().split(b"\n")
    for number, line in enumerate(whole, 1):
        try:
            found = msgspec.json.decode(line, type=WatchLine)
        except msgspec.DecodeError:
            found = None
        if found is None or not _plausible(found):
            raise BadInput(f"{path}:{number}: this was not written by `roskva watch --state`")
        known[found.object] = found
    return known


def _plausible(line: WatchLine) -> bool:
    version = "0" if line.version is None else line.version
    is_number = version.isascii() and version.isdecimal() and len(version) <= len(str(MAX_VERSION))
    return is_key(line.object) and is_number and int(version) <= MAX_VERSION
