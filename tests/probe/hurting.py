"""Nodes with a prober, and ways to hurt them."""

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.serving.nodes import Node, await_that

EVERY_S: Final = 0.5
PATIENCE_S: Final = 2.0
NOTICE_S: Final = 3 * (EVERY_S + PATIENCE_S)
"""A round that was under way, and one that sees it all; and as much again for a busy machine."""
SETTLED_S: Final = 60.0
_HELD_S: Final = 0.4
GENEROUS: Final = Path(__file__).with_name("generous.toml")
"""Far more than it takes, so that a busy machine does not count as hurt."""
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

    def kept(self) -> dict[str, bool | None]:
        return {one["sli"]: one["kept"] for one in self.report["objectives"]}

    def await_well(self, also: str = "publish") -> None:
        """Rounds that ended well, twice in a row: one may have been under way."""

        def well() -> bool:
            kept = self.kept()
            return also in kept and all(kept.values())

        await_that(well, SETTLED_S, lambda: f"{self.report}\n{self.said()}")
        before = self.report["rounds"]
        await_that(lambda: self.report["rounds"] >= before + 2, SETTLED_S)
        await_that(well, SETTLED_S, lambda: str(self.report))

    def await_hurt(
        self, *slis: str, meanwhile: Callable[[], None] = lambda: None
    ) -> dict[str, Any]:
        """The report that first says so, and that it came in time."""
        began = time.monotonic()

        def hurt() -> bool:
            meanwhile()
            report = self.report
            kept = {one["sli"]: one["kept"] for one in report["objectives"]}
            if all(kept.get(sli) is False for sli in slis):
                found.append(report)
            return bool(found)

        found: list[dict[str, Any]] = []
        try:
            await_that(hurt, SETTLED_S, lambda: str(self.report))
        finally:
            for pid in self.processes():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        took_s = time.monotonic() - began
        assert took_s < NOTICE_S, f"noticed only after {took_s:.1f} s"
        return found[0]

    def keeps_dying(self, spared: set[int]) -> Callable[[], None]:
        """Kills with −9 whichever of the processes with clients or shards is not spared; but not so
        fast that it is started ever later. Until then it is stopped: it never serves."""
        seen: dict[int, float] = {}

        def kill() -> None:
            for pid in self.processes():
                with suppress(OSError):
                    words = Path(f"/proc/{pid}/cmdline").read_bytes()
                    if pid in spared or b"roskva.server.process" not in words:
                        continue
                    if pid not in seen:
                        os.kill(pid, signal.SIGSTOP)
                        seen[pid] = time.monotonic()
                    elif time.monotonic() > seen[pid] + _HELD_S:
                        os.kill(pid, signal.SIGKILL)

        return kill
