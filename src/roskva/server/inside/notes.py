"""What this process told clients lately that changed what they get: refusals, and ends of sessions.

Soft, and bounded: it is there to explain what somebody asks about now, and no log.
"""

import time
from collections import deque
from collections.abc import Sequence
from typing import Final

from roskva.core.session import Session
from roskva.host.observer import Observer
from roskva.model import Key
from roskva.server.inside.facts import NoteFacts
from roskva.wire.messages import OperationStatus

_KEPT: Final = 1000


class Notes(Observer):
    def __init__(self, process: str) -> None:
        self._process = process
        self._kept: deque[tuple[bytes, str, float, str, Key]] = deque(maxlen=_KEPT)

    def answered(self, session: Session, statuses: Sequence[OperationStatus]) -> None:
        """Its operations, some of which may have been refused."""
        for status in statuses:
            if status.code:
                self._note(session, status.code, status.object)

    def ended(self, session: Session, code: str) -> None:
        self._note(session, code)

    def _note(self, session: Session, code: str, key: Key = "") -> None:
        self._kept.append((session.client, session.application, time.time(), code, key))

    def about(self, wanted: str) -> list[NoteFacts]:
        """By a client's id in hexadecimal digits or its application id; the latest first."""
        id = wanted.lower()
        return [
            NoteFacts(client.hex(), at, code, self._process, key)
            for client, application, at, code, key in reversed(self._kept)
            if client.hex() == id or (application and application == wanted)
        ]
