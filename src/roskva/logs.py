"""Log lines: for people, or one JSON object per line for programs.

What happens to one client or one object is counted, not logged: names of objects, payloads and
secrets are in no line at INFO or above.
"""

import logging
import time
from typing import Final, Literal

import msgspec

_TEXT: Final = "%(asctime)s %(name)s: %(message)s"
_CHATTY: Final = ("uvicorn", "websockets", "httpx", "httpcore", "asyncio")


class JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "at": f"{at}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def log_to_stderr(form: Literal["text", "json"]) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for chatty in _CHATTY:
        logging.getLogger(chatty).setLevel(logging.WARNING)
