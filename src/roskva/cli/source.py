"""`roskva source`: databases that publish by themselves."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from roskva.cli.options import ConfigOption, DataOption, command
from roskva.cli.outcome import EXIT_CODES, FAILED
from roskva.config import Config, SourceConfig, load
from roskva.disk import RealDisk
from roskva.errors import BadConfig, Unavailable
from roskva.feed.base import Batch, Marker, Missing
from roskva.feed.reader import LogReader
from roskva.feed.record import read_markers
from roskva.links.processes import running
from roskva.logs import log_to_stderr
from roskva.model import Update
from roskva.sources.change import body_of, doubt_of
from roskva.sources.changes import DIRECTORY, LOG
from roskva.sources.names import row_name, table_name
from roskva.sources.work import SourceJob, database_of, run_source

app = typer.Typer(
    help="Databases whose changes are published by themselves. `roskva serve` reads those that its "
    "settings name.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

NameArgument = Annotated[str, Argument(help="A table [source.NAME] of the settings.")]


@command(
    "roskva source check shop --config roskva.toml",
    of=app,
    codes=f"The exit code is 1 if something is missing. {EXIT_CODES}",
)
def check(
    name: NameArgument,
    config: ConfigOption = None,
    json: Annotated[bool, "JSON."] = False,
) -> None:
    """Say what is missing on the database server, and what mends it. Nothing is changed there."""
    source = _source(load(config), name)
    problems = database_of(name, source).check()
    if json:
        print(msgspec.json.encode(problems).decode())
    elif not problems:
        typer.echo(f"{name}: nothing is missing")
    for problem in [] if json else problems:
        typer.echo(f"{problem.sentence}\n    {problem.remedy}")
    if problems:
        raise typer.Exit(FAILED)


@command(
    "roskva source run shop --config roskva.toml",
    "roskva source run shop --adopt",
    of=app,
)
def run(
    name: NameArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    adopt: Annotated[
        bool, "Read another database than before; clients look at everything, once."
    ] = False,
) -> None:
    """Read a database beside the node that serves the data, for a source `with_node = false`.
    Ctrl-C stops it; the next run goes on where it was."""
    settings = _settings(data, config)
    _source(settings, name)
    node = running(settings.node.data)
    if node is None:
        raise Unavailable(f"no node serves {settings.node.data}: start it with `roskva serve`")
    log_to_stderr("text", f"source {name}")
    job = SourceJob(name, settings, settings.node.data.absolute(), node.processes, adopt=adopt)
    logging.getLogger(__name__).info("reading %s for %s", name, settings.node.data)
    run_source(job)


@command("roskva source ls --data data/", of=app)
def ls(
    data: DataOption = None,
    config: ConfigOption = None,
    json: Annotated[bool, "A line of JSON per source."] = False,
) -> None:
    """The logs of changes in a data directory: how far they reach, and their flows."""
    settings = _settings(data, config)
    found = list(_logs(settings.node.data / DIRECTORY))
    if json:
        for one in found:
            print(msgspec.json.encode(one).decode())
        return
    if not found:
        typer.echo(f"{settings.node.data} has no logs of changes")
        return
    table = Table("source", "changes", "to", "flows", box=None, header_style="dim")
    for one in found:
        flows = ", ".join(f"{flow} at {offset:,}" for flow, offset in one["flows"].items())
        table.add_row(one["source"], f"{one['first']:,}", f"{one['last']:,}", flows or "none")
    Console(highlight=False).print(table)


@command(
    "roskva source cat shop --data data/ | head",
    "roskva source cat shop --after 1000 --json",
    of=app,
)
def cat(
    name: NameArgument,
    data: DataOption = None,
    config: ConfigOption = None,
    after: Annotated[int, "Only what comes after this offset."] = 0,
    json: Annotated[bool, "A line of JSON per record."] = False,
) -> None:
    """What a log of changes holds: each row that was changed, and each doubt."""
    settings = _settings(data, config)
    where = settings.node.data / DIRECTORY / name / LOG
    if not where.is_dir():
        raise BadConfig(f"{settings.node.data} has no log of changes of {name}")
    for offset, update in _records(LogReader(RealDisk(), str(where)), after):
        print(_as_json(offset, update) if json else _as_text(offset, update))


@command(
    "roskva source name products 17",
    "roskva source name sales.orders berlin 17",
    r"roskva source name files '\x00ff' --null 1",
    of=app,
)
def name(
    table: Annotated[str, Argument(help="As the database calls it, perhaps with its schema.")],
    key: Annotated[
        list[str], Argument(metavar="KEY…", help="The values of its key, in their order.")
    ],
    null: Annotated[
        list[int] | None,
        Option(metavar="N", help="The Nth value is NULL; it is left out of KEY…."),
    ] = None,
) -> None:
    r"""How a row is called as an object of its app. Binary is written as \x and hexadecimal digits.

    A table of the default schema is named without it.
    """
    schema, _, plain = table.rpartition(".")
    values: list[str | None] = list(key)
    for place in sorted(null or []):
        values.insert(place - 1, None)
    print(row_name(table_name(schema or None, plain), values))


def _settings(data: Path | None, config: Path | None) -> Config:
    return load(config, {"node.data": None if data is None else str(data)})


def _source(settings: Config, name: str) -> SourceConfig:
    if name not in settings.source:
        known = ", ".join(settings.source) or "none"
        raise BadConfig(f"there is no table [source.{name}] in the settings; there is: {known}")
    return settings.source[name]


def _logs(place: Path) -> Iterator[dict[str, Any]]:
    for directory in sorted(place.glob(f"*/{LOG}")):
        reader = LogReader(RealDisk(), str(directory))
        flows = {
            flow: marker.offset
            for flow, marker in read_markers(RealDisk(), str(directory))[0].items()
            if marker.lineage == reader.lineage
        }
        yield {
            "source": directory.parent.name,
            "first": reader.start(),
            "last": reader.end(),
            "flows": flows,
        }


def _records(reader: LogReader, after: int) -> Iterator[tuple[int, Update]]:
    while True:
        read = reader.read(Marker(reader.lineage, after))
        if isinstance(read, Batch):
            yield from read.entries()
        elif isinstance(read, Missing):
            typer.echo(f"{read.first} to {read.last} are not there: {read.why}", err=True)
        else:
            return
        after = read.last


def _as_text(offset: int, update: Update) -> str:
    if update.reset:
        return f"{offset}  doubt  {doubt_of(update).sentence}"
    body = body_of(update)
    row = bytes(body.row).decode() if body.op != "delete" else ""
    return f"{offset}  {body.op}  {update.object}  {row}".rstrip()


def _as_json(offset: int, update: Update) -> str:
    shown: dict[str, Any] = {"offset": offset, "at": update.published_at}
    if update.reset:
        doubt = doubt_of(update)
        app = update.object.rstrip("/")
        shown |= {"app": app, "ordinal": str(update.version), "doubt": doubt}
    else:
        shown |= {
            "object": update.object,
            "version": str(update.version),
            "change": body_of(update),
        }
    return msgspec.json.encode(shown).decode()
