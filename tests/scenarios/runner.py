"""Scenario files: scripts with the trace that they must give, to be read as stories.

A file is a sequence of blocks. A block has comments (`#`), one or more commands (`commands.py`),
the line `----`, and what happened meanwhile, up to an empty line. Lines of a trace:

    alice > r1        …    a message from one to the other, when it is sent
    r1 >> alice, bob  …    one frame for all of them
    alice ::          …    an event handed to alice's application
    r1 x shard        …    a link or connection that broke
        (2s later)         nothing was said for so long

`notation.py` explains the short names of random values. Pings that agree are left out.

    python -m tests.scenarios.runner             compares
    python -m tests.scenarios.runner --rewrite   writes what happens now into the files
"""

import sys
from difflib import unified_diff
from pathlib import Path
from typing import Final

from tests.scenarios.cluster import ScriptError
from tests.scenarios.commands import Play

SCENARIOS: Final = sorted(Path(__file__).parent.glob("*.txt"))
_RULE: Final = "----"


def perform(script: str) -> str:
    """The script with the output of this run in the place of what it expects."""
    play, result = Play(), []
    lines = iter(enumerate(script.splitlines(), start=1))
    commands = 0
    for number, line in lines:
        result.append(line)
        if line == _RULE:
            if not commands:
                raise ScriptError(f"line {number}: {_RULE} without a command before it")
            commands = 0
            result += [*play.output(), ""]
            for _, expected in lines:
                if not expected:
                    break
        elif line and not line.startswith("#"):
            commands += 1
            try:
                play.perform(line)
            except ScriptError as error:
                raise ScriptError(f"line {number}: {error}") from None
    if commands:
        raise ScriptError(f"the last commands are not followed by {_RULE}")
    play.finish()
    return "\n".join(result).rstrip("\n") + "\n"


def difference(path: Path) -> list[str]:
    """How this run differs from the file; nothing if it does not."""
    expected = path.read_text()
    happened = perform(expected)
    return list(
        unified_diff(
            expected.splitlines(), happened.splitlines(), "expected", "happened", "", "", 4, ""
        )
    )


def rewrite(path: Path) -> None:
    path.write_text(perform(path.read_text()))


def main(arguments: list[str]) -> int:
    differing = 0
    for path in SCENARIOS:
        try:
            if "--rewrite" in arguments:
                rewrite(path)
            lines = difference(path)
        except ScriptError as error:
            lines = [str(error)]
        if lines:
            differing += 1
            sys.stdout.write("\n".join([path.name, *lines, ""]))
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
