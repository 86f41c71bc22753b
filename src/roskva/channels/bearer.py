"""The credential of an HTTP request, or of a WebSocket's handshake: `Authorization: Bearer …`."""

from typing import Final

from roskva.channels.base import Front
from roskva.errors import Unauthorised
from roskva.model import Principal

_SCHEME: Final = "bearer "


class NotIdentified(Exception):
    """In HTTP it matters who is asked who they are (401), and who may not (403)."""


def credential_of(authorization: str | None) -> str | None:
    if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
        return None
    return authorization[len(_SCHEME) :].strip() or None


async def identified(front: Front, authorization: str | None) -> Principal:
    try:
        found = front.identify(None, credential_of(authorization))
        return found if isinstance(found, Principal) else await found
    except Unauthorised as error:
        raise NotIdentified(str(error)) from None
