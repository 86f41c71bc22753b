"""Nodes with a prober, and ways to hurt them."""

import json
import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import httpx
from tests.serving.nodes import Node, await_that

EVERY_S: Final = 0.5
NOTICE_ROUNDS: Final = 4
"""One that was under way, and one that sees it all; and as many again for a busy machine. How long
a round may take is in `test_notice.py`."""
SETTLED_S: Final = 180.0
"""Spark starts within it, also on a busy machine."""
_HELD_S: Final = 0.4
_LOOK_S: Final = 0.02
GENEROUS: Final = Path(__file__).with_name("generous.toml")
"""More than it takes, and soon over for what is hurt: so a busy machine counts as hurt at times."""
PATIENT: Final = Path(__file__).with_name("patient.toml")
"""So much that a busy machine does not: for rounds that have to end well."""
SETTINGS: Final = f"[probe]\nevery_seconds = {EVERY_S}\n{GENEROUS.read_text()}"


class Probed(Node):
    def __init__(self, data: Path, *flags: str, **more: Any) -> None:
        file = data.with_name("roskva.toml")
        file.write_text(SETTINGS)
        super().__init__(data, "--config", str(file), *flags, probe=True, **more)

    @property
    def report(self) -> dict[str, Any]:
        """As the prober wrote it down: also while nobody is there to ask."""
        found = Path(self.announced()["processes"][0]["socket"]).with_name("probe.json")
        with suppress(FileNotFoundError):
            report: dict[str, Any] = json.loads(found.read_text())
            return report
        return {"rounds": 0, "objectives": [], "sentence": ""}

    def get(self, path: str) -> httpx.Response:
        return self._http.get(path).raise_for_status()

    def await_well(self, also: str = "publish") -> None:
        """Rounds that ended well, twice in a row: one may have been under way."""

        def well() -> bool:
            kept = _kept(self.report)
            return also in kept and all(kept.values())

        await_that(well, SETTLED_S, lambda: f"{self.report}\n{self.said()}")
        before = self.report["rounds"]
        await_that(lambda: self.report["rounds"] >= before + 2, SETTLED_S)
        await_that(well, SETTLED_S, lambda: str(self.report))

    def await_hurt(
        self, *slis: str, unhurt: Collection[str] = (), says: Collection[str] = ()
    ) -> None:
        """Until it was noticed, which takes few rounds, and one report says all that is wanted."""
        before = self.report

        def noticed() -> bool:
            report = self.report
            # Counted: it may have been said, and be over, while nobody looked.
            missed = all(_missed(report, sli) > _missed(before, sli) for sli in slis)
            rounds = report["rounds"] - before["rounds"]
            assert missed or rounds < NOTICE_ROUNDS, f"not in {rounds} rounds: {report}"
            hurt = {sli for sli, kept in _kept(report).items() if kept is False}
            told = all(words in report["sentence"] for words in says)
            return missed and told and hurt.isdisjoint(unhurt)

        await_that(noticed, SETTLED_S, lambda: str(self.report))

    @contextmanager
    def keeps_dying(self, spared: set[int]) -> Iterator[None]:
        """Whatever has clients or shards and is not spared. Afterwards everybody goes on."""
        over = Event()
        killing = Thread(target=self._kill, args=(spared, over))
        killing.start()
        try:
            yield
        finally:
            over.set()
            killing.join()
            signal_all(self.processes(), signal.SIGCONT)

    def _kill(self, spared: set[int], over: Event) -> None:
        """With −9; but not so fast that it is started ever later. Until then it is stopped: it
        never serves."""
        seen: dict[int, float] = {}
        while not over.wait(_LOOK_S):
            for pid in self.processes():
                with suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if pid in spared or b"roskva.server.processes" not in words:
                        continue
                    if pid not in seen:
                        os.kill(pid, signal.SIGSTOP)
                        seen[pid] = time.monotonic()
                    elif time.monotonic() > seen[pid] + _HELD_S:
                        os.kill(pid, signal.SIGKILL)


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it went with another
            os.kill(pid, number)


def _kept(report: dict[str, Any]) -> dict[str, bool | None]:
    return {one["sli"]: one["kept"] for one in report["objectives"]}


def _missed(report: dict[str, Any], sli: str) -> int:
    return sum(one["missed"] for one in report["objectives"] if one["sli"] == sli)
