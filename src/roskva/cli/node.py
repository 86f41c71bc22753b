"""A node's HTTP API, as commands use it: one call, one answer, failures as errors of ours."""

from collections.abc import Sequence
from types import TracebackType
from typing import Annotated, Any, Final, TypeVar

import httpx
import msgspec
import typer

from roskva.cli.outcome import NodeRefused
from roskva.errors import Unavailable
from roskva.model import ObjectId
from roskva.publisher.address import http_url

DEFAULT_URL: Final = "http://127.0.0.1:7600"
_TIMEOUT_S: Final = 30.0
"""A publish is answered when a disk has synced; a disk in trouble takes long."""

UrlOption = Annotated[
    str, typer.Option("--url", envvar="ROSKVA_URL", metavar="URL", help="Where the node answers.")
]
T = TypeVar("T")


class Failure(msgspec.Struct, frozen=True):
    code: str
    text: str = ""
    retriable: bool = False


class Published(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of an update: the version under which it is durable, or why it is not."""

    version: str | None = None
    error: Failure | None = None


class _Answer(msgspec.Struct, frozen=True):
    results: list[Published] | None = None
    error: Failure | None = None


class NodeApi:
    """Raises `Unavailable` if nobody answers or the node is busy, `NodeRefused` if it says no."""

    def __init__(self, url: str, timeout_s: float = _TIMEOUT_S) -> None:
        self._url = http_url(url, "")
        self._http = httpx.Client(base_url=self._url, timeout=timeout_s)

    def __enter__(self) -> "NodeApi":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._http.close()

    def publish(self, updates: Sequence[object]) -> list[Published]:
        """One result per update, in order."""
        answer = self._ask("POST", "/v1/publish", _Answer, updates)
        if answer.results is None or len(answer.results) != len(updates):
            raise NodeRefused(f"{self._url} does not answer like a Roskva node")
        return answer.results

    def reset(self, target: ObjectId) -> None:
        self._ask("POST", "/v1/reset", _Answer, {"app": target.app, "name": target.name})

    def check(self) -> None:
        """Is anybody there?"""
        self._request("GET", "/healthz")

    def get(self, path: str, of: type[T]) -> T:
        return self._ask("GET", path, of)

    def _ask(self, method: str, path: str, of: type[T], body: Any = None) -> T:
        return self.decoded(self._request(method, path, body).content, of)

    def _request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json"} if content else {}
        try:
            response = self._http.request(method, path, content=content, headers=headers)
        except httpx.TransportError as error:
            raise Unavailable(
                f"no node answers at {self._url} ({_reason(error)}): is it running? Start one with "
                "`roskva serve`, or name another with --url"
            ) from None
        if response.is_error:
            self._raise_failure(response)
        return response

    def decoded(self, content: bytes | msgspec.Raw, of: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=of)
        except msgspec.DecodeError:
            raise NodeRefused(f"{self._url} does not answer like a Roskva node") from None

    def _raise_failure(self, response: httpx.Response) -> None:
        """Unless every update has a result of its own: then the answer is as good as any."""
        try:
            answer = msgspec.json.decode(response.content, type=_Answer)
        except msgspec.DecodeError:
            answer = _Answer()
        if answer.results is not None:
            return
        failure = answer.error or Failure(
            f"HTTP status {response.status_code}", response.reason_phrase, response.is_server_error
        )
        raise error_of(failure)


def error_of(failure: Failure) -> Unavailable | NodeRefused:
    sentence = f"{failure.text or 'refused'} ({failure.code})"
    return Unavailable(sentence) if failure.retriable else NodeRefused(sentence)


def _reason(error: httpx.TransportError) -> str:
    return str(error) or type(error).__name__
