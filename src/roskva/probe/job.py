"""What the prober of a node is to do, as it is told when it is started."""

from pathlib import Path

import msgspec

from roskva.config import Config
from roskva.links.processes import Process
from roskva.net.address import Ports


class ProbeJob(msgspec.Struct, frozen=True):
    config: Config
    data: Path
    ports: Ports
    processes: tuple[Process, ...]
    report: Path
    """Where to say what was found."""
    pipeline: Path
    """Where the pipeline says how it is."""
