"""What a process of a node loads when it starts: that is how long its clients wait."""

import subprocess
import sys

HEAVY = ("litestar", "pyarrow", "numpy", "httpx", "jwt", "prometheus_client", "rich", "typer")


def loaded(program: str) -> list[str]:
    """Of what is heavy."""
    said = f"{program}\nimport sys\nprint(*(n for n in {HEAVY!r} if n in sys.modules))"
    done = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_process_that_comes_back_loads_nothing_that_its_clients_do_not_need() -> None:
    assert loaded("import roskva.server.process") == []


def test_a_writer_has_loaded_arrow_before_anybody_publishes() -> None:
    opening = (
        "from roskva.feed.log import Log\n"
        "from roskva.simulated_disk import SimulatedDisk\n"
        "Log.open(SimulatedDisk(), 'feed', lineage=1, now_us=0)"
    )
    assert "pyarrow" in loaded(opening)
