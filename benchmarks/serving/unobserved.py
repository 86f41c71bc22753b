"""`roskva` without what is measured inside: distributions and rates.

python benchmarks/serving/unobserved.py serve …
"""

import asyncio

from roskva.cli.main import main
from roskva.metrics import Times
from roskva.server.admin.answers import Rates


async def _never(self: Rates) -> None:
    await asyncio.Event().wait()


if __name__ == "__main__":
    Times.observe = lambda self, seconds: None  # type: ignore[method-assign]
    Rates.run = _never  # type: ignore[method-assign]
    main()
