"""The admin API, a node seen from inside, and the console that shows it.

The console is a few files that a browser loads from `/`; what they show comes from the admin API.
They hold nothing secret, and are given to everybody. They load nothing from elsewhere, and the
policy that goes with them lets them neither load nor send anything elsewhere.
"""

from importlib.resources import files
from typing import Annotated, Any, Final, Protocol

import msgspec
from litestar import Request, Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, PathParameter
from litestar.types import ControllerRouterHandler
from prometheus_client import CONTENT_TYPE_LATEST

from roskva.channels.peers import AdminDoor
from roskva.model import Key, ObjectId
from roskva.wire.admin import ClientNow, NodeStatus, Now, ObjectNow, PipelineDetail

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


class AdminView(Protocol):
    """The node, as the admin API sees it."""

    async def status(self) -> NodeStatus: ...

    async def metrics(self) -> bytes:
        """In the text format of Prometheus."""
        ...

    async def now(self) -> Now: ...

    async def object(self, key: Key) -> ObjectNow: ...

    async def client(self, wanted: str) -> ClientNow: ...

    async def pipeline(self) -> PipelineDetail: ...

    async def plot(self, job: str, name: str) -> bytes | None: ...


def admin_handlers(
    inside: AdminView, door: AdminDoor, *, clients_here: bool
) -> list[ControllerRouterHandler]:
    """`clients_here`: clients connect to the same port."""

    def check(request: Request[Any, Any, Any]) -> None:
        door.check(request.headers.get("authorization"))

    @get("/v1/status", summary="Processes, shards, sessions and counters")
    async def status(request: Request[Any, Any, Any]) -> NodeStatus:
        check(request)
        return await inside.status()

    @get("/metrics", summary="What all processes have counted, for Prometheus")
    async def metrics(request: Request[Any, Any, Any]) -> Response[bytes]:
        check(request)
        return Response(await inside.metrics(), media_type=CONTENT_TYPE_LATEST)

    @get("/v1/admin/now", summary="The whole node at a glance, and what is wrong with it")
    async def now(request: Request[Any, Any, Any]) -> Now:
        check(request)
        return msgspec.structs.replace(await inside.now(), clients_here=clients_here)

    @get("/v1/admin/objects/{app:str}/{name:path}", summary="An object, and who has heard of it")
    async def object(
        request: Request[Any, Any, Any],
        app: FromPath[str],
        name: Annotated[str, PathParameter(description="May hold any number of '/'.")],
    ) -> ObjectNow:
        check(request)
        return await inside.object(ObjectId(app, name.removeprefix("/")).key)

    @get("/v1/admin/clients/{id:path}", summary="A client, and why it is behind")
    async def client(
        request: Request[Any, Any, Any],
        id: Annotated[
            str,
            PathParameter(
                description="In hexadecimal digits; or its application id, while it is online; or "
                "its MQTT client id."
            ),
        ],
    ) -> ClientNow:
        check(request)
        return await inside.client(id.removeprefix("/"))

    @get("/v1/admin/pipeline", summary="The pipeline, dead letters, and what jobs found last")
    async def pipeline(request: Request[Any, Any, Any]) -> PipelineDetail:
        check(request)
        return await inside.pipeline()

    @get("/v1/admin/jobs/{job:str}/{plot:str}", summary="A picture that a job has drawn, as SVG")
    async def plot(
        request: Request[Any, Any, Any], job: FromPath[str], plot: FromPath[str]
    ) -> Response[bytes]:
        check(request)
        found = await inside.plot(job, plot)
        if found is None:
            raise NotFoundException("this job has drawn no such picture")
        return Response(found, media_type="image/svg+xml")

    return [status, metrics, now, object, client, pipeline, plot]


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
