"""What a process of a node loads when it starts: that is how long its clients wait."""

import subprocess
import sys
from pathlib import Path

HEAVY = ("litestar", "pyarrow", "numpy", "httpx", "jwt", "prometheus_client", "rich", "typer")


def loaded(program: str) -> list[str]:
    """Of what is heavy."""
    said = f"{program}\nimport sys\nprint(*(n for n in {HEAVY!r} if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_process_that_comes_back_loads_nothing_that_its_clients_do_not_need() -> None:
    assert loaded("import roskva.server.processes") == []


def test_a_writer_has_loaded_arrow_before_anybody_publishes() -> None:
    opening = (
        "from roskva.feed.log import Log\n"
        "from roskva.simulation.disk import SimulatedDisk\n"
        "Log.open(SimulatedDisk(), 'feed', lineage=1, now_us=0)"
    )
    assert "pyarrow" in loaded(opening)


def test_a_reader_has_loaded_arrow_before_there_is_anything_to_read() -> None:
    opening = (
        "from roskva.feed.log import Log, LogConfig\n"
        "from roskva.simulation.disk import SimulatedDisk\n"
        "log = Log.open(\n"
        "    SimulatedDisk(), 'feed', lineage=1, now_us=0, config=LogConfig(packed=True)\n"
        ")\n"
    )
    assert loaded(opening) == []
    assert "pyarrow" in loaded(opening + "log.reader()")


def test_a_registrar_keeps_its_trace_without_arrow(tmp_path: Path) -> None:
    """Also where another one ended before, in the middle of it."""
    noting = f"""
from pathlib import Path
from roskva.feed.trace import Trace

for life in range(3):
    trace = Trace(Path({str(tmp_path)!r}), 1, life)
    for version in range(5000):
        trace.note("sent", "a/x", version, version)
    trace.write(trace.take(), life)
    if life:
        trace.close(life)
    else:
        trace._log._claim.release()
"""
    assert loaded(noting) == []
