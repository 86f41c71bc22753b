"""What all commands say: how far they are, one sentence if they fail, an exit code for scripts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import typer

from roskva.errors import BadInput, RoskvaError

if TYPE_CHECKING:  # publishing in a loop should not wait for it
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

OK: Final = 0
FAILED: Final = 1
BAD_USAGE: Final = 2
LATER: Final = 3
INTERRUPTED: Final = 130

EXIT_CODES: Final = (
    "Exit codes: 0 done, 1 what was asked for failed, 2 bad usage or configuration, 3 no node "
    "answers or it asks to try again later, 130 interrupted."
)


class NodeRefused(RoskvaError):
    """The node answered, and the answer is no. Its reason is not about how we were called."""

    code = "refused"


@contextmanager
def sentences() -> Iterator[None]:
    """Errors as a line on stderr and an exit code."""
    try:
        yield
    except KeyboardInterrupt:
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        raise  # whoever read our output has seen enough
    except (RoskvaError, OSError) as error:
        complain(str(error))
        raise typer.Exit(exit_code(error)) from None


def complain(sentences: str) -> None:
    for sentence in sentences.splitlines():
        typer.echo(f"roskva: {sentence}", err=True)


def progress(*columns: "ProgressColumn") -> "Progress":
    """A bar on stderr, where somebody looks; gone when it is over."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def table_of(*columns: str, left: int = 1) -> "Table":
    """So many of the columns are of words, the others of numbers."""
    from rich.table import Table

    table = Table(box=None, header_style="dim", pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < left else "right")
    return table


def exit_code(error: RoskvaError | OSError) -> int:
    match error:
        case BadInput() | FileNotFoundError() | NotADirectoryError() | PermissionError():
            return BAD_USAGE
        case OSError():
            return LATER  # a disk that is full, or in trouble
    return LATER if error.retriable else FAILED
