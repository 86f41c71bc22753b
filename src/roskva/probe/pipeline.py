"""Whether the pipeline is at work. Without it a node closes its gaps itself, and clients are told
all the same: how long that takes would not show that the way through the pipeline is hurt."""

from typing import Final

from roskva.wire.admin import PipelineNow

_SILENT_S: Final = 3.0
"""It says every second how it is."""


def what_is_wrong(report: PipelineNow | None, now: float) -> str:
    """Nothing, if it is at work. `now` is by the clock of the node."""
    if report is None or now - report.written_at > _SILENT_S:
        return "the pipeline does not answer"
    if report.state != "running":
        return f"the pipeline is {report.state}"
    bridge = next((part for part in report.parts if part.name == "bridge"), None)
    if bridge is None:
        return "there is no bridge"
    error = f": {bridge.last_error}" if bridge.last_error else ""
    return "" if bridge.state == "running" else f"the bridge is {bridge.state}{error}"
