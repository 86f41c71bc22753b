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
from dataclasses import is_dataclass
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
    given_to_it = inspect.signature(command).parameters.values()
    groups = {one.name: _options_of(one.annotation) for one in given_to_it if _is_group(one)}
    options = [option for one in given_to_it for option in groups.get(one.name, [one])]

    @functools.wraps(command)
    def expanded(**given: Any) -> None:
        for name, fields in groups.items():
            group = command.__annotations__[name]
            given[name] = group(**{option.name: given.pop(option.name) for option in fields})
        command(**given)

    expanded.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    expanded.__annotations__ = {option.name: option.annotation for option in options}
    return expanded


def _is_group(parameter: inspect.Parameter) -> bool:
    return is_dataclass(parameter.annotation)


def _options_of(group: type) -> list[inspect.Parameter]:
    return list(inspect.signature(group).parameters.values())
