"""Long polling, for what cannot hold a stream open: each request is one look, or waits for news.

    POST /v1/poll
    {"objects": [{"object": "contacts/alice", "version": "41", "epoch": "1234"}], "wait_s": 25}

    {"notifications": [{"object": "contacts/alice", "version": "42", "epoch": "1234"}]}

A request names all that the client wants to know of, and with each object what it was told last:
that is its ack. It is answered as soon as anything is due. An answer without notifications says
that everything stood as the client has it, and not that nobody could be asked.
"""

import asyncio
from typing import Annotated, Any, Final

import msgspec
from litestar import Request, post
from litestar.handlers import HTTPRouteHandler
from litestar.params import JSONBody
from msgspec import UNSET, Meta, UnsetType

from roskva.channels.base import Gateway
from roskva.channels.budget import Budgets
from roskva.channels.connections import stay
from roskva.channels.peers import credential_first
from roskva.channels.watch import Told, Watcher, hash_of, objects_of
from roskva.errors import BadInput, Unavailable
from roskva.model import NO_VERSION, Principal, is_version

MAX_WAIT_S: Final = 300.0
_ANSWER_S: Final = 5.0
"""For every shard to say what its objects stand at, however short the client's wait."""
_HOW: Final = '{"objects": [{"object": "app/name"}, …]}'

Number = int | str
"""A string of digits, because a browser's numbers end at 2^53; numbers are read as well."""


class PolledObject(msgspec.Struct, frozen=True):
    """With the version and the epoch of the last notification, as they came. A version alone is
    what the client holds of the object; with neither, the object is told as it stands."""

    object: str
    version: Number | None = None
    epoch: Number | None = None


class PollRequest(msgspec.Struct, frozen=True):
    objects: list[PolledObject]
    wait_s: Annotated[float, Meta(ge=0, le=MAX_WAIT_S)] = 25.0


class PolledNotification(msgspec.Struct, frozen=True):
    """`version` is null if it is unknown: go and look."""

    object: str
    version: str | None
    epoch: str
    payload: bytes | UnsetType = UNSET


class PollAnswer(msgspec.Struct, frozen=True):
    notifications: list[PolledNotification]


def poll_handler(front: Gateway, budgets: Budgets) -> HTTPRouteHandler:
    @post(
        "/v1/poll",
        status_code=200,
        summary="Wait for news of objects",
        guards=[credential_first(front)],
    )
    async def poll(request: Request[Any, Any, Any], data: JSONBody[PollRequest]) -> PollAnswer:
        principal: Principal = request.state.principal
        keys = objects_of(front, [polled.object for polled in data.objects], _HOW)
        await front.check_registering(principal, keys)
        stay(request.state)
        budget = budgets.of(principal, request.scope)
        watch = Watcher(keys, [told_of(polled) for polled in data.objects], budget)
        with watch.by(front, principal):
            async with asyncio.TaskGroup() as tasks:
                gone = tasks.create_task(watch.until_gone(request.receive))
                await _wait_for_news(watch, data.wait_s)
                gone.cancel()
            return _answer(watch)

    return poll


async def _wait_for_news(watch: Watcher, wait_s: float) -> None:
    loop = asyncio.get_running_loop()
    begun = loop.time()
    while not (watch.unwritten or watch.ended or watch.gone):
        until = begun + (max(wait_s, _ANSWER_S) if watch.unheard else wait_s)
        if not await watch.changed(until - loop.time()):
            break
    while watch.unwritten and not (watch.may_write or watch.ended or watch.gone):
        await watch.changed(None)


def _answer(watch: Watcher) -> PollAnswer:
    if watch.refused is not None:
        raise watch.refused
    if watch.ended:
        raise Unavailable("this node is stopping: ask again")
    if watch.unheard and not watch.unwritten:
        raise Unavailable("the shard of an object does not answer: ask again")
    return PollAnswer(
        [
            PolledNotification(
                told.object,
                None if told.version is None else str(told.version),
                str(told.epoch),
                UNSET if told.payload is None else told.payload,
            )
            for told in watch.take()
        ]
    )


def told_of(polled: PolledObject) -> Told | None:
    version = _number(polled.version, "a version")
    epoch = _number(polled.epoch, "an epoch")
    if epoch is None:
        return None if version is None else (version, None)
    return NO_VERSION if version is None else version, hash_of(epoch)


def _number(given: Number | None, what: str) -> int | None:
    if given is None:
        return None
    if not is_version(str(given)):
        raise BadInput(f"{what} is 0 to 2^63-1, as a number or as a string of digits")
    return int(given)
