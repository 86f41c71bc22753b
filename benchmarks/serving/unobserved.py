"""`roskva` without what is measured inside: distributions and rates.

python benchmarks/serving/unobserved.py serve …
"""

from roskva.cli.main import main
from roskva.metrics import Rates, Times

if __name__ == "__main__":
    Times.observe = lambda self, seconds: None  # type: ignore[method-assign]
    Rates.sample = lambda self: None  # type: ignore[method-assign]
    main()
