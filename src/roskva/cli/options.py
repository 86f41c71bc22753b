"""How a command is added: its examples, and options that it shares with others as one parameter.

    @dataclass(frozen=True)
    class NodeOptions:
        url: Annotated[str, typer.Option(...)] = DEFAULT_URL

    def watch(target: str, node: NodeOptions = NodeOptions()) -> None: ...

    add(app, watch, "roskva watch contacts/alice")

In place of the parameter Typer sees the fields of the class.
"""

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

import typer

from roskva.cli.outcome import EXIT_CODES


def add(
    app: typer.Typer, command: Callable[..., None], *examples: str, codes: str = EXIT_CODES
) -> None:
    label = "Example" if len(examples) == 1 else "Examples"
    below = "\n\n".join([f"{label}: {examples[0]}", *examples[1:], codes])
    app.command(epilog=below)(grouped(command))


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    given_to_it = _parameters(command)
    kinds: dict[str, Any] = {
        one.name: one.annotation for one in given_to_it if is_dataclass(one.annotation)
    }
    options = [
        option
        for one in given_to_it
        for option in (_parameters(kinds[one.name]) if one.name in kinds else [one])
    ]

    @functools.wraps(command)
    def expanded(**given: Any) -> None:
        for name, kind in kinds.items():
            given[name] = kind(**{field.name: given.pop(field.name) for field in fields(kind)})
        command(**given)

    expanded.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    expanded.__annotations__ = {option.name: option.annotation for option in options}
    return expanded


def _parameters(callable: Callable[..., object]) -> list[inspect.Parameter]:
    return list(inspect.signature(callable).parameters.values())
