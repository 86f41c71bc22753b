"""The main function of a source as a child of `roskva serve`: gone when its parent is."""

import logging
import signal
import sys

from roskva.errors import BadConfig, RoskvaError
from roskva.links.processes import NOT_AGAIN, read_assignment
from roskva.logs import log_to_stderr
from roskva.sources.work import SourceJob, run_source


def main() -> None:
    # Ctrl-C goes to the whole group of processes; it is the parent that stops us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    job: SourceJob = read_assignment()
    log_to_stderr(job.config.node.log, f"source {job.name}")
    try:
        run_source(job)
    except BadConfig as error:
        logging.error("%s", error)
        sys.exit(NOT_AGAIN)
    except RoskvaError as error:
        logging.error("the source ends: %s", error)
        sys.exit(1)


if __name__ == "__main__":
    main()
