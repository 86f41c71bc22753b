"""What a request to publish says over HTTP, and what its answer means for each update."""

from typing import Final

import msgspec

from roskva.errors import Refused, Unavailable


class UpdateBody(msgspec.Struct, omit_defaults=True):
    """An update as a node is told it; versions are text in JSON."""

    app: str
    name: str
    version: str | None = None
    source: str | None = None
    payload: bytes | None = None


class PublishFailure(msgspec.Struct, frozen=True):
    """An update that was not accepted; if `retriable`, the same may succeed later."""

    code: str
    text: str = ""
    retriable: bool = False


class _Result(msgspec.Struct):
    version: int | None = None
    error: PublishFailure | None = None


class _PublishAnswer(msgspec.Struct):
    results: list[_Result] | None = None
    error: PublishFailure | None = None


PublishOutcome = int | PublishFailure
"""The version that is durable now, or why there is none."""


def publish_outcomes(status: int, content: bytes, updates: int) -> list[PublishOutcome]:
    """One for each update, in order."""
    answer = _decoded(content)
    if answer.results is not None and len(answer.results) == updates:
        return [_outcome(result) for result in answer.results]
    return [_failure(status, answer)] * updates


def reset_outcome(status: int, content: bytes) -> PublishOutcome:
    return 0 if status == _OK else _failure(status, _decoded(content))


_OK: Final = 200
_SERVER_ERRORS: Final = 500
_MAY_PASS: Final = (_OK, 408, 425, 429)
"""And 200, with something in it that is not our answer: somebody stands between."""

_decoder = msgspec.json.Decoder(_PublishAnswer, strict=False)  # versions are decimal strings


def _decoded(content: bytes) -> _PublishAnswer:
    try:
        return _decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _PublishAnswer()


def _outcome(result: _Result) -> PublishOutcome:
    if result.version is not None:
        return result.version
    return result.error or PublishFailure(Unavailable.code, "an answer without a version", True)


def _failure(status: int, answer: _PublishAnswer) -> PublishFailure:
    """Of everything in the request. Without our own error in it, the status has to do."""
    if answer.error is not None:
        return answer.error
    if status >= _SERVER_ERRORS or status in _MAY_PASS:
        return PublishFailure(Unavailable.code, f"status {status}, and no answer of Roskva's", True)
    return PublishFailure(
        Refused.code, f"status {status}, and no answer of Roskva's: check the URL"
    )
