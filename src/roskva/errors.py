"""Every error Roskva raises or sends, as data.

    RoskvaError
    ├── BadInput                 what was handed in is wrong; the same again fails again
    │   ├── BadName
    │   ├── BadMessage           bytes that are no message of ours
    │   │   ├── TooLarge
    │   │   └── WrongProtocol    another major version
    │   └── BadConfig
    ├── Refused                  the answer is no
    │   ├── Unauthorised
    │   ├── LimitExceeded
    │   │   └── TooFast          a rate: the same again is fine a moment later
    │   ├── TooLate              of before the last reset of its app
    │   ├── TokenRejected        tampered, expired, of another key: shake hands again
    │   ├── Fenced               a newer session or writer took over
    │   └── UnknownClient        its row is gone: start anew
    ├── Unavailable              not now: try again
    │   ├── Overloaded
    │   └── StorageUnavailable
    └── Damaged                  stored bytes that are not what was written

`code` goes over the wire and never changes. `retriable`: the same call may succeed later.
`fatal`: the session is over; the client connects again with a new handshake.
The docstrings are what docs/errors.md says.
"""

from typing import ClassVar


class RoskvaError(Exception):
    """Something is wrong with this server. Its log says what."""

    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False


class BadInput(RoskvaError):
    """What was handed in is wrong; the same again fails again."""

    code = "bad_input"


class BadName(BadInput):
    """No name of an app or an object."""

    code = "bad_name"


class BadMessage(BadInput):
    """Bytes that are no message of ours."""

    code = "bad_message"


class TooLarge(BadMessage):
    """Larger than allowed: docs/limits.md."""

    code = "too_large"


class WrongProtocol(BadMessage):
    """Another major version of the protocol."""

    code = "wrong_protocol"
    fatal = True


class BadConfig(BadInput):
    """A setting, a file or a flag is wrong."""

    code = "bad_config"


class Refused(RoskvaError):
    """The answer is no."""

    code = "refused"


class Unauthorised(Refused):
    """Whoever asks may not do this, or is not known."""

    code = "unauthorised"


class LimitExceeded(Refused):
    """More of something than allowed: docs/limits.md."""

    code = "limit_exceeded"


class TooFast(LimitExceeded):
    """More in a second than allowed. The same again is fine a moment later."""

    code = "too_fast"
    retriable = True


class TooLate(Refused):
    """A change of before the last reset of its app: what holds now comes with later ones."""

    code = "too_late"


class TokenRejected(Refused):
    """Tampered with, expired, revoked or of another key: shake hands again."""

    code = "token_rejected"


class Fenced(Refused):
    """A newer session of this client, or another writer, took over."""

    code = "fenced"
    fatal = True


class UnknownClient(Refused):
    """The row of this client is gone: it starts anew."""

    code = "unknown_client"
    fatal = True


class Unavailable(RoskvaError):
    """Not now: try again."""

    code = "unavailable"
    retriable = True


class Overloaded(Unavailable):
    """Too much to do, or too many at once: try again, not before the time that is named."""

    code = "overloaded"


class StorageUnavailable(Unavailable):
    """The disk does not take it."""

    code = "storage_unavailable"


class Damaged(RoskvaError):
    """Stored bytes that are not what was written."""

    code = "damaged"


def error_of(code: str, text: str) -> RoskvaError:
    """The error that travelled as this code; one that we do not know yet is a plain one."""
    return _BY_CODE.get(code, RoskvaError)(text)


def _tree(root: type[RoskvaError]) -> dict[str, type[RoskvaError]]:
    found = {root.code: root}
    for kind in root.__subclasses__():
        found |= _tree(kind)
    return found


_BY_CODE = _tree(RoskvaError)
