"""The hook: an app's backend that is asked whether somebody may register.

    POST {"app": "contacts", "principal": "alice", "register": ["bob", "carol"]}
    200  {"allow": ["bob"]}

Whatever else happens is a no: another status, another body, too late, nobody there. A yes is
remembered for a short while, a no is not. After a few failures in a row the backend is left alone
for some seconds, then tried with one question.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Final

import httpx
import msgspec

from roskva.errors import Unavailable
from roskva.model import Key, Principal

_log = logging.getLogger(__name__)

_AT_ONCE: Final = 32
"""Questions under way."""
_NAMES: Final = 1000
"""In one question."""
_MAX_BYTES: Final = 1 << 20
MAX_REMEMBERED: Final = 100_000
_FAILURES: Final = 5
_BREAK_S: Final = 5.0


class _Question(msgspec.Struct, frozen=True):
    app: str
    principal: str
    register: list[str]


class _Answer(msgspec.Struct, frozen=True):
    allow: list[str]


class HookSettings(msgspec.Struct, frozen=True):
    app: str
    url: str
    timeout_s: float
    cache_s: float


class Hook:
    def __init__(self, settings: HookSettings, http: httpx.AsyncClient) -> None:
        self.settings = settings
        self._http = http
        self._allowed: dict[tuple[str, Key], float] = {}
        """Until when."""
        self._turn = asyncio.Semaphore(_AT_ONCE)
        self._failures = 0
        self._closed_until = 0.0

    def unknown(self, principal: Principal, keys: Iterable[Key]) -> list[Key]:
        """Those that have to be asked for."""
        now, allowed, name = time.monotonic(), self._allowed, principal.name
        return [key for key in keys if allowed.get((name, key), 0.0) <= now]

    async def ask(self, principal: Principal, keys: Collection[Key]) -> frozenset[Key]:
        """Those that are allowed; `Unavailable` if there was no answer."""
        allowed: set[Key] = set()
        wanted = list(keys)
        for first in range(0, len(wanted), _NAMES):
            allowed |= await self._ask(principal, wanted[first : first + _NAMES])
        self._remember(principal, allowed)
        return frozenset(allowed)

    async def _ask(self, principal: Principal, keys: list[Key]) -> set[Key]:
        names = {key.partition("/")[2]: key for key in keys}
        question = _Question(self.settings.app, principal.name, list(names))
        try:
            async with self._turn:
                self._check_breaker()
                async with asyncio.timeout(self.settings.timeout_s):
                    answer = await self._post(msgspec.json.encode(question))
        except (httpx.HTTPError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self._failed(error)
            raise Unavailable("the app's backend does not answer") from None
        self._failures = 0
        return {names[name] for name in answer.allow if name in names}

    async def _post(self, body: bytes) -> _Answer:
        headers = {"content-type": "application/json"}
        asked = self._http.stream("POST", self.settings.url, content=body, headers=headers)
        return msgspec.json.decode(await body_of(asked, _MAX_BYTES), type=_Answer)

    def _remember(self, principal: Principal, keys: Collection[Key]) -> None:
        if not self.settings.cache_s:
            return
        if len(self._allowed) + len(keys) > MAX_REMEMBERED:
            self._allowed.clear()
        until = time.monotonic() + self.settings.cache_s
        for key in keys:
            self._allowed[principal.name, key] = until

    # The breaker.

    def _check_breaker(self) -> None:
        if self._failures < _FAILURES:
            return
        now = time.monotonic()
        if now < self._closed_until:
            raise Unavailable("the app's backend did not answer lately")
        self._closed_until = now + _BREAK_S  # one question to try it with, the others wait

    def _failed(self, error: Exception) -> None:
        self._failures += 1
        if self._failures >= _FAILURES:
            self._closed_until = time.monotonic() + _BREAK_S
        why = str(error) or type(error).__name__
        _log.warning("the hook of %s failed: %s", self.settings.app, why)


async def body_of(asked: AbstractAsyncContextManager[httpx.Response], max_bytes: int) -> bytes:
    """Of an answer that is a 200 and not too long; any other is an `HTTPError`."""
    body = b""
    async with asked as answer:
        if answer.status_code != 200:
            raise httpx.HTTPError(f"status {answer.status_code}")
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > max_bytes:
                raise httpx.HTTPError(f"its answer has more than {max_bytes} bytes")
    return body
