"""The console: a few files that a browser loads from `/`. What they show comes from the admin API.

The files hold nothing secret, and are given to everybody. They load nothing from elsewhere, and the
policy that goes with them lets them neither load nor send anything elsewhere.
"""

from importlib.resources import files
from typing import Final

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath
from litestar.types import ControllerRouterHandler

_INDEX: Final = "index.html"
_KINDS: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_HEADERS: Final = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def console_handlers() -> list[ControllerRouterHandler]:
    shipped = {
        file.name: file.read_bytes()
        for file in (files("roskva") / "dashboard").iterdir()
        if file.name.rpartition(".")[2] in _KINDS
    }

    def answer(name: str) -> Response[bytes]:
        if name not in shipped:
            raise NotFoundException("the console has no such file")
        kind = _KINDS[name.rpartition(".")[2]]
        return Response(shipped[name], media_type=kind, headers=_HEADERS)

    @get("/", include_in_schema=False)
    async def index() -> Response[bytes]:
        return answer(_INDEX)

    @get("/console/{file:str}", include_in_schema=False)
    async def part(file: FromPath[str]) -> Response[bytes]:
        return answer(file)

    return [index, part]
