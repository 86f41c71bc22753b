"""`roskva bench`: how fast, and beside what. The benchmarks themselves come with the source."""

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from typer import Argument, Option

from roskva.cli.checkout import from_checkout
from roskva.cli.options import command
from roskva.cli.outcome import FAILED, complain
from roskva.errors import BadInput


@command()
def bench(
    names: Annotated[
        list[str] | None,
        Argument(metavar="[NAME]...", help="Which, or a family of them; without: all."),
    ] = None,
    listed: Annotated[bool, Option("--list", help="Say which there are.")] = False,
    full: Annotated[bool, "The long version."] = False,
    repetitions: Annotated[
        int | None, Option(min=1, help="Of each measurement: 3, with --full 5.")
    ] = None,
    json: Annotated[
        Path | None, Option(dir_okay=False, help="Write raw results here, after each of them.")
    ] = None,
    report: Annotated[
        Path | None,
        Option(file_okay=False, help="Write a page with tables and plots into DIRECTORY."),
    ] = None,
    results: Annotated[
        Path | None,
        Option(
            "--from", exists=True, dir_okay=False, help="Measure nothing: report these results."
        ),
    ] = None,
) -> None:
    """Measure this machine's Roskva, beside what papers report and other servers do.

    Servers are started on free ports, with data in temporary directories, and stopped again.

    Exit codes: 0 measured; 1 a benchmark broke, and the others were measured; 2 bad usage, or
    there is no source; 130 interrupted.

    Examples:

        roskva bench --list

        roskva bench serving

        roskva bench sources

        roskva bench --report docs/benchmarks

        roskva bench coldnotify thialfi --full --repetitions 7 --json results.json

        roskva bench --from results.json --report pages
    """
    benchmarks = from_checkout("benchmarks.__main__", "The benchmarks", "make bench")
    known: dict[str, str] = benchmarks.BENCHMARKS
    families = {name.partition(".")[0] for name in known}
    unknown = sorted(set(names or ()) - set(known) - families)
    if unknown:
        raise BadInput(f"No such benchmark: {', '.join(unknown)}. There are {', '.join(known)}.")
    wanted = [name for name in known if not names or {name, name.partition(".")[0]} & set(names)]
    if listed:
        for name, text in known.items():
            typer.echo(f"{name:20} {text}")
    elif results is not None:
        _report(benchmarks, results, report)
    else:
        record = benchmarks.measure(
            wanted, full=full, repetitions=repetitions, json=json, into=report
        )
        if record.failed:
            complain(f"Failed, as was shown above: {', '.join(record.failed)}.")
            raise typer.Exit(FAILED)


def _report(benchmarks: Any, results: Path, into: Path | None) -> None:
    if into is None:
        raise BadInput("--from needs --report DIRECTORY, where the page is to be written.")
    try:
        record = benchmarks.Record.load(results)
    except msgspec.MsgspecError as error:
        raise BadInput(f"{results} has no results of a benchmark: {error}") from error
    benchmarks.write_report(record, into)
