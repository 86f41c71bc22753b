"""`roskva explain`: why a client is behind, and who has heard of an object."""

import time
from typing import Annotated
from urllib.parse import quote

import msgspec
import typer
from rich.console import Console
from rich.table import Table

from roskva.cli.node import (
    DEFAULT_URL,
    AdminKeyOption,
    CaOption,
    CertKeyOption,
    CertOption,
    UrlOption,
    admin_api,
    tls_of,
)
from roskva.cli.outcome import EXIT_CODES, FAILED, OK, sentences
from roskva.model import parse_key
from roskva.wire.admin import ClientNow, ObjectNow

JsonOption = Annotated[bool, typer.Option("--json", help="As the node says it, in JSON.")]
_SHOWN = 20


def register(app: typer.Typer) -> None:
    explain = typer.Typer(
        help="Say why a client is behind, or who has heard of an object.", no_args_is_help=True
    )
    explain.command(
        epilog="Examples: roskva explain client 0d5f1c9e8f2b4a6d9c3e7f1a2b4c6d8e\n\n"
        "roskva explain client phone-17 --json | jq -r .sentence\n\n"
        f"{EXIT_CODES}"
    )(client)
    explain.command(
        epilog=f"Example: roskva explain object contacts/alice\n\n{EXIT_CODES}",
    )(object)
    app.add_typer(explain, name="explain")


def client(
    id: Annotated[
        str,
        typer.Argument(
            metavar="ID",
            help="The client's id; or its application id, while it is online; or its MQTT id.",
        ),
    ],
    url: UrlOption = DEFAULT_URL,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    key: AdminKeyOption = "",
    json: JsonOption = False,
) -> None:
    """Say whether a client has been told everything, and if not, why.

    The exit code is 1 if no client has this id, or nobody who would know answers.
    """
    with sentences(), admin_api(url, tls_of(ca, cert, cert_key), key) as node:
        answer = node.get(f"/v1/admin/clients/{quote(id, safe='')}", msgspec.Raw)
        found = node.decoded(answer, ClientNow)
    if json:
        print(bytes(answer).decode())
    else:
        _show_client(found, Console(markup=False, highlight=False))
    raise typer.Exit(OK if found.presence in ("online", "offline") else FAILED)


def object(
    object: Annotated[str, typer.Argument(metavar="APP/NAME", help="The object.")],
    url: UrlOption = DEFAULT_URL,
    ca: CaOption = None,
    cert: CertOption = None,
    cert_key: CertKeyOption = None,
    key: AdminKeyOption = "",
    json: JsonOption = False,
) -> None:
    """Say what an object stands at, and who has not heard of it yet.

    The exit code is 1 if the process that keeps the object does not answer.
    """
    with sentences():
        wanted = parse_key(object)
        with admin_api(url, tls_of(ca, cert, cert_key), key) as node:
            path = f"/v1/admin/objects/{wanted.app}/{quote(wanted.name)}"
            answer = node.get(path, msgspec.Raw)
            found = node.decoded(answer, ObjectNow)
    if json:
        print(bytes(answer).decode())
    else:
        _show_object(found, Console(markup=False, highlight=False))
    raise typer.Exit(OK if found.answers else FAILED)


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
        table = _table("object", "state", "acked", "stands at")
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
        table = _table("told lately", "", "by")
        for note in found.notes[:_SHOWN]:
            at = time.strftime("%H:%M:%S", time.localtime(note.at))
            table.add_row(f"{at} {note.code}", note.object, note.process)
        console.print("", table)


def _show_object(found: ObjectNow, console: Console) -> None:
    console.print(found.sentence, style="bold")
    facts = [f"shard {found.shard} at {found.process}"]
    facts += [f"epoch {found.epoch}"] if found.epoch else []
    facts += [f"published by {found.source}"] if found.source else []
    facts += [f"payload of {found.payload_bytes:,} bytes"] if found.payload_bytes else []
    console.print(", ".join(facts), style="dim")
    if found.slowest:
        table = _table("client", "application", "channel", "state", "acked", "heard")
        for one in found.slowest:
            heard = f"{one.silent_seconds:,.0f} s ago"
            row = (one.client, one.application, one.channel, one.state, one.acked or "–", heard)
            table.add_row(*row)
        console.print("", table)


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in columns:
        table.add_column(column)
    return table
