"""`roskva explain`: why a client is behind, and who has heard of an object."""

import time
from typing import Annotated
from urllib.parse import quote

import typer
from rich.console import Console
from typer import Argument

from roskva.cli.node import AdminOptions
from roskva.cli.options import command
from roskva.cli.outcome import FAILED, OK, table_of
from roskva.model import parse_key
from roskva.server.admin.sentences import list_ways
from roskva.wire.admin import ClientNow, ObjectNow, OriginNow

_SHOWN = 20

app = typer.Typer(
    help="Say why a client is behind, or who has heard of an object.", no_args_is_help=True
)


@command(
    "roskva explain client 0d5f1c9e8f2b4a6d9c3e7f1a2b4c6d8e",
    "roskva explain client phone-17 --json | jq -r .sentence",
    of=app,
)
def client(
    id: Annotated[
        str,
        Argument(
            metavar="ID",
            help="The client's own id; or the one its application gave, over MQTT the client id.",
        ),
    ],
    node: AdminOptions = AdminOptions(),
) -> None:
    """Say whether a client has been told everything, and if not, why.

    Of a client that is away the id that its application gave is looked for in the rows, for a
    second; if there are more rows, the answer says so, and the same again goes on.

    The exit code is 1 if no client has this id, or nobody who would know answers.
    """
    found = node.show(f"/v1/admin/clients/{quote(id, safe='')}", ClientNow, _show_client)
    raise typer.Exit(OK if found.presence in ("online", "offline") else FAILED)


@command("roskva explain object contacts/alice", of=app)
def object(
    object: Annotated[str, Argument(metavar="APP/NAME", help="The object.")],
    node: AdminOptions = AdminOptions(),
) -> None:
    """Say what an object stands at, and who has not heard of it yet.

    The exit code is 1 if the process that keeps the object does not answer.
    """
    wanted = parse_key(object)
    path = f"/v1/admin/objects/{wanted.app}/{quote(wanted.name)}"
    found = node.show(path, ObjectNow, _show_object)
    raise typer.Exit(OK if found.answers else FAILED)


def _origin(origin: OriginNow) -> list[str]:
    facts = [f"ordinal {origin.ordinal}, offset {origin.offset} in the changes of {origin.source}"]
    if origin.at is not None:
        committed = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(origin.at))
        facts.append(f"transaction {origin.transaction} committed at {committed}")
    return facts


def _show_client(found: ClientNow, console: Console) -> None:
    console.print(found.sentence, style="bold")
    if found.presence not in ("online", "offline"):
        return
    facts = [f"client {found.client}"]
    facts += [f"application {found.application}"] if found.application else []
    facts += [f"principal {found.principal}"] if found.principal else []
    facts += [f"{found.channel} at {found.process}"] if found.channel else []
    console.print(", ".join([*facts, f"session {found.session}"]), style="dim")
    if found.registrations:
        table = table_of("object", "state", "acked", "stands at", left=4)
        for one in found.registrations[:_SHOWN]:
            row = (one.object, one.state, one.acked or "–", one.version or "–")
            table.add_row(*row, style="" if one.state == "fresh" else "yellow")
        console.print("", table)
        more = sum(found.counts.values()) - min(_SHOWN, len(found.registrations))
        if more:
            console.print(f"and {more:,} more", style="dim")
    _show_notes(found, console)


def _show_notes(found: ClientNow, console: Console) -> None:
    if found.notes:
        table = table_of("told lately", "", "by", left=3)
        for note in found.notes[:_SHOWN]:
            at = time.strftime("%H:%M:%S", time.localtime(note.at))
            table.add_row(f"{at} {note.code}", note.object, note.process)
        console.print("", table)


def _show_object(found: ObjectNow, console: Console) -> None:
    console.print(found.sentence, style="bold")
    facts = [f"shard {found.shard} at {found.process}"]
    facts += [f"epoch {found.epoch}"] if found.epoch else []
    facts += [f"published by {found.source}"] if found.source else []
    facts += _origin(found.origin) if found.origin else []
    facts += [f"payload of {found.payload_bytes:,} bytes"] if found.payload_bytes else []
    console.print(", ".join(facts), style="dim")
    if found.answers:
        came = f"updates came to shard {found.shard}: {list_ways(found.ways)}"
        console.print(came, style="dim")
    if found.slowest:
        columns = ("client", "application", "channel", "state", "acked", "heard")
        table = table_of(*columns, left=len(columns))
        for one in found.slowest:
            heard = f"{one.silent_seconds:,.0f} s ago"
            row = (one.client, one.application, one.channel, one.state, one.acked or "–", heard)
            table.add_row(*row)
        console.print("", table)
