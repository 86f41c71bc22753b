"""The scan of a shard for rows that nobody needs any more: when the next page is read.

Page by page, from the first key to the last, and again after a pause. What of a page is expired is
decided by the machines that own the rows (`Rows`, `Matcher`), with all they know of who is online;
the next page is read when what they dropped is on disk. After each page the scan rests for several
times as long as that took, so that a store has time for others however slow it is; and longer while
there is nothing to collect. Nothing is written down of how far it is: after a start it begins anew,
without the long rests, so that soon all that will expire before the next round is known.

That a session ends at a time of its own (MQTT 5) is not left to the round: clients that go with
little time left, and those that a round meets, wait in `Rows.due`, and their rows are read when it
has come.
"""

from typing import Final

import msgspec

from roskva.core.effects import Effect, LoadPage, Page
from roskva.core.expiry import ALWAYS
from roskva.core.rows import Rows

MAX_PAGE_ROWS: Final = 12


class CollectorConfig(msgspec.Struct, frozen=True):
    """In seconds."""

    page_rows: int = MAX_PAGE_ROWS
    """Few: whoever is to be told something meanwhile waits for a page to be looked through."""
    objects: bool = False
    """Whether any app drops objects. If not, they need not be read."""
    first_delay: float = 10.0
    """After a start, which is busy enough."""
    delay: float = 0.01
    """From one page to the next where there is something to collect, and in the first round."""
    idle_delay: float = 0.06
    """Otherwise."""
    pause: float = 600.0
    """From one round to the next."""
    lost_grace: float = 120.0
    """After a link came back, for its registrar to say which sessions it has: it does so when it
    looks at each of them (`RegistrarConfig.scan_interval`), until it is answered."""
    patience: float = 60.0
    """With the store, before it is asked for the page again."""


BY_DEFAULT: Final = CollectorConfig()
REST: Final = 4
"""For each second that a page took."""
_DUE_EVERY: Final = 1.0


class Collector:
    def __init__(self, config: CollectorConfig, rows: Rows, now: float) -> None:
        self.config = config
        self.rows = rows
        self.after = b""
        """Where the next page begins."""
        self.share = 0.0
        """Of the round that is behind us."""
        self.rounds = 0
        self.page_at = now + config.first_delay
        self.due_at = now
        self.asked_at: float | None = None
        """For a page that is being read, or of which something is being dropped."""
        self.due: list[bytes] = []
        """Whose rows are being read because their time has come; none: it is a page of all."""
        self.ids = 0
        self.rest = 0.0
        self.waits = False
        """For what is being dropped of the page that was read."""

    def next_deadline(self) -> float:
        if self.asked_at is not None:
            return self.asked_at + self.config.patience
        return min(self.page_at, self.due_at) if self.rows.due else self.page_at

    def tick(self, now: float) -> list[Effect]:
        if now < self.next_deadline():
            return []
        due = self.rows.take_due(now, self.config.page_rows) if now >= self.due_at else []
        if not due and now < self.page_at:
            self.due_at = now + _DUE_EVERY
            return []
        self.asked_at, self.due = now, due
        self.waits = False
        self.ids += 1
        return [LoadPage(self.ids, self.after, self.config.page_rows, self.config.objects, due)]

    def asked_for(self, id: int) -> bool:
        """Whether it is the page that was asked for last."""
        return id == self.ids and self.asked_at is not None and not self.waits

    def read(self, page: Page | None) -> None:
        """What has expired of it is being dropped. None: it could not be read."""
        self.waits = True
        if page is None or self.due:
            self.rest = self.config.delay
            for client in self.due if page is None else ():
                self.rows.note_due(ALWAYS, client)
        elif page.after is None:
            self.rounds += 1
            self.rows.shares.read(page)
            self.after, self.share, self.rest = b"", 0.0, self.config.pause
        else:
            self.rows.shares.read(page)
            self.after, self.share = page.after, page.share
            quick = not self.rounds or self.rows.collecting
            self.rest = self.config.delay if quick else self.config.idle_delay

    def done(self, now: float) -> None:
        """What was dropped of the page is on disk."""
        assert self.asked_at is not None
        rest = max(self.rest, REST * (now - self.asked_at))
        self.asked_at, self.waits = None, False
        if self.due:
            self.due_at = now + rest
        else:
            self.page_at = now + rest
