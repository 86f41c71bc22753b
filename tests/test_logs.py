"""Log lines that strangers can provoke: written once, then counted."""

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager

from roskva.logs import EVERY_S, MAX_KINDS, Lines


class Log:
    def __init__(self) -> None:
        self.now = 0.0
        self._stream = io.StringIO()
        self.lines = Lines(self._stream, lambda: self.now)
        self.lines.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def said(self) -> list[str]:
        return self._stream.getvalue().splitlines()


@contextmanager
def _log(name: str) -> Iterator[tuple[logging.Logger, Log]]:
    log, logger = Log(), logging.getLogger(name)
    logger.addHandler(log.lines)
    try:
        yield logger, log
    finally:
        logger.removeHandler(log.lines)


def test_what_is_provoked_is_written_once_a_minute_and_counted() -> None:
    with _log("uvicorn.error") as (logger, log):
        for second in range(150):
            log.now = float(second)
            logger.warning("Invalid request from %d", second)
            logger.warning("Unsupported upgrade")
    written = [line for line in log.said() if "Invalid" in line]
    assert written == [
        "WARNING uvicorn.error: Invalid request from 0",
        "WARNING uvicorn.error: Invalid request from 0 (59 more in 60 s)",
        "WARNING uvicorn.error: Invalid request from 0 (60 more in 60 s)",
    ]
    assert len(log.said()) == 2 * len(written)


def test_a_count_is_told_though_nothing_else_happens() -> None:
    with _log("asyncio") as (logger, log):
        for _ in range(3):
            logger.error("Fatal error\ntransport: <0x%x>", id(object()))
        log.now = EVERY_S
        log.lines.tell_counted()
        log.now = 3 * EVERY_S
        log.lines.tell_counted()
        logger.error("Fatal error\ntransport: <0x1>")
        logger.error("Fatal error\ntransport: <0x2>")
        log.lines.close()
    errors = [line for line in log.said() if line.startswith("ERROR")]
    assert errors[1:] == [
        "ERROR asyncio: Fatal error (2 more in 60 s)",
        "ERROR asyncio: Fatal error",
        "ERROR asyncio: Fatal error (1 more in 0 s)",
    ]


def test_the_first_of_a_kind_has_its_traceback_and_the_next_has_not() -> None:
    with _log("uvicorn.error") as (logger, log):
        for _ in range(2):
            try:
                raise ValueError("which one")
            except ValueError:
                logger.exception("it failed")
        log.now = EVERY_S
        log.lines.tell_counted()
    assert sum(line.startswith("Traceback") for line in log.said()) == 1
    assert log.said()[-1] == "ERROR uvicorn.error: it failed (1 more in 60 s)"


def test_kinds_are_bounded() -> None:
    with _log("uvicorn.error") as (logger, log):
        for number in range(10 * MAX_KINDS):
            logger.warning(f"{number} is no template")
    assert len(log.said()) == MAX_KINDS + 1


def test_everything_else_is_written_as_often_as_it_happens() -> None:
    with _log("roskva.server.node") as (logger, log):
        for _ in range(3):
            logger.warning("it was read again")
    assert len(log.said()) == 3
