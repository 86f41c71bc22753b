"""`roskva token`: keys that JWTs are signed with, JWTs to try with, and what is wrong with one."""

import os
import re
import signal
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final

import typer

from roskva.cli.jwt_keys import Algorithm, add_to_jwks, mint_jwt, new_private_key, read_private_key
from roskva.cli.outcome import FAILED, sentences
from roskva.cli.token_explained import explain_token
from roskva.config import load
from roskva.errors import BadConfig, BadInput
from roskva.links.processes import running
from roskva.model import check_app
from roskva.server.keys import rotate as rotate_keys

_TTL: Final = re.compile(r"([1-9][0-9]*)([smhd])\Z")
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_CODES: Final = "Exit codes: 0 done, 1 the token is not good, 2 bad usage or configuration."

app = typer.Typer(
    help="Make keys and JWTs, and see what is wrong with one.",
    epilog=_CODES,
    no_args_is_help=True,
    rich_markup_mode=None,
)

PrivateKeyOption = Annotated[
    Path, typer.Option("--private-key", metavar="FILE", help="The private key, as PEM.")
]


def register(main: typer.Typer) -> None:
    main.add_typer(app, name="token")


@app.command(
    epilog="Examples: roskva token keys\n\n"
    f"roskva token keys --private-key 2027.pem --jwks jwks.json --algorithm ES256\n\n{_CODES}"
)
def keys(
    private_key: PrivateKeyOption = Path("jwt.pem"),
    jwks: Annotated[
        Path, typer.Option(metavar="FILE", help="The public keys; it is added to those there.")
    ] = Path("jwks.json"),
    algorithm: Annotated[Algorithm, typer.Option(help="What it is for.")] = Algorithm.EDDSA,
) -> None:
    """Make a key that JWTs are signed with, and add its public half to a set of keys (JWKS).

    Your login signs with the private key and keeps it to itself; the node reads the set.
    """
    with sentences():
        key = new_private_key(private_key, algorithm)
        kid = add_to_jwks(jwks, key)
    print(f"{private_key} holds the private key {kid}: keep it where JWTs are issued.")
    print(f'{jwks} holds the public ones: set jwks = "{jwks}" under [apps.NAME].')


@app.command(
    epilog="Examples: roskva token mint --app contacts --principal alice\n\n"
    "roskva token mint --app contacts --principal alice --ttl 5m --private-key 2027.pem\n\n"
    f"{_CODES}"
)
def mint(
    app: Annotated[str, typer.Option(metavar="APP", help="Whose client it is for.")],
    principal: Annotated[str, typer.Option(metavar="NAME", help="Who is to have it: its sub.")],
    ttl: Annotated[str, typer.Option(help="How long it is good for: 30s, 5m, 1h, 7d.")] = "1h",
    private_key: PrivateKeyOption = Path("jwt.pem"),
    audience: Annotated[
        str | None,
        typer.Option(help="Its aud, if that is not the app's name.", show_default=False),
    ] = None,
    issuer: Annotated[
        str | None, typer.Option(help="Its iss, if the app wants one.", show_default=False)
    ] = None,
) -> None:
    """Print a JWT, to try with or for a device that has no login. It is a secret."""
    with sentences():
        check_app(app)
        found = _TTL.match(ttl)
        if found is None:
            raise BadInput(f"--ttl is a number with s, m, h or d behind it; got {ttl[:20]!r}")
        now = int(time.time())
        claims: dict[str, object] = {"sub": principal, "aud": audience or app, "iat": now}
        claims["exp"] = now + int(found[1]) * _UNITS[found[2]]
        if issuer is not None:
            claims["iss"] = issuer
        token = mint_jwt(read_private_key(private_key), claims)
    print(token)


@app.command(
    epilog="Examples: roskva token explain eyJhbGciOi... --config roskva.toml\n\n"
    f"roskva token explain env:TOKEN\n\n{_CODES}"
)
def explain(
    token: Annotated[
        str, typer.Argument(help="A JWT or a publish key: itself, env:NAME or file:PATH.")
    ],
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Would a node with these settings accept it?"),
    ] = None,
) -> None:
    """Say what a JWT says and, with the node's settings, whether it is good and why not.

    A node itself never tells that to whoever shows a token.
    """
    with sentences():
        settings = None if config is None else load(config)
        lines, good = explain_token(token, settings)
    for line in lines:
        print(line)
    if not good:
        raise typer.Exit(FAILED)


@app.command(epilog=f"Example: roskva token rotate --data /var/lib/roskva\n\n{_CODES}")
def rotate(
    data: Annotated[Path, typer.Option(metavar="DIR", help="The data directory.")] = Path(
        "roskva-data"
    ),
) -> None:
    """Change the key of the tokens that the node itself grants to clients.

    Tokens of the last key stay good until the next rotation, so leave a month between two. A node
    that runs is told to read the keys again.
    """
    with sentences():
        if not data.is_dir():
            raise BadConfig(f"{data} is no data directory: name it with --data")
        rotate_keys(data)
        node = running(data)
        if node is not None:
            try:
                os.kill(node.pid, signal.SIGHUP)
            except (ProcessLookupError, PermissionError):
                node = None
    told = "the node was told" if node is not None else "send SIGHUP to the node if it runs"
    print(f"{datetime.now(UTC):%Y-%m-%d}: tokens are sealed with a new key; {told}.")
