"""Log lines: for people, or one JSON object per line for programs. Each has a time, a level and the
process of the node that says it.

What happens to one client or one object is counted, not logged: names of objects, payloads and
secrets are in no line at INFO or above. What strangers can provoke (garbage, broken connections,
hooks that fail) is one line per minute and kind, with how often it happened: nobody fills a disk
with it.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final, Literal, TextIO

import msgspec

_TEXT: Final = "%(asctime)s %(levelname)s %(part)s %(name)s: %(message)s"
_CHATTY: Final = ("uvicorn", "websockets", "httpx", "httpcore", "asyncio")
_PROVOKED: Final = (
    *("uvicorn", "websockets", "asyncio"),
    *("roskva.channels", "roskva.links", "roskva.server.access"),
)
"""Loggers for what is done to a node from outside."""
EVERY_S: Final = 60.0
MAX_KINDS: Final = 100
"""Those beyond count as one."""


class JsonLines(logging.Formatter):
    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "at": f"{at}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "process": self._part,
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


class _Kind:
    """A line that was written, and how often it was left out since."""

    __slots__ = ("again", "record", "text", "until")

    def __init__(self, record: logging.LogRecord, text: str, until: float) -> None:
        self.record, self.text, self.until = record, text, until
        self.again = 0


class Lines(logging.StreamHandler[TextIO]):
    """What is provoked is written when it happens first, and then once a minute, as a count."""

    def __init__(
        self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(stream)
        self._clock = clock
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self.tell_counted()
        if record.name.startswith(_PROVOKED):
            named = record.name, _first_line(str(record.msg))
            if len(self._kinds) >= MAX_KINDS and named not in self._kinds:
                named = "", ""
            if named in self._kinds:
                self._kinds[named].again += 1
                return
            text = _first_line(record.getMessage())
            self._kinds[named] = _Kind(record, text, self._clock() + EVERY_S)
        super().emit(record)

    def tell_counted(self, *, all: bool = False) -> None:
        """Of those whose minute is over."""
        now = self._clock()
        for named, kind in list(self._kinds.items()):
            if now < kind.until and not all:
                continue
            del self._kinds[named]
            if kind.again:
                self._kinds[named] = _Kind(kind.record, kind.text, now + EVERY_S)
                super().emit(_counted(kind, EVERY_S + now - kind.until))

    def close(self) -> None:
        self.tell_counted(all=True)
        super().close()


def _first_line(text: str) -> str:
    return text.partition("\n")[0]


def _counted(kind: _Kind, seconds: float) -> logging.LogRecord:
    text, first = f"{kind.text} ({kind.again:,} more in {seconds:.0f} s)", kind.record
    return logging.LogRecord(first.name, first.levelno, first.pathname, 0, text, (), None)


async def tell_counted() -> None:
    """Until cancelled: also when nothing else is logged."""
    while True:
        await asyncio.sleep(EVERY_S / 10)
        for handler in logging.getLogger().handlers:
            if isinstance(handler, Lines):
                handler.acquire()
                try:
                    handler.tell_counted()
                finally:
                    handler.release()


def log_to_stderr(form: Literal["text", "json"], part: str) -> None:
    """`part`: what this process is called."""
    text = logging.Formatter(_TEXT, defaults={"part": part})
    handler = Lines()
    handler.setFormatter(JsonLines(part) if form == "json" else text)
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in _CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)
