"""`roskva config`: write a file of settings, and check one."""

from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from roskva.cli.outcome import sentences
from roskva.cli.settings_file import template
from roskva.config import NAMED, OFF, SECTIONS, Config, exposed, load, read_secret, settings
from roskva.errors import BadConfig
from roskva.server.tls import server_context

FILE = "roskva.toml"

app = typer.Typer(
    help="Write a file of settings, and check one.",
    epilog="Exit codes: 0 done, 2 bad usage or configuration.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The file of settings.")]

INSECURE: Final = "or say --insecure, if everybody who can reach it may do everything"


def register(main: typer.Typer) -> None:
    main.add_typer(app, name="config")


@app.command(epilog="Example: roskva config init && roskva config check")
def init(
    file: FileArgument = Path(FILE),
    force: Annotated[bool, typer.Option("--force", help="Replace a file that exists.")] = False,
) -> None:
    """Write every setting with its default and what it means, as comments."""
    with sentences():
        try:
            with file.open("w" if force else "x", encoding="utf-8") as new:
                new.write(template())
        except FileExistsError:
            raise BadConfig(f"{file} exists: name another file, or say --force") from None
        except OSError as error:
            raise BadConfig(f"{file} cannot be written: {error.strerror}") from None
    print(f"{file} is written. Use it with: roskva serve --config {file}")


@app.command(epilog="Examples: roskva config check\n\nroskva config check site.toml --json")
def check(
    file: FileArgument = Path(FILE),
    json: Annotated[bool, typer.Option("--json", help="Print the settings as JSON.")] = False,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Accept what `roskva serve --insecure` would.")
    ] = False,
) -> None:
    """Load a file as the node would, and say what holds, or everything that is wrong with it."""
    with sentences():
        config = load(file)
        check_start(config, insecure)
    if json:
        print(msgspec.json.encode(config, enc_hook=str).decode())
    else:
        show(config)
        print(f"{file} is fine.")


def show(config: Config) -> None:
    table = Table("setting", "value", "", box=None, header_style="dim")
    for section, struct in sections_of(config):
        for setting in settings(type(struct)):
            value = getattr(struct, setting.key)
            changed = "" if value == setting.default else "set"
            table.add_row(f"{section}.{setting.key}", shown(value, setting.may_be_off), changed)
    Console().print(table)


def sections_of(config: Config) -> list[tuple[str, msgspec.Struct]]:
    plain = [(name, getattr(config, name)) for name in SECTIONS if name not in NAMED]
    named = [(f"{kind}.{name}", s) for kind in NAMED for name, s in getattr(config, kind).items()]
    return plain + named


def shown(value: object, may_be_off: bool) -> str:
    if value is None:
        return OFF if may_be_off else "not set"
    if type(value) is bool:
        return str(value).lower()
    return f"{value:,}" if type(value) is int and value > 65535 else str(value)


def check_start(config: Config, insecure: bool) -> None:
    """All that can be wrong with settings that are well-formed, or `BadConfig`."""
    if config.tls.enabled:
        server_context(config.tls)
    if config.admin.key is not None:
        read_secret("key under [admin]", config.admin.key)
    if config.probe.key is not None:
        read_secret("key under [probe]", config.probe.key)
    problems = exposed(config)
    if problems and not insecure:
        raise BadConfig("\n".join([*problems, INSECURE]))
