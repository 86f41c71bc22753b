"""The settings as text: the file that `roskva config init` writes, and docs/configuration.md.

After a change of the settings: `python -m roskva.cli.config_text > docs/configuration.md`
"""

import inspect
import textwrap
from pathlib import Path

import msgspec

from roskva.config import NAMED, SECTIONS, Setting, settings

_FILE_HEAD = """\
# Settings of a Roskva node. Each line shows a default: take off the '#' to change it.
# Check with: roskva config check FILE
# Use with:   roskva serve --config FILE
"""

_PAGE_HEAD = """\
# Configuration

A node needs no configuration: `roskva serve` starts with the defaults below. To change some of
them, write a file with every setting and what it means in it, edit it, and have it checked:

```sh
roskva config init
roskva config check
```

Both take a file name and use `roskva.toml` without one; `roskva config init --force` replaces a
file that exists. `check` loads the file exactly as a node does and prints what holds, for scripts
as JSON (`roskva config check --json`). What is wrong is named all at once, with the line and what
to do about it, and the exit code is 2:

```
roskva: roskva.toml:3: [node] has no key prot; did you mean port?
roskva: roskva.toml:9: versions must be "app" or "assigned", not "assinged"
```

The file is TOML. A setting is looked for in this order, and the last word wins:

1. the default;
2. the file that `roskva serve --config FILE` names;
3. the environment, for the section `[node]`: `ROSKVA_PORT`, `ROSKVA_DATA`, and so on;
4. the flags of the command.

Where "off" is allowed it is written in quotes. Numbers may have underscores: `64_000_000`.
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

_APPS = """\
A table for each app that differs from `[defaults]`. It has the same keys, and takes what it does
not set from there. Apps need not be named here to be used.

```toml
[apps.thermostats]
versions = "assigned"
max_payload_bytes = 4096
```
"""


def template() -> str:
    parts = [_FILE_HEAD]
    for section, struct in SECTIONS.items():
        if section in NAMED:
            parts.append(_APP_EXAMPLE if section == "apps" else _INGEST_EXAMPLE)
            continue
        parts.append(f"\n[{section}]\n{_comment(_about(struct))}")
        parts += [f"\n{_comment(s.description)}{_assignment(s)}\n" for s in settings(struct)]
    return "".join(parts)


def page() -> str:
    parts = [_PAGE_HEAD]
    for section, struct in SECTIONS.items():
        if section == "apps":
            parts.append(f"\n## `[apps.NAME]`\n\n{_APPS}")
            continue
        title = f"{section}.NAME" if section in NAMED else section
        parts.append(f"\n## `[{title}]`\n\n{_about(struct)}\n\n")
        parts.append("| key | value | default | |\n|---|---|---|---|\n")
        parts += [
            f"| `{s.key}` | {s.expected} | {_default(s)} | {s.description} |\n"
            for s in settings(struct)
        ]
    return "".join(parts)


def _about(struct: type[msgspec.Struct]) -> str:
    return inspect.getdoc(struct) or ""


def _comment(text: str) -> str:
    return "".join(f"# {line}\n" for line in textwrap.wrap(text, 90))


def _assignment(setting: Setting) -> str:
    if setting.default is None:
        return f"# {setting.key} =    # not set; {setting.expected}"
    return f"# {setting.key} = {_toml(setting.default)}"


def _default(setting: Setting) -> str:
    return "" if setting.default is None else f"`{_toml(setting.default)}`"


def _toml(value: object) -> str:
    return msgspec.json.encode(str(value) if isinstance(value, Path) else value).decode()


if __name__ == "__main__":
    print(page(), end="")
