"""The admin API, a node seen from inside, and the console that shows it.

The console is a few files that a browser loads from `/`; what they show comes from the admin API.
They hold nothing secret, and are given to everybody. They load nothing from elsewhere, and the
policy that goes with them lets them neither load nor send anything elsewhere.
"""

from importlib.resources import files
from typing import Annotated, Any, Final, Protocol

import msgspec
from litestar import Response, Router, get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, JSONBody, PathParameter
from litestar.types import ControllerRouterHandler
from prometheus_client import CONTENT_TYPE_LATEST

from roskva.channels.peers import AdminDoor
from roskva.model import Key, ObjectId
from roskva.wire.admin import AppNow, ClientNow, NodeStatus, Now, ObjectNow, PipelineDetail

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


class NextGeneration(msgspec.Struct, frozen=True):
    """`following` of the app; without one, whatever that is now."""

    generation: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,19}$")] | None = None


class AdminView(Protocol):
    """The node, as the admin API sees it."""

    async def status(self) -> NodeStatus: ...

    async def metrics(self) -> bytes:
        """In the text format of Prometheus."""

    async def now(self) -> Now: ...

    async def app(self, app: str) -> AppNow: ...

    async def reset_app(self, app: str, generation: int | None) -> AppNow: ...

    async def object(self, key: Key) -> ObjectNow: ...

    async def client(self, wanted: str) -> ClientNow: ...

    async def pipeline(self) -> PipelineDetail: ...

    async def plot(self, job: str, name: str) -> bytes | None: ...


def admin_handlers(
    inside: AdminView, door: AdminDoor, *, clients_here: bool
) -> list[ControllerRouterHandler]:
    """`clients_here`: clients connect to the same port."""

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: Any) -> None:
        door.check(connection.headers.get("authorization"))

    @get("/v1/status", summary="Processes, shards, sessions and counters")
    async def status() -> NodeStatus:
        return await inside.status()

    @get("/metrics", summary="What all processes have counted, for Prometheus")
    async def metrics() -> Response[bytes]:
        return Response(await inside.metrics(), media_type=CONTENT_TYPE_LATEST)

    @get("/v1/admin/now", summary="The whole node at a glance, and what is wrong with it")
    async def now() -> Now:
        return msgspec.structs.replace(await inside.now(), clients_here=clients_here)

    @get("/v1/admin/apps/{app:str}", summary="How often an app was reset, and in how many shards")
    async def app(app: FromPath[str]) -> AppNow:
        return await inside.app(app)

    @post("/v1/admin/apps/{app:str}/reset", status_code=200, summary="Reset a whole app")
    async def reset_app(app: FromPath[str], data: JSONBody[NextGeneration]) -> AppNow:
        """Ask again with the same generation until `have` is `shards`: it is begun only once."""
        wanted = data.generation
        return await inside.reset_app(app, None if wanted is None else int(wanted))

    @get("/v1/admin/objects/{app:str}/{name:path}", summary="An object, and who has heard of it")
    async def object(
        app: FromPath[str],
        name: Annotated[str, PathParameter(description="May hold any number of '/'.")],
    ) -> ObjectNow:
        return await inside.object(ObjectId(app, name.removeprefix("/")).key)

    @get("/v1/admin/clients/{id:path}", summary="A client, and why it is behind")
    async def client(
        id: Annotated[
            str,
            PathParameter(
                description="In hexadecimal digits; or its application id, while it is online; or "
                "its MQTT client id."
            ),
        ],
    ) -> ClientNow:
        return await inside.client(id.removeprefix("/"))

    @get("/v1/admin/pipeline", summary="The pipeline, dead letters, and what jobs found last")
    async def pipeline() -> PipelineDetail:
        return await inside.pipeline()

    @get("/v1/admin/jobs/{job:str}/{plot:str}", summary="A picture that a job has drawn, as SVG")
    async def plot(job: FromPath[str], plot: FromPath[str]) -> Response[bytes]:
        found = await inside.plot(job, plot)
        if found is None:
            raise NotFoundException("this job has drawn no such picture")
        return Response(found, media_type="image/svg+xml")

    handlers = [status, metrics, now, app, reset_app, object, client, pipeline, plot]
    return [Router("/", guards=[guard], route_handlers=handlers)]


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
