"""The admin API: a node seen from inside, for the console and for `roskva explain`."""

from typing import Annotated, Any, Protocol

import msgspec
from litestar import Request, Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath, PathParameter
from litestar.types import ControllerRouterHandler
from prometheus_client import CONTENT_TYPE_LATEST

from roskva.channels.admin import AdminDoor
from roskva.model import Key, ObjectId
from roskva.wire.admin import ClientNow, NodeStatus, Now, ObjectNow, PipelineDetail


class Inside(Protocol):
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
    inside: Inside, door: AdminDoor, *, clients_here: bool
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
