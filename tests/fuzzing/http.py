"""HTTP: bodies of publishes as the framework reads them; and some through all of it."""

import asyncio
from functools import cache
from pathlib import Path
from typing import Any, Final, cast

import msgspec
from tests.channels.mqtt_side import RecordingFront
from tests.fuzzing.target import Target

from roskva.channels.admin import AdminView
from roskva.channels.http import NewUpdate, http_app, update_of
from roskva.channels.peers import AdminDoor
from roskva.config import Config
from roskva.errors import RoskvaError
from roskva.model import NOBODY, Update
from roskva.server.access.authority import AllowAll
from roskva.server.admission import Admission
from roskva.server.space import DiskSpace

_BODIES: Final = [
    b'{"app":"contacts","name":"alice","version":41}',
    b'{"app":"contacts","name":"alice","version":"9223372036854775807","source":"phone"}',
    b'{"app":"contacts","name":"b/c","version":0,"payload":"aGVsbG8=","text":null}',
    '{"app":"contacts","name":"bö\\u00f6b \\ud83d\\ude00","version":7,"text":"grüße"}'.encode(),
    b'[{"app":"a","name":"x","version":1},{"app":"a","name":"y","version":2,"more":[{}]}]',
    b"[]",
]
_HEADERS: Final = [(b"content-type", b"application/json"), (b"host", b"x")]


class _Body(msgspec.Struct):
    data: NewUpdate | list[NewUpdate]


@cache
def _admission() -> Admission:
    return Admission(Config(), AllowAll(), DiskSpace(Path(), 0))


def _admits(data: bytes) -> bool:
    """The framework decodes to plain values, and converts them without being strict."""
    try:
        body = msgspec.convert(
            {"data": msgspec.json.decode(data)}, _Body, strict=False, str_keys=True
        ).data
        news = body if isinstance(body, list) else [body]
        updates = [found for new in news if isinstance(found := update_of(new), Update)]
        if len(updates) < len(news):
            return False
        outcome = _admission().admit_all(NOBODY, updates)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, RoskvaError):
        return False
    return bool(outcome) and not any(isinstance(each, RoskvaError) for each in outcome)


class _App:
    """Called as uvicorn does, one request at a time."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._front = self._loop.run_until_complete(self._made())
        inside = cast(AdminView, None)  # publishing never looks there
        self._app = http_app(
            self._front, inside, AdminDoor(Config(), open=True), 1 << 16, 15.0, 10_000
        )

    async def _made(self) -> RecordingFront:
        return RecordingFront()

    def takes(self, body: bytes) -> bool:
        status = self._loop.run_until_complete(self._post(body))
        self._front.published.clear()
        self._front.identified.clear()
        assert status < 500, f"status {status}"
        return status == 200

    async def _post(self, body: bytes) -> int:
        answers: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Any) -> None:
            answers.append(message)

        scope: Any = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/v1/publish",
            "raw_path": b"/v1/publish",
            "query_string": b"",
            "root_path": "",
            "headers": [*_HEADERS, (b"content-length", b"%d" % len(body))],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 7600),
            "state": {},
        }
        await self._app(scope, receive, send)
        return int(answers[0]["status"])


@cache
def _app() -> _App:
    return _App()


TARGETS: Final = [
    Target("http bodies", _BODIES, _admits),
    Target("http requests", _BODIES, lambda data: _app().takes(data), rounds=20_000),
]
