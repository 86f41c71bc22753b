"""The file of settings that `roskva config init` writes: every default, and what it means."""

import inspect
import textwrap
from pathlib import Path

import msgspec

from roskva.config import NAMED, SECTIONS, Setting, settings

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


def template() -> str:
    parts = [_HEAD]
    for section, struct in SECTIONS.items():
        if section in NAMED:
            parts.append(_APP_EXAMPLE if section == "apps" else _INGEST_EXAMPLE)
            continue
        parts.append(f"\n[{section}]\n{_comment(description_of(struct))}")
        parts += [f"\n{_comment(s.description)}{_assignment(s)}\n" for s in settings(struct)]
    return "".join(parts)


def description_of(struct: type[msgspec.Struct]) -> str:
    return inspect.getdoc(struct) or ""


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, 90))


def _assignment(setting: Setting) -> str:
    if setting.default is None:
        return f"# {setting.key} =    # not set; {setting.expected}"
    return f"# {setting.key} = {in_toml(setting.default)}"


def in_toml(value: object) -> str:
    return msgspec.json.encode(str(value) if isinstance(value, Path) else value).decode()
