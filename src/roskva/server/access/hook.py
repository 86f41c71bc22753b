"""The hook: an app's backend that is asked whether somebody may register, or publish.

    POST {"app": "contacts", "principal": "alice", "register": ["bob", "carol"]}
    200  {"allow": ["bob"]}
    POST {"app": "contacts", "principal": "alice", "publish": ["alice"]}
    200  {"allow": ["alice"]}

Whatever else happens is a no: another status, another body, too late, nobody there. A yes is
remembered for a short while, a no is not. After a few failures in a row the backend is left alone
for some seconds, then tried with one question.
"""

import asyncio
import logging
import time
from collections.abc import Collection, Iterable
from typing import Final, Literal
from weakref import WeakValueDictionary

import httpx
import msgspec

from roskva.errors import Unavailable
from roskva.model import Key, Principal
from roskva.server.access.backends import NoAnswer, ask_backend

_log = logging.getLogger(__name__)

AT_ONCE: Final = 32
"""Questions under way."""
OF_ONE: Final = 8
"""Of them about one principal: whoever wants to hear of ever more names leaves room for others."""
_NAMES: Final = 1000
"""In one question."""
_MAX_BYTES: Final = 1 << 20
MAX_REMEMBERED: Final = 100_000
_FAILURES: Final = 5
_BREAK_S: Final = 5.0


Wish = Literal["register", "publish"]


class _Question(msgspec.Struct, frozen=True, omit_defaults=True):
    app: str
    principal: str
    register: list[str] = []
    publish: list[str] = []


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
        self._allowed: dict[tuple[Wish, str, Key], float] = {}
        """Until when."""
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._turns_of = WeakValueDictionary[str, asyncio.Semaphore]()
        """Those of a principal, while there are questions about it."""
        self._failures = 0
        self._closed_until = 0.0

    def unknown(self, wish: Wish, principal: Principal, keys: Iterable[Key]) -> list[Key]:
        """Those that have to be asked for."""
        now, allowed, name = time.monotonic(), self._allowed, principal.name
        return [key for key in keys if allowed.get((wish, name, key), 0.0) <= now]

    async def ask(self, wish: Wish, principal: Principal, keys: Collection[Key]) -> frozenset[Key]:
        """Those that are allowed; `Unavailable` if there was no answer."""
        allowed: set[Key] = set()
        wanted = list(keys)
        for first in range(0, len(wanted), _NAMES):
            allowed |= await self._ask(wish, principal, wanted[first : first + _NAMES])
        self._remember(wish, principal, allowed)
        return frozenset(allowed)

    async def _ask(self, wish: Wish, principal: Principal, keys: list[Key]) -> set[Key]:
        names = {key.partition("/")[2]: key for key in keys}
        question = _Question(self.settings.app, principal.name, **{wish: list(names)})
        turn_of_one = self._turns_of.setdefault(principal.name, asyncio.Semaphore(OF_ONE))
        try:
            async with turn_of_one, self._turn:
                self._check_breaker()
                answer = await self._post(msgspec.json.encode(question))
        except (NoAnswer, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._failed(error)
            raise Unavailable("the app's backend does not answer") from None
        self._failures = 0
        return {names[name] for name in answer.allow if name in names}

    async def _post(self, body: bytes) -> _Answer:
        url, timeout_s = self.settings.url, self.settings.timeout_s
        answer = await ask_backend(
            self._http, "POST", url, body, timeout_s=timeout_s, max_bytes=_MAX_BYTES
        )
        return msgspec.json.decode(answer, type=_Answer)

    def _remember(self, wish: Wish, principal: Principal, keys: Collection[Key]) -> None:
        if not self.settings.cache_s:
            return
        if len(self._allowed) + len(keys) > MAX_REMEMBERED:
            self._allowed.clear()
        until = time.monotonic() + self.settings.cache_s
        for key in keys:
            self._allowed[wish, principal.name, key] = until

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
        _log.warning("the hook of %s failed: %s", self.settings.app, error)
