"""Who may see what a node says of itself."""

import hmac

from roskva.channels.bearer import credential_of
from roskva.config import Config, read_secret
from roskva.errors import Unauthorised


class AdminDoor:
    """`open`: for everybody who gets as far as this, as long as there is no key."""

    def __init__(self, config: Config, *, open: bool) -> None:
        self._open = open
        self._key: bytes | None = None
        self.reload(config)

    def reload(self, config: Config) -> None:
        key = config.admin.key
        self._key = None if key is None else read_secret("key under [admin]", key).encode()

    def check(self, authorization: str | None) -> None:
        if self._key is None:
            if not self._open:
                raise Unauthorised("this is for the admin port or the admin key: see [admin]")
            return
        shown = credential_of(authorization) or ""
        if not hmac.compare_digest(shown.encode(), self._key):
            raise Unauthorised("this needs the admin key, as Authorization: Bearer …")
