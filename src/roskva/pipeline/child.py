"""The main function of the pipeline as a child of `roskva serve`: at low priority, and gone when
its parent is."""

import logging
import os
import signal
import sys

from roskva.errors import RoskvaError
from roskva.links.processes import NOT_AGAIN, read_assignment, write_report
from roskva.logs import log_to_stderr
from roskva.pipeline.machine import kill_at_once_on, what_is_missing
from roskva.wire.admin import PipelineNow


def main() -> None:
    # Ctrl-C goes to the whole group of processes; it is the parent that stops us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    kill_at_once_on(signal.SIGTERM)
    config, report, scratch = read_assignment()
    log_to_stderr(config.node.log, "pipeline")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    os.nice(config.pipeline.niceness)
    missing = what_is_missing()
    if missing is not None:
        write_report(report, PipelineNow(state="off", why=missing))
        logging.warning("the pipeline is off: %s", missing)
        sys.exit(NOT_AGAIN)
    from roskva.pipeline.work import Work, run

    ingests = tuple(name for name, ingest in config.ingest.items() if ingest.with_node)
    try:
        run(Work(config=config, ingests=ingests, report=report, scratch=scratch))
    except RoskvaError as error:
        write_report(report, PipelineNow(state="failed", why=str(error)))
        logging.error("the pipeline: %s", error)
        sys.exit(1)


if __name__ == "__main__":
    main()
