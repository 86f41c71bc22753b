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
    │   ├── TokenRejected        tampered, expired, of another key: shake hands again
    │   ├── Fenced               a newer session or writer took over
    │   └── UnknownClient        its row is gone: start anew
    ├── Unavailable              not now: try again
    │   ├── Overloaded
    │   └── StorageUnavailable
    └── Damaged                  stored bytes that are not what was written

`code` goes over the wire and never changes. `retriable`: the same call may succeed later.
`fatal`: the session is over; the client connects again with a new handshake.
"""

from typing import ClassVar


class RoskvaError(Exception):
    code: ClassVar[str] = "internal"
    retriable: ClassVar[bool] = False
    fatal: ClassVar[bool] = False


class BadInput(RoskvaError):
    code = "bad_input"


class BadName(BadInput):
    code = "bad_name"


class BadMessage(BadInput):
    code = "bad_message"


class TooLarge(BadMessage):
    code = "too_large"


class WrongProtocol(BadMessage):
    code = "wrong_protocol"
    fatal = True


class BadConfig(BadInput):
    code = "bad_config"


class Refused(RoskvaError):
    code = "refused"


class Unauthorised(Refused):
    code = "unauthorised"


class LimitExceeded(Refused):
    code = "limit_exceeded"


class TokenRejected(Refused):
    code = "token_rejected"


class Fenced(Refused):
    code = "fenced"
    fatal = True


class UnknownClient(Refused):
    code = "unknown_client"
    fatal = True


class Unavailable(RoskvaError):
    code = "unavailable"
    retriable = True


class Overloaded(Unavailable):
    code = "overloaded"


class StorageUnavailable(Unavailable):
    code = "storage_unavailable"


class Damaged(RoskvaError):
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
