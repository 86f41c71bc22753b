"""Options that several commands have, as one parameter.

    class NodeOptions(NamedTuple):
        url: Annotated[str, typer.Option(...)] = DEFAULT_URL

    def watch(target: str, node: NodeOptions = NodeOptions()) -> None: ...

    app.command()(grouped(watch))

In place of the parameter Typer sees the fields of the tuple.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    given_to_it = inspect.signature(command).parameters.values()
    groups = {one.name: one.annotation for one in given_to_it if _is_group(one.annotation)}
    options = [
        option
        for one in given_to_it
        for option in (_options_of(one.annotation) if one.name in groups else [one])
    ]

    @functools.wraps(command)
    def expanded(**given: Any) -> None:
        for name, group in groups.items():
            given[name] = group(**{option: given.pop(option) for option in group._fields})
        command(**given)

    expanded.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    expanded.__annotations__ = {option.name: option.annotation for option in options}
    return expanded


def _is_group(annotation: object) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, tuple)


def _options_of(group: type) -> list[inspect.Parameter]:
    return list(inspect.signature(group).parameters.values())
