"""What the backends of apps are asked over HTTP: hooks, and sets of keys.

The operator names their addresses, and most are private ones, so any address may be asked. But a
backend is believed about its own app only, and may be in the hands of somebody else: whatever it
answers, others are served, and the node sends it nothing but the question.

- Redirects are not followed, cookies are not kept, and what is asked over plain HTTP (on this
  machine alone) never goes by a proxy that the environment names.
- An answer has so many bytes as they come: one that is packed is refused, and never unpacked.
- Who asks says how long it waits for all of it, from the name's address to the last byte.
- Whatever else is wrong with it is `NoAnswer`.
"""

import asyncio
from http.cookiejar import CookieJar, DefaultCookiePolicy
from typing import Final

import httpx

_PLAIN: Final = "http://"


class NoAnswer(Exception):
    """And why."""


def backend_client() -> httpx.AsyncClient:
    return httpx.AsyncClient(
        follow_redirects=False,
        cookies=CookieJar(DefaultCookiePolicy(allowed_domains=())),
        headers={"accept-encoding": "identity"},
        mounts={_PLAIN: None},
        timeout=None,
        # A backend that is slow keeps its own connections: no other waits for one.
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
    )


async def ask_backend(
    http: httpx.AsyncClient,
    method: str,
    url: str,
    content: bytes | None = None,
    *,
    timeout_s: float,
    max_bytes: int,
) -> bytes:
    """The body of a 200; or `NoAnswer`."""
    headers = {} if content is None else {"content-type": "application/json"}
    try:
        async with asyncio.timeout(timeout_s):
            async with http.stream(method, url, content=content, headers=headers) as answer:
                return await _body_of(answer, max_bytes)
    except TimeoutError:
        raise NoAnswer(f"it took more than {timeout_s:g} s") from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        raise NoAnswer(str(error) or type(error).__name__) from None


async def _body_of(answer: httpx.Response, max_bytes: int) -> bytes:
    if answer.status_code != 200:
        raise NoAnswer(f"status {answer.status_code}")
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise NoAnswer("its answer is packed, which was not asked for")
    body = bytearray()
    async for part in answer.aiter_raw():
        body += part
        if len(body) > max_bytes:
            raise NoAnswer(f"its answer has more than {max_bytes} bytes")
        await asyncio.sleep(0)  # it may come in very many parts, and others have their turn
    return bytes(body)
