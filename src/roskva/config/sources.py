"""Settings from files, the environment and flags, checked.

What is wrong is collected, and told all at once: each with the place it came from and what to do.
"""

import ast
import difflib
import inspect
import os
import re
import tomllib
import typing
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from roskva.config import sections
from roskva.config.access import check_access
from roskva.config.sections import NAMED, OFF, SECTIONS, Config, Conflict, NodeConfig
from roskva.errors import BadConfig, BadName
from roskva.model import PROBE_APPS, check_app


class _Given(NamedTuple):
    value: object
    origin: str
    from_text: bool = False
    """A number may be written as text, as in the environment."""


class Setting(NamedTuple):
    """One key of a section, for people."""

    section: type[msgspec.Struct]
    key: str
    default: Any
    expected: str
    may_be_off: bool

    @property
    def description(self) -> str:
        return _descriptions()[self.section.__name__, self.key]


_SECRET: Final = ("publish_keys", "key")
"""What stands there by mistake may be a secret, and is not said again."""

_Sections = dict[str, dict[str, _Given]]


class Source(msgspec.Struct, frozen=True):
    """Where the settings of a command come from, to load them again when they have changed."""

    path: Path | None
    flags: dict[str, Any] = {}

    def load(self) -> Config:
        return load(self.path, self.flags)


def load(
    path: Path | None,
    overrides: Mapping[str, object] | None = None,
    environment: Mapping[str, str] = os.environ,
) -> Config:
    """Everything in its order of precedence, or `BadConfig` with a line for each thing wrong.

    `overrides` are the flags, by setting: `{"node.port": 7601, "defaults.versions": None}`; None
    stands for a flag that was not given.
    """
    problems: list[str] = []
    given: _Sections = {} if path is None else _from_file(path, problems)
    for key, found in (*_from_environment(environment), *_from_flags(overrides or {})):
        section, _, name = key.rpartition(".")
        given.setdefault(section, {})[name] = found
    values = {
        section: _checked(SECTIONS[section.partition(".")[0]], section, keys, problems)
        for section, keys in given.items()
    }
    if problems:
        raise BadConfig("\n".join(problems))
    try:
        config = _built(values)
        check_access(config)
        return config
    except Conflict as conflict:
        raise BadConfig(f"{_origin_of(conflict, given)}: {conflict}") from None


def _origin_of(conflict: Conflict, given: _Sections) -> str:
    """One of the settings is not at its default, unless what is wrong is that none is given."""
    places = [key.rpartition(".") for key in conflict.keys]
    return next(
        (given[at][name].origin for at, _, name in places if name in given.get(at, {})),
        f"[{places[0][0]}]",
    )


def _built(values: dict[str, dict[str, Any]]) -> Config:
    plain: dict[str, Any] = {
        section: struct(**values.get(section, {}))
        for section, struct in SECTIONS.items()
        if section not in NAMED
    }
    apps = {
        name: msgspec.structs.replace(plain["defaults"], **keys)
        for name, keys in _named("apps", values)
    }
    others: dict[str, Any] = {
        kind: {name: SECTIONS[kind](**keys) for name, keys in _named(kind, values)}
        for kind in ("ingest", "source")
    }
    return Config(**plain, apps=apps, **others)


def _named(kind: str, values: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for section, keys in values.items():
        if section.startswith(f"{kind}."):
            yield section.partition(".")[2], keys


def _from_environment(environment: Mapping[str, str]) -> Iterator[tuple[str, _Given]]:
    for setting in settings(NodeConfig):
        variable = f"ROSKVA_{setting.key.upper()}"
        if value := environment.get(variable):
            yield f"node.{setting.key}", _Given(value, variable, from_text=True)


def _from_flags(overrides: Mapping[str, object]) -> Iterator[tuple[str, _Given]]:
    for key, value in overrides.items():
        if value is not None:
            flag = "--" + key.rpartition(".")[2].replace("_", "-")
            yield key, _Given(value, flag, from_text=True)


def _from_file(path: Path, problems: list[str]) -> _Sections:
    text = _read(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        what, _, place = str(error).removesuffix(")").partition(" (at ")
        line = re.match(r"line (\d+), ", place)
        origin = f"{path}:{line[1]}" if line else str(path)
        raise BadConfig(f"{origin}: this is not TOML: {what}, at {place}") from None
    lines = _line_numbers(text)
    given: _Sections = {}
    for section, table in _tables(document):
        origin = _origin(path, lines, section)
        if sentence := _wrong_section(section, table):
            problems.append(f"{origin}: {sentence}")
            continue
        given[section] = {
            key: _Given(value, _origin(path, lines, f"{section}.{key}"))
            for key, value in table.items()
        }
    return given


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise BadConfig(
            f"{path} does not exist: name another file, or write one with `roskva config init`"
        ) from None
    except UnicodeDecodeError:
        raise BadConfig(f"{path} is not UTF-8 text: is it the right file?") from None
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror}") from None


def _tables(document: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for section, table in document.items():
        if section in NAMED and isinstance(table, dict):
            for name, named in table.items():
                yield f"{section}.{name}", named
        else:
            yield section, table


def _wrong_section(section: str, table: object) -> str | None:
    first, _, app = section.partition(".")
    if first not in SECTIONS:
        homes = [name for name, struct in SECTIONS.items() if section in struct.__struct_fields__]
        if homes and not isinstance(table, dict):
            return f"{section} belongs under [{homes[0]}]"
        return f"there is no section [{section}]; {_nearest(section, SECTIONS)}"
    if not isinstance(table, dict):
        example = f"{first}.{app or 'NAME'}" if first in NAMED else section
        return f"{section} is a section: write [{example}] on a line of its own"
    if app:
        try:
            check_app(app)
        except BadName as error:
            return f"{error}: rename [{section}]"
    if first == "apps" and app in PROBE_APPS:
        return f"{app} is kept for the prober, and its settings are fixed: rename [{section}]"
    return None


def _checked(
    struct: type[msgspec.Struct], section: str, given: dict[str, _Given], problems: list[str]
) -> dict[str, Any]:
    known = {setting.key: setting for setting in settings(struct)}
    types = typing.get_type_hints(struct, include_extras=True)
    values: dict[str, Any] = {}
    for key, (value, origin, from_text) in given.items():
        setting = known.get(key)
        if setting is None:
            problems.append(f"{origin}: {_unknown(key, section, known)}")
            continue
        if setting.may_be_off and value == OFF:
            values[key] = None
            continue
        if from_text and isinstance(setting.default, tuple) and isinstance(value, str):
            value = [part.strip() for part in value.split(",")]
        try:
            values[key] = msgspec.convert(
                value, types[key], strict=not from_text, dec_hook=lambda of, text: of(text)
            )
        except (msgspec.ValidationError, TypeError):
            not_this = "" if key in _SECRET else f", not {msgspec.json.encode(value).decode()}"
            problems.append(f"{origin}: {key} must be {setting.expected}{not_this}")
    return values


def _unknown(key: str, section: str, known: Mapping[str, Setting]) -> str:
    homes = [f"[{name}]" for name, struct in SECTIONS.items() if key in struct.__struct_fields__]
    if homes:
        return f"{key} does not belong under [{section}]: move it to {' or '.join(homes)}"
    return f"[{section}] has no key {key}; {_nearest(key, known)}"


def _nearest(word: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]}?" if close else f"it may have: {', '.join(known)}"


def _line_numbers(text: str) -> dict[str, int]:
    """Where sections and keys stand, as far as it can be seen without parsing TOML again."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := re.match(r"\s*\[\s*([^\[\]]+?)\s*\]", line):
            section = re.sub(r"[\"'\s]", "", header[1])
            found.setdefault(section, number)
        elif key := re.match(r"\s*([\w.\-\"' ]+?)\s*=", line):
            name = re.sub(r"[\"'\s]", "", key[1])
            found.setdefault(f"{section}.{name}".lstrip("."), number)
    return found


def _origin(path: Path, lines: dict[str, int], key: str) -> str:
    while key:
        if key in lines:
            return f"{path}:{lines[key]}"
        key = key.rpartition(".")[0]
    return str(path)


# Sections, for people.


def settings(section: type[msgspec.Struct]) -> list[Setting]:
    info = msgspec.inspect.type_info(section)
    assert isinstance(info, msgspec.inspect.StructType)
    found = []
    for field in info.fields:
        kinds = field.type.types if isinstance(field.type, msgspec.inspect.UnionType) else ()
        optional = any(isinstance(kind, msgspec.inspect.NoneType) for kind in kinds)
        may_be_off = optional and field.default is not None
        expected = _expected(field.type) + (f' or "{OFF}"' if may_be_off else "")
        default = [] if field.default_factory is list else field.default
        found.append(Setting(section, field.name, default, expected, may_be_off))
    return found


@cache
def _descriptions() -> dict[tuple[str, str], str]:
    """What stands below each setting in the source of its section."""
    found = {}
    source = ast.parse(inspect.getsource(sections))
    for section in (node for node in source.body if isinstance(node, ast.ClassDef)):
        for pair in pairwise(section.body):
            match pair:
                case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(ast.Constant(str(text))):
                    found[section.name, key] = " ".join(text.split())
    return found


def _expected(kind: msgspec.inspect.Type) -> str:
    match kind:
        case msgspec.inspect.UnionType(types=types):
            named = [one for one in types if not isinstance(one, msgspec.inspect.NoneType)]
            return " or ".join(map(_expected, named))
        case msgspec.inspect.LiteralType(values=values):
            return " or ".join(f'"{value}"' for value in values)
        case msgspec.inspect.IntType(ge=low, le=high):
            return f"a whole number from {low:,} to {high:,}"
        case msgspec.inspect.FloatType(ge=low, le=high):
            return f"a number from {low:,} to {high:,}"
        case msgspec.inspect.BoolType():
            return "true or false"
        case msgspec.inspect.VarTupleType(item_type=msgspec.inspect.LiteralType(values=values)):
            return "a list of " + ", ".join(f'"{value}"' for value in values)
        case msgspec.inspect.VarTupleType():
            return "a list of texts in quotes"
        case msgspec.inspect.DictType():
            return "a table of its own"
        case msgspec.inspect.ListType():
            return "a list of text in quotes"
        case msgspec.inspect.DateTimeType():
            return "a date and time with its zone, as 2026-01-31T12:00:00Z"
    return "text in quotes"
