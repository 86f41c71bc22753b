"""`roskva config`: write a file of settings, and check one."""

import inspect
import textwrap
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from typer import Argument

from roskva.cli.options import command
from roskva.config import (
    NAMED,
    OFF,
    SECTIONS,
    Config,
    Setting,
    exposed,
    load,
    read_secret,
    settings,
)
from roskva.errors import BadConfig
from roskva.server.tls import server_context

FILE = "roskva.toml"

app = typer.Typer(
    help="Write a file of settings, and check one.",
    epilog="Exit codes: 0 done, 2 bad usage or configuration.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

FileArgument = Annotated[Path, Argument(metavar="FILE", help="The file of settings.")]

_HEAD = """\
# Settings of a Roskva node. Each line shows a default: take off the '#' to change it.
# Check with: roskva config check FILE
# Use with:   roskva serve --config FILE
"""

_APP_EXAMPLE = """
# [apps.thermostats]
# One app that differs from [defaults], as an example. It has the same keys.
# versions = "assigned"
"""

_INGEST_EXAMPLE = """
# [ingest.products]
# A source of rows that become updates, as an example; see docs/pipeline.md. It reads, as they come,
# the files of a directory, and publishes catalog/product/ID with the version in `revision`.
# format = "json"
# path = "/var/spool/products"
# columns = "id BIGINT, revision BIGINT, deleted BOOLEAN"
# app = "'catalog'"
# name = "concat('product/', id)"
# version = "revision"
# filter = "not deleted"
"""

_SOURCE_EXAMPLE = """
# [source.shop]
# A database that publishes by itself, as an example; see docs/sources.md.
# url = "postgresql://roskva@127.0.0.1:5432/shop"
# password = "file:/etc/roskva/shop.password"
# tables = ["products"]
"""

_EXAMPLES: Final = {
    "apps": _APP_EXAMPLE,
    "ingest": _INGEST_EXAMPLE,
    "source": _SOURCE_EXAMPLE,
}

INSECURE: Final = "or say --insecure, if everybody who can reach it may do everything"


@command("roskva config init && roskva config check", of=app, codes="")
def init(
    file: FileArgument = Path(FILE),
    force: Annotated[bool, "Replace a file that exists."] = False,
) -> None:
    """Write every setting with its default and what it means, as comments."""
    try:
        with file.open("w" if force else "x", encoding="utf-8") as new:
            new.write(template())
    except FileExistsError:
        raise BadConfig(f"{file} exists: name another file, or say --force") from None
    except OSError as error:
        raise BadConfig(f"{file} cannot be written: {error.strerror}") from None
    print(f"{file} is written. Use it with: roskva serve --config {file}")


@command("roskva config check", "roskva config check site.toml --json", of=app, codes="")
def check(
    file: FileArgument = Path(FILE),
    json: Annotated[bool, "Print the settings as JSON."] = False,
    insecure: Annotated[bool, "Accept what `roskva serve --insecure` would."] = False,
) -> None:
    """Load a file as the node would, and say what holds, or everything that is wrong with it."""
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


# The file that `init` writes.


def template() -> str:
    """Every default, and what it means."""
    parts = [_HEAD]
    for section, struct in SECTIONS.items():
        if section in NAMED:
            parts.append(_EXAMPLES[section])
            continue
        parts.append(f"\n[{section}]\n{_comment(inspect.getdoc(struct) or '')}")
        parts += [f"\n{_comment(s.description)}{_assignment(s)}\n" for s in settings(struct)]
    return "".join(parts)


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, 90))


def _assignment(setting: Setting) -> str:
    if setting.default is None:
        return f"# {setting.key} =    # not set; {setting.expected}"
    return f"# {setting.key} = {in_toml(setting.default)}"


def in_toml(value: object) -> str:
    return msgspec.json.encode(str(value) if isinstance(value, Path) else value).decode()
