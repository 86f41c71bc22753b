"""What comes with Roskva's source and not with the package, loaded from where this Roskva runs."""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import roskva
from roskva.errors import BadInput

SOURCE = Path(roskva.__file__).resolve().parents[2]


def from_checkout(module: str, what: str, command: str) -> Any:
    """`what` are the words for it in the plural; `command` runs it where the source is."""
    if not SOURCE.joinpath(*module.split(".")).with_suffix(".py").exists():
        raise BadInput(
            f"{what} come with Roskva's source, and this Roskva was installed without it: "
            f"clone the repository, and run `{command}` there."
        )
    if str(SOURCE) not in sys.path:
        sys.path.insert(0, str(SOURCE))
    return import_module(module)
