"""`roskva publish` and `roskva reset`."""

import os
import stat
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO, Final

import msgspec
import typer
from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
from typer import Argument, Option

from roskva.cli.node import NodeApi, NodeOptions, error_of, key_option, secret_of
from roskva.cli.options import command
from roskva.cli.outcome import FAILED, complain, progress
from roskva.errors import BadInput, Unavailable
from roskva.model import MAX_VERSION, check_app, is_version, parse_key
from roskva.publisher.requests import PublishFailure, PublishOutcome

STDIN: Final = "-"
_BATCH_UPDATES: Final = 1000
_READ_BYTES: Final = 1 << 16
_MAX_LINE_BYTES: Final = 1 << 16
_ASK_AGAIN_S: Final = 1.0

JsonOption = Annotated[bool, "One JSON object per update."]


class UpdateLine(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """As the node takes it, and as a line of JSON on stdin.

    All is checked here that a node would not even read: it would refuse the other lines with it.
    """

    app: str
    name: str
    version: Annotated[int, msgspec.Meta(ge=0, le=MAX_VERSION)] | None = None
    source: str | None = None
    payload: bytes | None = None
    """In base64; `text` is for payloads that are text."""
    text: str | None = None

    @property
    def key(self) -> str:
        return f"{self.app}/{self.name}"


@command(
    "roskva publish contacts/alice 42",
    "roskva publish home/temp --payload 21.5",
    'psql -Atc "select \'contacts/\' || id, version from people" -F " " | roskva publish -',
)
def publish(
    target: Annotated[
        str,
        Argument(
            metavar="APP/NAME",
            help="What has changed. With - updates are read from stdin: 'app/name version' or a "
            "JSON object per line.",
        ),
    ],
    version: Annotated[
        int | None,
        Argument(
            min=0,
            max=MAX_VERSION,
            metavar="VERSION",
            help="Its version now. Without one, it is assigned if the app is set to that.",
        ),
    ] = None,
    payload: Annotated[str | None, "The new value, as text."] = None,
    payload_file: Annotated[
        Path | None, Option(exists=True, dir_okay=False, help="The new value, from a file.")
    ] = None,
    source: Annotated[
        str | None, "The application id of the client that made the change; it is not told."
    ] = None,
    node: NodeOptions = NodeOptions(),
    json: JsonOption = False,
) -> None:
    """Say that an object has a new version; done when the node has it safely on its disk."""
    with node.api() as api:
        if payload is not None and payload_file is not None:
            raise BadInput("--payload and --payload-file are two ways to say one thing: choose one")
        if target == STDIN:
            if any(given is not None for given in (version, payload, payload_file, source)):
                raise BadInput("with - every line says its own version, payload and source")
            if publish_lines(api, sys.stdin.buffer, json):
                raise typer.Exit(FAILED)
        else:
            found = parse_key(target)
            data = payload_file.read_bytes() if payload_file else None
            update = UpdateLine(found.app, found.name, version, source, data, payload)
            publish_one(api, update, json)


@command("roskva reset contacts/alice", "roskva reset --app contacts")
def reset(
    target: Annotated[str | None, Argument(metavar="[APP/NAME]")] = None,
    app: Annotated[str | None, "All objects of this app instead."] = None,
    yes: Annotated[bool, "With --app: do not ask."] = False,
    admin_key: Annotated[
        str, key_option("ROSKVA_ADMIN_KEY", "With --app: the node's admin key", "--admin-key")
    ] = "",
    node: NodeOptions = NodeOptions(),
    json: JsonOption = False,
) -> None:
    """Forget the version of an object: its clients are told to look again.

    The way out after a version was published that is too high, or after your backend went back to
    an older state: from then on lower versions count again.

    With --app everything that was published of the app is forgotten, whatever it was. Stop its
    publishers before: what they publish afterwards is news, however old it is.
    """
    if (target is None) == (app is None):
        raise BadInput("name an object, APP/NAME, or a whole app with --app: one of the two")
    if app is not None:
        check_app(app)
        with NodeApi(node.urls, node.tls, key=secret_of(admin_key)) as api:
            reset_app(api, app, yes, json)
        return
    found = parse_key(target or "")
    with node.api() as api:
        api.reset(found)
    print(msgspec.json.encode({"object": found.key}).decode() if json else f"{found} is reset")


def reset_app(node: NodeApi, app: str, yes: bool, json: bool) -> None:
    """The generation is settled before: whatever comes between, asking for it again begins it only
    once."""
    at = node.app(app)
    if at.silent:
        raise Unavailable(at.sentence)
    if not yes:
        question = (
            f"Every object of {app} becomes unknown: all who are registered are told, once, to "
            "look for themselves. Go on?"
        )
        typer.confirm(question, abort=True, err=True)
    generation = at.following
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()
    with progress(*columns) as bar:
        task = bar.add_task(f"resetting {app}", total=at.shards)
        while True:
            try:
                at = node.reset_app(app, generation)
            except Unavailable as error:
                complain(f"{error}; asking again")
            else:
                bar.update(task, completed=at.have)
                if at.have == at.shards:
                    break
                complain(at.sentence)
            time.sleep(_ASK_AGAIN_S)
    if json:
        print(msgspec.json.encode(at).decode())
    else:
        print(f"{app} is reset: {at.sentence[:1].lower()}{at.sentence[1:]}")


def publish_one(node: NodeApi, update: UpdateLine, json: bool) -> None:
    [outcome] = node.publish([update])
    if json:
        print_outcome(outcome, object=update.key)
    if isinstance(outcome, PublishFailure):
        raise error_of(outcome)
    if not json:
        print(f"{update.key} is at version {outcome}")


def publish_lines(node: NodeApi, stdin: BinaryIO, json: bool) -> bool:
    """Whether some were refused. Lines are sent as they come, in batches of what has come."""
    tally = Tally(json)
    accepted = TextColumn("{task.fields[accepted]} accepted")
    columns = (TextColumn("publishing"), BarColumn(), TaskProgressColumn(), accepted)
    with progress(*columns, TimeElapsedColumn()) as bar:
        task = bar.add_task("publishing", total=size_of(stdin), accepted=0)
        for lines in numbered_lines(stdin):
            batch = tally.parsed(lines)
            try:
                if batch:
                    tally.take(batch, node.publish([update for _, update in batch]))
            except Unavailable:
                complain(f"{tally.accepted:,} accepted; go on with line {tally.next_line}")
                raise
            sent = sum(len(line) + 1 for _, line in lines)
            bar.update(task, advance=sent, accepted=f"{tally.accepted:,}")
    if not json:
        print(f"{tally.accepted:,} accepted, {tally.refused:,} refused")
    return tally.refused > 0


@dataclass
class Tally:
    """What became of the lines so far. A line that is refused does not hold up the others."""

    json: bool
    accepted: int = 0
    refused: int = 0
    next_line: int = 1
    """The first that is neither accepted nor refused."""

    def parsed(self, lines: Iterable[tuple[int, bytes]]) -> list[tuple[int, UpdateLine]]:
        batch = []
        for number, line in lines:
            try:
                if (update := parse_line(line)) is not None:
                    batch.append((number, update))
            except BadInput as error:
                self._refuse(number, PublishFailure(error.code, str(error)))
        return batch

    def take(self, batch: list[tuple[int, UpdateLine]], outcomes: list[PublishOutcome]) -> None:
        """Stops where the node asks to try again: the lines of an object must keep their order."""
        for (number, update), outcome in zip(batch, outcomes, strict=True):
            self.next_line = number
            if not isinstance(outcome, PublishFailure):
                self.accepted += 1
                if self.json:
                    print_outcome(outcome, line=number, object=update.key)
            elif outcome.retriable:
                raise error_of(outcome)
            else:
                self._refuse(number, outcome, object=update.key)
            self.next_line = number + 1

    def _refuse(self, number: int, failure: PublishFailure, **about: str) -> None:
        self.refused += 1
        if self.json:
            print_outcome(failure, line=number, **about)
        else:
            complain(f"line {number}: {error_of(failure)}")


def numbered_lines(stdin: BinaryIO) -> Iterator[list[tuple[int, bytes]]]:
    """What has come, in whole lines, as many as a node takes at once."""
    rest = b""
    number = 1
    while True:
        arrived = stdin.read1(_READ_BYTES)  # type: ignore[attr-defined]  # stdin is buffered
        *whole, rest = (rest + arrived).split(b"\n") if arrived else (rest, b"")
        for first in range(0, len(whole), _BATCH_UPDATES):
            yield list(enumerate(whole[first : first + _BATCH_UPDATES], number + first))
        number += len(whole)
        if len(rest) > _MAX_LINE_BYTES:
            raise BadInput(f"line {number} is longer than {_MAX_LINE_BYTES:,} bytes")
        if not arrived:
            return


def parse_line(line: bytes) -> UpdateLine | None:
    """`app/name version`, `app/name`, or JSON; None for an empty line."""
    try:
        text = line.decode().strip()
    except UnicodeDecodeError:
        raise BadInput("this is not UTF-8") from None
    if not text:
        return None
    if text.startswith("{"):
        try:
            update = msgspec.json.decode(text, type=UpdateLine, strict=False)
        except msgspec.DecodeError as error:
            raise BadInput(f"this is not JSON of an update: {error}") from None
        parse_key(update.key)
        return update
    before, _, last = text.rpartition(" ")
    numbered = bool(before) and last.isdecimal() and last.isascii()
    target = parse_key(before.rstrip() if numbered else text)
    if numbered and not is_version(last):
        raise BadInput(f"a version is 0 to 2^63-1; got {last[:40]}")
    return UpdateLine(target.app, target.name, int(last) if numbered else None)


def print_outcome(outcome: PublishOutcome, **about: object) -> None:
    """Versions as text, as everywhere in JSON."""
    found = {"error": outcome} if isinstance(outcome, PublishFailure) else {"version": str(outcome)}
    print(msgspec.json.encode({**about, **found}).decode(), flush=True)


def size_of(stdin: BinaryIO) -> int | None:
    try:
        about = os.fstat(stdin.fileno())
    except (OSError, ValueError):
        return None
    return about.st_size if stat.S_ISREG(about.st_mode) else None
