"""What is computed late, once for all who ask."""

import asyncio
import threading
from typing import Any

import pytest

from roskva.channels.http_protocol import LateApp


async def asked(app: Any, path: str) -> list[str]:
    told: list[str] = []

    async def send(message: str) -> None:
        told.append(message)

    await app({"path": path}, None, send)
    return told


async def _answer(scope: Any, receive: Any, send: Any) -> None:
    await send(scope["path"])


def test_it_is_made_once_for_all_who_ask_and_the_loop_goes_on_meanwhile() -> None:
    may_be_made, made = threading.Event(), []

    def make() -> Any:
        assert may_be_made.wait(10.0)
        made.append(threading.current_thread())
        return _answer

    async def ask() -> None:
        app = LateApp(make)
        first, second = (asyncio.ensure_future(asked(app, path)) for path in "ab")
        await asyncio.sleep(0)  # both have asked
        may_be_made.set()  # which the loop can do: it is not what waits
        assert [await first, await second, await asked(app, "c")] == [["a"], ["b"], ["c"]]

    asyncio.run(ask())
    assert len(made) == 1
    assert made[0] is not threading.main_thread()


def test_who_goes_away_first_takes_it_from_nobody() -> None:
    may_be_made = threading.Event()

    def make() -> Any:
        assert may_be_made.wait(10.0)
        return _answer

    async def ask() -> None:
        app = LateApp(make)
        first, second = (asyncio.ensure_future(asked(app, path)) for path in "ab")
        await asyncio.sleep(0)  # both have asked
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        may_be_made.set()
        assert await second == ["b"]

    asyncio.run(ask())
