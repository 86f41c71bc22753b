"""`roskva pipeline`: the bridge and the ingests, by themselves."""

import logging
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text
from typer import Argument, Option

from roskva.cli.options import ConfigOption, DataOption, command
from roskva.cli.outcome import EXIT_CODES, FAILED
from roskva.config import CHANGES_FORMAT, Config, load
from roskva.errors import BadConfig
from roskva.logs import log_to_stderr
from roskva.pipeline.machine import kill_at_once_on, require_pipeline, spark_settings

if TYPE_CHECKING:
    from roskva.pipeline.ingest import Preview

app = typer.Typer(
    help="Deliver the feed for certain, and publish what Spark can read. `roskva serve` runs both "
    "by itself.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

MasterOption = Annotated[
    str | None, Option(help="Where Spark runs, as in spark://host:7077. [local[*]]")
]
ConfOption = Annotated[
    list[str] | None, Option(metavar="KEY=VALUE", help="A setting of Spark, as in spark-submit.")
]
_SHORT: Final = 60


@command("roskva pipeline bridge --data data/ --master spark://127.0.0.1:7077", of=app)
def bridge(
    data: DataOption = None,
    config: ConfigOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
) -> None:
    """Bring everything in the feed to its matcher, whoever was down. Ctrl-C stops it."""
    _run(_settings(data, config, master), conf)


@command(
    "roskva pipeline ingest products --dry-run",
    "roskva pipeline ingest products --once",
    of=app,
    codes=f"With --once the exit code is 1 if there were dead letters. {EXIT_CODES}",
)
def ingest(
    name: Annotated[str, Argument(help="A table [ingest.NAME] of the settings.")],
    data: DataOption = None,
    config: ConfigOption = None,
    url: Annotated[
        str, Option(envvar="ROSKVA_URL", help="The node. [the one that serves the data]")
    ] = "",
    master: MasterOption = None,
    conf: ConfOption = None,
    dry_run: Annotated[bool, "Show what the first rows would become."] = False,
    once: Annotated[bool, "What there is now, and no more."] = False,
    json: Annotated[bool, "With --dry-run or --once: JSON."] = False,
) -> None:
    """Publish rows as they come, by the expressions in the settings.

    A row that cannot become an update is written to DATA/pipeline/ingest-NAME/dead-letters, with
    the reason, and holds up nobody. Ctrl-C stops it; the next run goes on where it was.
    """
    settings = _settings(data, config, master)
    if name not in settings.ingest:
        known = ", ".join(settings.ingest) or "none"
        raise BadConfig(f"there is no table [ingest.{name}] in the settings; there is: {known}")
    if url and settings.ingest[name].format == CHANGES_FORMAT:
        raise BadConfig(
            "the changes of a source go to the node that serves --data: leave --url out"
        )
    if dry_run:
        _preview(settings, name, conf, json)
    elif once:
        _once(settings, name, url, conf, json)
    else:
        _run(settings, conf, bridge=False, ingests=(name,))


def _settings(data: Path | None, config: Path | None, master: str | None) -> Config:
    log_to_stderr("text", "pipeline")
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    given = {"node.data": None if data is None else str(data), "pipeline.master": master}
    require_pipeline()
    return load(config, given)


def _run(settings: Config, conf: list[str] | None, **parts: Any) -> None:
    from roskva.pipeline.work import Work, run

    kill_at_once_on(signal.SIGTERM, signal.SIGINT)
    run(Work(config=settings, settings=spark_settings(conf), **parts))


def _preview(settings: Config, name: str, conf: list[str] | None, json: bool) -> None:
    from roskva.pipeline.ingest import Ingest
    from roskva.pipeline.work import Work, session

    # No checkpoint is touched, so it may run beside a real one.
    work = Work(config=settings, bridge=False, settings=spark_settings(conf))
    with session(work) as (spark, _):
        found = Ingest(spark, name, settings, work.directory).preview()
    if json:
        for preview in found:
            print(msgspec.json.encode(preview).decode())
    else:
        Console(highlight=False).print(_table(found))


def _table(found: "list[Preview]") -> Table:
    table = Table("row", "object", "version", "source", "payload", box=None, header_style="dim")
    for preview in found:
        row = preview.row if len(preview.row) <= _SHORT else preview.row[:_SHORT] + "…"
        update = preview.update
        if update is None:
            table.add_row(row, Text(preview.reason, style="red"))
            continue
        payload = "" if update.payload is None else repr(update.payload[:_SHORT])[1:]
        table.add_row(
            row,
            f"{update.app}/{update.name}",
            update.version or "assigned",
            update.source or "",
            payload,
        )
    return table


def _once(settings: Config, name: str, url: str, conf: list[str] | None, json: bool) -> None:
    from roskva.pipeline.ingest import Ingest
    from roskva.pipeline.publish_sink import COUNTED
    from roskva.pipeline.source_flows import publish_once
    from roskva.pipeline.work import Work, session

    work = Work(config=settings, bridge=False, ingests=(name,), settings=spark_settings(conf))
    with session(work) as (spark, checkpoints):
        checkpoint = checkpoints[f"ingest-{name}"]
        source = Ingest(spark, name, settings, checkpoint.directory, url)
        before = source.counters()
        if settings.ingest[name].format == CHANGES_FORMAT:
            publish_once(spark, settings, name, checkpoint.directory)
        else:
            source.start(checkpoint.spark, once=True).awaitTermination()
        after = source.counters()
        counted = {key: getattr(after, key) - getattr(before, key) for key in COUNTED}
        text = ", ".join(f"{value:,} {key}" for key, value in counted.items())
        print(msgspec.json.encode(counted).decode() if json else text, flush=True)
    raise typer.Exit(FAILED if counted["dead"] else 0)
