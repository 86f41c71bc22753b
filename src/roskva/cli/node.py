"""A node's HTTP API, as commands use it: one call, one answer, failures as errors of ours."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import httpx
import msgspec
from rich.console import Console
from typer import Option

from roskva.cli.outcome import NodeRefused
from roskva.config import read_secret
from roskva.errors import Unavailable
from roskva.model import ObjectId
from roskva.net.address import NodeAddresses, http_url
from roskva.net.tls import Tls, client_context, explained
from roskva.publisher import requests
from roskva.wire.admin import AppNow

DEFAULT_URL: Final = "http://127.0.0.1:7600"
_TIMEOUT_S: Final = 30.0
"""A publish is answered when a disk has synced; a disk in trouble takes long."""


def key_option(variable: str, help: str, name: str = "--key") -> Any:
    """`help` says whose key it is."""
    help = f"{help}: itself, env:NAME or file:PATH."
    return Option(name, envvar=variable, metavar="KEY", help=help)


def _file_option(name: str, variable: str, help: str) -> Any:
    return Option(name, envvar=variable, metavar="FILE", help=help)


UrlOption = Annotated[
    str, Option("--url", envvar="ROSKVA_URL", metavar="URL", help="Where the node answers.")
]
UrlsOption = Annotated[
    str,
    Option(
        "--url",
        envvar="ROSKVA_URL",
        metavar="URL",
        help="Where the node answers; of several addresses, with commas between them, any will do.",
    ),
]
CaOption = Annotated[
    Path | None,
    _file_option(
        "--ca", "ROSKVA_CA", "The CA of the node's certificate, if the system does not know it."
    ),
]
CertOption = Annotated[
    Path | None, _file_option("--cert", "ROSKVA_CERT", "A client certificate to show to the node.")
]
CertKeyOption = Annotated[
    Path | None,
    _file_option("--cert-key", "ROSKVA_CERT_KEY", "The private key of that certificate."),
]
T = TypeVar("T")


@dataclass(frozen=True)
class NodeOptions:
    """How a command reaches a node as a publisher or a client."""

    url: UrlsOption = DEFAULT_URL
    ca: CaOption = None
    cert: CertOption = None
    cert_key: CertKeyOption = None
    key: Annotated[str, key_option("ROSKVA_KEY", "A publish key of the app, or a JWT")] = ""

    @property
    def tls(self) -> Tls | None:
        return tls_of(self.ca, self.cert, self.cert_key)

    @property
    def secret(self) -> str:
        return secret_of(self.key)

    @property
    def urls(self) -> list[str]:
        return self.url.split(",")

    def api(self) -> "NodeApi":
        return NodeApi(self.urls, self.tls, self.secret)


@dataclass(frozen=True)
class AdminOptions(NodeOptions):
    """How a command reaches what only operators may see, and in which form it is shown."""

    key: Annotated[str, key_option("ROSKVA_ADMIN_KEY", "The node's admin key")] = ""
    json: Annotated[bool, "As the node says it, in JSON."] = False

    def show(self, path: str, of: type[T], as_tables: Callable[[T, Console], None]) -> T:
        """Print what the node answers there."""
        with self.api() as node:
            answer = node.get(path, msgspec.Raw)
            found = node.decoded(answer, of)
        if self.json:
            print(bytes(answer).decode())
        else:
            as_tables(found, Console(markup=False, highlight=False))
        return found


def secret_of(key: str) -> str:
    return read_secret("--key", key) if key.startswith(("env:", "file:")) else key


def tls_of(ca: Path | None, cert: Path | None, cert_key: Path | None) -> Tls | None:
    given = ca is not None or cert is not None or cert_key is not None
    return Tls(ca, cert, cert_key) if given else None


class NodeApi:
    """Raises `Unavailable` if nobody answers or the node is busy, `NodeRefused` if it says no."""

    def __init__(self, urls: str | Sequence[str], tls: Tls | None, key: str = "") -> None:
        self._addresses = NodeAddresses(urls)
        context = client_context(self._url, tls)
        verify = context or False  # then there is no TLS at all
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.Client(timeout=_TIMEOUT_S, verify=verify, headers=headers)

    @property
    def _url(self) -> str:
        return http_url(self._addresses.current, "")

    def __enter__(self) -> "NodeApi":
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    def publish(self, updates: Sequence[object]) -> list[requests.PublishOutcome]:
        """One for each update, in order: its version, or why it has none."""
        response = self._request("POST", "/v1/publish", updates)
        return requests.publish_outcomes(response.status_code, response.content, len(updates))

    def reset(self, target: ObjectId) -> None:
        self._done(self._request("POST", "/v1/reset", {"app": target.app, "name": target.name}))

    def app(self, app: str) -> AppNow:
        return self.get(f"/v1/admin/apps/{app}", AppNow)

    def reset_app(self, app: str, generation: str) -> AppNow:
        response = self._request("POST", f"/v1/admin/apps/{app}/reset", {"generation": generation})
        return self.decoded(self._done(response), AppNow)

    def check(self) -> None:
        """Is anybody there?"""
        self._done(self._request("GET", "/healthz"))

    def get(self, path: str, of: type[T]) -> T:
        return self.decoded(self._done(self._request("GET", path)), of)

    def decoded(self, content: bytes | msgspec.Raw, of: type[T]) -> T:
        try:
            return msgspec.json.decode(content, type=of)
        except msgspec.DecodeError:
            raise NodeRefused(f"{self._url} does not answer like a Roskva node") from None

    def _request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        content = None if body is None else msgspec.json.encode(body)
        headers = {"content-type": "application/json"} if content else {}
        try:
            return self._ask_any(method, path, content=content, headers=headers)
        except httpx.TransportError as error:
            if about_tls := explained(error, self._url.startswith("https")):
                raise Unavailable(f"{self._url}: {about_tls}{_flags(about_tls)}") from None
            reason = str(error) or type(error).__name__
            raise Unavailable(
                f"no node answers at {self._url} ({reason}): is it running? Start one with "
                "`roskva serve`, or name another with --url"
            ) from None

    def _ask_any(self, method: str, path: str, **what: Any) -> httpx.Response:
        """The first that can be connected to: one that cannot has heard nothing."""
        for others in reversed(range(len(self._addresses))):
            try:
                return self._http.request(method, self._url + path, **what)
            except httpx.ConnectError:
                if not others:
                    raise
                self._addresses.leave()
        raise AssertionError("there is always an address")

    def _done(self, response: httpx.Response) -> bytes:
        outcome = requests.reset_outcome(response.status_code, response.content)
        if isinstance(outcome, requests.PublishFailure):
            raise error_of(outcome)
        return response.content


def error_of(failure: requests.PublishFailure) -> Unavailable | NodeRefused:
    sentence = f"{failure.text or 'refused'} ({failure.code})"
    return Unavailable(sentence) if failure.retriable else NodeRefused(sentence)


def _flags(sentence: str) -> str:
    if "name the CA" in sentence:
        return " with --ca"
    return " (--cert and --cert-key)" if "wants a client certificate" in sentence else ""
