"""Spark's errors, pages long, as the sentence that matters."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from roskva.errors import RoskvaError, error_of

_OURS: Final = re.compile(r"^roskva\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
"""The last line of a traceback in a Python worker."""


class PipelineFailed(RoskvaError):
    code = "pipeline_failed"


@contextmanager
def spark_errors() -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise sentence(str(error)) from error


def sentence(text: str) -> RoskvaError:
    """Ours, if one of ours is at the bottom of it; otherwise Spark's first line."""
    found = _OURS.findall(text)
    if found:
        kind, words = found[-1]
        code = re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()
        return error_of(code, words)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return PipelineFailed(f"Spark gave up: {lines[0] if lines else 'it does not say why'}")
