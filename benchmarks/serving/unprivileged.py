"""`roskva` on a system that grants it no real-time priority.

python benchmarks/serving/unprivileged.py serve …
"""

import os

from roskva.cli.main import main


def _refused(*_: object) -> None:
    raise PermissionError


if __name__ == "__main__":
    os.sched_setscheduler = _refused
    main()
