"""HTTP: publishing, reading, and what a load balancer asks. Streams of events are in `events.py`,
long polling is in `poll.py`.

In JSON a version is written as a decimal string, because a browser's numbers end at 2^53; numbers
are read as well.
"""

from functools import partial
from typing import Annotated, Any, Final, TypeVar

import msgspec
from litestar import Litestar, MediaType, Request, Response, Router, get, post
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.params import FromPath, JSONBody, PathParameter
from litestar.types import ControllerRouterHandler
from msgspec import UNSET, UnsetType

from roskva import __version__, errors
from roskva.answer import answer_of
from roskva.channels.admin import AdminView, admin_handlers, console_handlers
from roskva.channels.base import Gateway
from roskva.channels.budget import Budgets
from roskva.channels.events import events_handler
from roskva.channels.peers import AdminDoor, NotIdentified, credential_first, customer
from roskva.channels.poll import poll_handler
from roskva.errors import BadInput, BadMessage, RoskvaError
from roskva.model import NO_VERSION, ObjectId, Principal, Update

_STATUS: Final[tuple[tuple[type[RoskvaError], int], ...]] = (
    (errors.TooLarge, 413),
    (BadInput, 400),
    (errors.TokenRejected, 401),
    (NotIdentified, 401),
    (errors.LimitExceeded, 429),
    (errors.Refused, 403),
    (errors.Unavailable, 503),
)
_RETRY_AFTER_S: Final = "1"
T = TypeVar("T")


class HttpFailure(msgspec.Struct, frozen=True):
    code: str
    text: str
    retriable: bool


class Refusal(msgspec.Struct, frozen=True):
    error: HttpFailure


class ObjectName(msgspec.Struct, frozen=True):
    app: str
    name: str


class NewUpdate(msgspec.Struct, frozen=True):
    """`payload` is base64; `text` is the same for payloads that are text."""

    app: str
    name: str
    version: int | str | None = None
    source: str | None = None
    payload: bytes | None = None
    text: str | None = None


class PublishOutcome(msgspec.Struct, frozen=True):
    """A version, under which the update is durable, or an error."""

    version: str | UnsetType = UNSET
    error: HttpFailure | UnsetType = UNSET


class PublishOutcomes(msgspec.Struct, frozen=True):
    """One per update, in their order."""

    results: list[PublishOutcome]


class ObjectState(msgspec.Struct, frozen=True):
    """`version` is null if nothing is known of the object, or not any more: go and look."""

    app: str
    name: str
    version: str | None
    epoch: str
    payload: bytes | UnsetType = UNSET


def http_app(
    front: Gateway,
    inside: AdminView,
    door: AdminDoor,
    max_body_bytes: int,
    events_ping_s: float,
    events_per_second: int,
    *,
    for_clients: bool = True,
) -> Litestar:
    """Without what clients do it is for a port of its own."""
    of_clients: list[ControllerRouterHandler] = []
    if for_clients:
        budgets = Budgets(events_per_second)
        of_clients = [
            *_handlers(front),
            events_handler(front, budgets, events_ping_s),
            poll_handler(front, budgets),
        ]
    admin = [*admin_handlers(inside, door, clients_here=for_clients), *console_handlers()]
    return Litestar(
        [*of_clients, *admin, *_health_handlers(front)],
        openapi_config=OpenAPIConfig(
            title="Roskva",
            version=__version__,
            path="/schema",
            render_plugins=[JsonRenderPlugin(path=["/", "/openapi.json"])],
        ),
        exception_handlers={
            RoskvaError: lambda _, error: _refusal(error),
            HTTPException: lambda _, error: _http_refusal(error),
            # What the framework lets through of a body that is no JSON.
            UnicodeDecodeError: lambda _, __: _refusal(BadMessage("text that is no UTF-8")),
            RecursionError: lambda _, __: _refusal(BadMessage("a body with too many levels")),
        },
        before_request=_refuse_encoded,
        request_max_body_size=max_body_bytes,
        logging_config=None,
    )


def _refuse_encoded(request: Request[Any, Any, Any]) -> None:
    """A body is read as it is: one that unpacks to a thousand times its size is never unpacked."""
    if request.headers.get("content-encoding", "identity").strip().lower() != "identity":
        raise HTTPException("send the body without a Content-Encoding", status_code=415)


def _handlers(front: Gateway) -> list[ControllerRouterHandler]:
    async def not_too_fast(request: ASGIConnection[Any, Any, Any, Any], _: Any) -> None:
        length = request.headers.get("content-length", "")
        size = int(length) if length.isascii() and length.isdigit() else 0
        front.check_publishing(_publisher(request), size)

    @post(
        "/v1/publish",
        status_code=200,
        summary="Publish one update or a list of them",
        guards=[not_too_fast],
    )
    async def publish(
        request: Request[Any, Any, Any], data: JSONBody[NewUpdate | list[NewUpdate]]
    ) -> Response[PublishOutcomes]:
        updates = data if isinstance(data, list) else [data]
        outcomes = await _publish(front, _publisher(request), updates)
        failed = [outcome for outcome in outcomes if isinstance(outcome, RoskvaError)]
        results = PublishOutcomes([_outcome(outcome) for outcome in outcomes])
        if updates and len(failed) == len(updates):
            return _refused(failed[0], results)
        return Response(results)

    @post("/v1/reset", status_code=200, summary="Forget an object's version")
    async def reset(request: Request[Any, Any, Any], data: JSONBody[ObjectName]) -> dict[str, str]:
        front.check_channel(data.app, "http")
        await front.reset(_publisher(request), ObjectId(data.app, data.name).key)
        return {}

    @get("/v1/objects/{app:str}/{name:path}", summary="What an object stands at")
    async def read(
        request: Request[Any, Any, Any],
        app: FromPath[str],
        name: Annotated[str, PathParameter(description="May hold any number of '/'.")],
    ) -> ObjectState:
        object = ObjectId(app, name.removeprefix("/"))
        front.check_channel(object.app, "http")
        told = await front.read(request.state.principal, object.key)
        version = None if told.version is None else str(told.version)
        payload = UNSET if told.payload is None else told.payload
        return ObjectState(object.app, object.name, version, str(told.epoch), payload)

    return [Router("/", guards=[credential_first(front)], route_handlers=[publish, reset, read])]


def _health_handlers(front: Gateway) -> list[ControllerRouterHandler]:
    @get("/healthz", media_type=MediaType.TEXT, summary="Is this process alive?")
    async def healthz() -> str:
        return "ok\n"

    @get("/readyz", media_type=MediaType.TEXT, summary="Can clients connect and publish?")
    async def readyz() -> Response[str]:
        if front.ready:
            return Response("ready\n", media_type=MediaType.TEXT)
        return Response("not ready\n", status_code=503, media_type=MediaType.TEXT)

    return [healthz, readyz]


def _publisher(request: ASGIConnection[Any, Any, Any, Any]) -> Principal:
    principal: Principal = request.state.principal
    return principal.at(customer(request.client.host)) if request.client else principal


async def _publish(
    front: Gateway, principal: Principal, updates: list[NewUpdate]
) -> list[int | RoskvaError]:
    wanted = [_wanted(front, new) for new in updates]
    wellformed = [update for update in wanted if isinstance(update, Update)]
    if not wellformed:
        return [error for error in wanted if isinstance(error, RoskvaError)]
    published = iter(await answer_of(partial(front.publish, principal, wellformed)))
    return [next(published) if isinstance(found, Update) else found for found in wanted]


def _wanted(front: Gateway, new: NewUpdate) -> Update | RoskvaError:
    try:
        front.check_channel(new.app, "http")
    except RoskvaError as error:
        return error
    return update_of(new)


def update_of(new: NewUpdate) -> Update | RoskvaError:
    if new.payload is not None and new.text is not None:
        return BadInput("an update has a payload or a text, not both")
    payload = new.payload if new.text is None else new.text.encode()
    try:
        version = _version(new.version)
    except BadInput as error:
        return error
    return Update(ObjectId(new.app, new.name).key, version, new.source, payload)


def _version(given: int | str | None) -> int:
    if given is None:
        return NO_VERSION
    if isinstance(given, str) and not (given.isascii() and given.isdigit() and len(given) < 20):
        raise BadInput("a version is a whole number, as a number or as a string of digits")
    version = int(given)
    if version < 0:
        raise BadInput("a version is 0 or more")
    return version


# Refusals.


def status_of(error: type[RoskvaError]) -> int:
    return next((status for kind, status in _STATUS if issubclass(error, kind)), 500)


def _outcome(outcome: int | RoskvaError) -> PublishOutcome:
    if isinstance(outcome, RoskvaError):
        return PublishOutcome(error=_failure(outcome))
    return PublishOutcome(str(outcome))


def _failure(error: RoskvaError) -> HttpFailure:
    return HttpFailure(error.code, str(error), error.retriable)


def _refused(error: RoskvaError, body: T) -> Response[T]:
    headers = {"Retry-After": _RETRY_AFTER_S} if error.retriable else {}
    if isinstance(error, NotIdentified):
        headers["WWW-Authenticate"] = "Bearer"
    return Response(body, status_code=status_of(type(error)), headers=headers)


def _refusal(error: RoskvaError) -> Response[Refusal]:
    return _refused(error, Refusal(_failure(error)))


def _http_refusal(error: HTTPException) -> Response[Refusal]:
    """What the framework refuses by itself, in our words."""
    code = {413: errors.TooLarge.code, 404: "not_found", 405: "not_allowed"}.get(error.status_code)
    text = error.detail
    for problem in error.extra if isinstance(error.extra, list) else []:
        text = str(problem.get("message", text)) if isinstance(problem, dict) else text
    failure = HttpFailure(code or BadInput.code, text, False)
    return Response(Refusal(failure), status_code=error.status_code)
