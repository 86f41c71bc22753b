"""One round of the prober: what users would do, over each channel, and how long it took.

Everybody listens; then one update is published for each process that has shards, and one without
the fast path; then each is told, or not. One that fails does not hide the others. What was not
published cannot be told: then it is the publishing that is hurt, and nothing is said of the rest.

Versions are the time in microseconds, so that rounds of several probers do not disturb each other:
whoever waits for a version is served by any later one.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Final

import httpx
import msgspec

from roskva.config import SloConfig
from roskva.errors import RoskvaError
from roskva.model import PROBE_APP, PROBE_SLOW_APP, ObjectId, shard_of
from roskva.probe.paths import Listener, Paths, ProbeUpdate, Progress, Target
from roskva.publisher.requests import PublishFailure, publish_outcomes

PATHS: Final = {
    "register": "client → registrar → client's shard",
    "publish": "publisher → feed",
    "notify-websocket": "feed → matcher → registrar → WebSocket",
    "notify-events": "feed → matcher → registrar → event stream",
    "notify-mqtt": "feed → matcher → registrar → MQTT",
    "notify-pipeline": "feed → pipeline → matcher",
    "reconnect": "client back → registrar → what it missed",
}
"""By SLI: between whom."""

PATIENCE_S: Final = 2.0
"""At least; a target that is longer is waited for."""
_TROUBLE: Final = (RoskvaError, OSError, EOFError, httpx.HTTPError, ValueError, KeyError)


class Measurement(msgspec.Struct, frozen=True):
    sli: str
    seconds: float | None
    error: str = ""


def objects(owners: Iterable[tuple[int, str]], shards: int) -> dict[str, str]:
    """For each process a name in the first of its shards. `owners`: shards, each with its process.
    The same in every round, and for every prober."""
    first: dict[str, int] = {}
    for shard, owner in sorted(owners):
        first.setdefault(owner, shard)
    return {_name_in(shard, shards): owner for owner, shard in first.items()}


def _name_in(shard: int, shards: int) -> str:
    i = 0
    while shard_of(ObjectId(PROBE_APP, f"{shard}-{i}").key, shards) != shard:
        i += 1
    return f"{shard}-{i}"


async def probe(target: Target, slo: SloConfig) -> list[Measurement]:
    """What could be measured, in the order of `PATHS`."""
    target.identities.mkdir(mode=0o700, parents=True, exist_ok=True)
    verify = target.context or False  # then there is no TLS at all
    async with httpx.AsyncClient(base_url=target.url, timeout=None, verify=verify) as http:
        found = {outcome.sli: outcome for outcome in await _Round(target, slo, http).run()}
    return [found[sli] for sli in PATHS if sli in found]


class _Round:
    def __init__(self, target: Target, slo: SloConfig, http: httpx.AsyncClient) -> None:
        self._target, self._slo, self._http = target, slo, http
        self._paths = Paths(target, http)

    async def run(self) -> list[Measurement]:
        paths, target = self._paths, self._target
        listeners: dict[str, Listener] = {
            "notify-websocket": partial(paths.client, "websocket", PROBE_APP, set(target.objects)),
            "notify-events": paths.events,
            "reconnect": paths.reconnect,
        }
        if target.mqtt_port is not None:
            listeners["notify-mqtt"] = paths.mqtt
        fast = _Publication(listeners)
        work = [self._listen(sli, listener, fast) for sli, listener in listeners.items()]
        publishing = [self._publish(fast, PROBE_APP, list(target.objects))]
        found: list[Measurement | None] = []
        if target.pipeline_trouble:
            found.append(Measurement("notify-pipeline", None, target.pipeline_trouble))
        elif target.pipeline:
            slow = _Publication(["notify-pipeline"])
            listener = partial(paths.client, "pipeline", PROBE_SLOW_APP, {target.first})
            work.append(self._listen("notify-pipeline", listener, slow))
            publishing.append(self._publish(slow, PROBE_SLOW_APP, [target.first]))
        found += await asyncio.gather(
            *work, self._published(*publishing), self._measured("register", paths.register)
        )
        return [outcome for outcome in found if outcome is not None]

    def _patience(self, sli: str) -> float:
        return max(PATIENCE_S, self._slo.of(sli).target_ms / 1000)

    async def _measured(
        self, sli: str, work: Callable[[Progress, float], Awaitable[float]]
    ) -> Measurement:
        """`work` is told how many seconds it may take for each of its steps."""
        progress, within_s = Progress(), self._patience(sli)
        try:
            return Measurement(sli, round(await work(progress, within_s), 6))
        except TimeoutError:
            return Measurement(sli, None, self._late(progress, within_s))
        except _TROUBLE as error:
            return Measurement(sli, None, _text_of(error))

    async def _listen(
        self, sli: str, listener: Listener, publication: "_Publication"
    ) -> Measurement | None:
        ready = False

        async def work(progress: Progress, within_s: float) -> float:
            nonlocal ready
            async with AsyncExitStack() as stack:
                try:
                    async with asyncio.timeout(within_s):
                        told = await stack.enter_async_context(listener(progress))
                    ready = True
                finally:
                    publication.arrived()
                published = await publication.published
                async with asyncio.timeout(within_s):
                    took = await told(published)
            return took

        found = await self._measured(sli, work)
        if ready and found.seconds is None:
            await publication.over.wait()
            if publication.failures:
                return None
        return found

    def _late(self, progress: Progress, within_s: float) -> str:
        text = f"not within {within_s:g} s"
        if len(progress.missing) < progress.wanted:  # else it may be the client that is cut off
            owners = {self._target.objects[name] for name in progress.missing}
            text += f", of what {' and '.join(sorted(owners))} has"
        return f"{text} ({progress.trouble})" if progress.trouble else text

    async def _published(self, *work: Awaitable["_Publication"]) -> Measurement:
        first, *others = await asyncio.gather(*work)
        for publication in (first, *others):
            for name, text in publication.failures.items():
                owner = self._target.objects[name]
                named = f"{owner}: {text}" if len(self._target.objects) > 1 else text
                return Measurement("publish", None, named)
        return Measurement("publish", round(first.seconds, 6))

    async def _publish(
        self, publication: "_Publication", app: str, names: list[str]
    ) -> "_Publication":
        await publication.wait_for_listeners(max(map(self._patience, publication.slis)) + 1)
        published = publication.begin()
        await asyncio.gather(*(self._publish_one(publication, app, name) for name in names))
        publication.end()
        if names[0] not in publication.failures:
            published.acknowledged.set()
        return publication

    async def _publish_one(self, publication: "_Publication", app: str, name: str) -> None:
        """By itself: where one process hangs, the others answer."""
        update = {"app": app, "name": name, "version": publication.published.result().version}
        within_s = self._patience("publish")
        try:
            async with asyncio.timeout(within_s):
                answer = await self._http.post(
                    "/v1/publish",
                    json=[update],
                    headers=self._target.headers(app, f"publisher-{name}"),
                )
            (outcome,) = publish_outcomes(answer.status_code, answer.content, 1)
            if isinstance(outcome, PublishFailure):
                publication.failures[name] = outcome.text or outcome.code
        except TimeoutError:
            publication.failures[name] = f"no answer within {within_s:g} s"
        except _TROUBLE as error:
            publication.failures[name] = _text_of(error)


class _Publication:
    """Updates that are published together, once everybody who listens for them is ready."""

    def __init__(self, slis: Collection[str]) -> None:
        """`slis`: of those who listen."""
        self.slis = slis
        self._absent = len(slis)
        self._all_here = asyncio.Event()
        self.published: asyncio.Future[ProbeUpdate] = asyncio.get_running_loop().create_future()
        self.over = asyncio.Event()
        self.failures: dict[str, str] = {}
        """By name, why it was not taken."""
        self.seconds = 0.0

    def arrived(self) -> None:
        """Called by each who listens, once it is ready or has given up."""
        self._absent -= 1
        if self._absent <= 0:
            self._all_here.set()

    async def wait_for_listeners(self, within_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._all_here.wait()

    def begin(self) -> ProbeUpdate:
        published = ProbeUpdate(time.time_ns() // 1000, time.perf_counter(), asyncio.Event())
        self.published.set_result(published)
        return published

    def end(self) -> None:
        self.seconds = time.perf_counter() - self.published.result().began
        self.over.set()


def _text_of(error: BaseException) -> str:
    return str(error) or type(error).__name__
