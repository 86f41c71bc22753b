"""What the node's HTTP answers mean for each update of a request."""

from typing import Final

import msgspec

from roskva.errors import Refused, RoskvaError, Unavailable, error_of


class Failure(msgspec.Struct, frozen=True):
    """An update that was not accepted; if `retriable`, the same may succeed later."""

    code: str
    text: str = ""
    retriable: bool = False

    def as_error(self) -> RoskvaError:
        return error_of(self.code, self.text or self.code)


class _Result(msgspec.Struct):
    version: int | None = None
    error: Failure | None = None


class _Answer(msgspec.Struct):
    results: list[_Result] | None = None
    error: Failure | None = None


Outcome = int | Failure
"""The version that is durable now, or why there is none."""


def publish_outcomes(status: int, content: bytes, updates: int) -> list[Outcome]:
    """One for each update, in order."""
    answer = _decoded(content)
    if answer.results is not None and len(answer.results) == updates:
        return [_outcome(result) for result in answer.results]
    return [_failure(status, answer)] * updates


def reset_outcome(status: int, content: bytes) -> Outcome:
    return 0 if status == _OK else _failure(status, _decoded(content))


_OK: Final = 200
_SERVER_ERRORS: Final = 500
_MAY_PASS: Final = (_OK, 408, 425, 429)
"""And 200, with something in it that is not our answer: somebody stands between."""

_decoder = msgspec.json.Decoder(_Answer, strict=False)  # versions are decimal strings


def _decoded(content: bytes) -> _Answer:
    try:
        return _decoder.decode(content)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _Answer()


def _outcome(result: _Result) -> Outcome:
    if result.version is not None:
        return result.version
    return result.error or Failure(Unavailable.code, "an answer without a version", True)


def _failure(status: int, answer: _Answer) -> Failure:
    """Of everything in the request. Without our own error in it, the status has to do."""
    if answer.error is not None:
        return answer.error
    if status >= _SERVER_ERRORS or status in _MAY_PASS:
        return Failure(Unavailable.code, f"status {status}, and no answer of Roskva's", True)
    return Failure(Refused.code, f"status {status}, and no answer of Roskva's: check the URL")
