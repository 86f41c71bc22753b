"""What makes a function a command: its examples, and what its parameters say of its options.

    @dataclass(frozen=True)
    class NodeOptions:
        url: Annotated[str, "Where the node answers."] = DEFAULT_URL

    @command("roskva watch contacts/alice")
    def watch(target: str, node: NodeOptions = NodeOptions()) -> None: ...

A text behind a type is the help of an option. Options that several commands have are fields of a
class: in place of a parameter of that class Typer sees the fields. What fails is one sentence.
"""

import functools
import inspect
from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
from typer import Option

from roskva.cli.outcome import EXIT_CODES, sentences

DataOption = Annotated[
    Path | None, Option(metavar="DIR", help="The data directory. [./roskva-data]")
]
ConfigOption = Annotated[Path | None, Option(metavar="FILE", help="The settings of the node.")]
Command = TypeVar("Command", bound=Callable[..., None])
_of_files: dict[str, list[Callable[[typer.Typer], None]]] = defaultdict(list)


def command(
    *examples: str, of: typer.Typer | None = None, codes: str = EXIT_CODES, name: str | None = None
) -> Callable[[Command], Command]:
    """`of`: the group it belongs to; without one it is for `add_commands`."""
    label = "Example:" if len(examples) == 1 else "Examples:"
    below = "\n\n".join([" ".join([label, *examples[:1]]), *examples[1:], codes])

    def note(command: Command) -> Command:
        def add(app: typer.Typer) -> None:
            app.command(name, epilog=below if examples else None)(_expanded(command))

        _of_files[command.__module__].append(add) if of is None else add(of)
        return command

    return note


def add_commands(app: typer.Typer, file: str) -> None:
    for add in _of_files[file]:
        add(app)


def _expanded(command: Callable[..., None]) -> Callable[..., None]:
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
        with sentences():
            command(**given)

    expanded.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    expanded.__annotations__ = {option.name: option.annotation for option in options}
    return expanded


def _parameters(callable: Callable[..., object]) -> list[inspect.Parameter]:
    return [_as_option(one) for one in inspect.signature(callable).parameters.values()]


def _as_option(parameter: inspect.Parameter) -> inspect.Parameter:
    help = getattr(parameter.annotation, "__metadata__", (None,))[0]
    if not isinstance(help, str):
        return parameter
    kind = parameter.annotation.__origin__
    # A flag is there or not: there is no --no-json.
    flags = [f"--{parameter.name.replace('_', '-')}"] if kind is bool else []
    return parameter.replace(annotation=Annotated[kind, Option(*flags, help=help)])
