"""An app of HTTP that is made when it is first asked for.

The framework takes a third of a second to load, and a registrar that comes back has clients to
serve who need none of it. Whoever asks first waits, and nobody else: it is made beside the loop.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Receive, Scope, Send


class LateApp:
    def __init__(self, make: "Callable[[], ASGIApp]") -> None:
        self._make = make
        self._made: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if self._made is None:
            self._made = asyncio.get_running_loop().run_in_executor(None, self._make)
        app = await asyncio.shield(self._made)
        await app(scope, receive, send)
