"""`roskva token`: keys that JWTs are signed with, JWTs to try with, and what is wrong with one.

Nodes read sets of public keys (JWKS).
"""

import asyncio
import hashlib
import os
import re
import signal
import time
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Final

import jwt
import msgspec
import typer
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import get_default_algorithms
from typer import Argument, Option

from roskva.cli.certs import key_pem, write_new
from roskva.cli.node import secret_of
from roskva.cli.options import command
from roskva.cli.outcome import FAILED
from roskva.config import Config, has_keys, load
from roskva.config.access import KeySet
from roskva.errors import BadConfig, BadInput, RoskvaError
from roskva.links.processes import replace_file, running
from roskva.model import Principal, check_app
from roskva.server.access.jwt import BadJwt, looks_like_jwt
from roskva.server.access.keyed import KeyedAuthority
from roskva.server.access.keys import rotate as rotate_keys

PrivateKey = ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
_RSA_BITS: Final = 3072

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
    Path, Option("--private-key", metavar="FILE", help="The private key, as PEM.")
]


# Keys.


class Algorithm(Enum):
    EDDSA = "EdDSA"
    ES256 = "ES256"
    RS256 = "RS256"


def generate(algorithm: Algorithm) -> PrivateKey:
    match algorithm:
        case Algorithm.EDDSA:
            return ed25519.Ed25519PrivateKey.generate()
        case Algorithm.ES256:
            return ec.generate_private_key(ec.SECP256R1())
        case Algorithm.RS256:
            return rsa.generate_private_key(65537, _RSA_BITS)


def new_private_key(path: Path, algorithm: Algorithm) -> PrivateKey:
    key = generate(algorithm)
    try:
        write_new(path, key_pem(key), 0o600)
    except FileExistsError:
        raise BadInput(f"{path} exists, and is not replaced: name another --private-key") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None
    return key


def read_private_key(path: Path) -> PrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise BadInput(f"{path} is no private key in PEM without a password") from None
    if not isinstance(key, PrivateKey):
        raise BadInput(f"{path} is no key for {', '.join(a.value for a in Algorithm)}")
    return key


def algorithm_of(key: PrivateKey) -> Algorithm:
    if isinstance(key, ed25519.Ed25519PrivateKey):
        return Algorithm.EDDSA
    return Algorithm.RS256 if isinstance(key, rsa.RSAPrivateKey) else Algorithm.ES256


def public_jwk(key: PrivateKey) -> dict[str, Any]:
    algorithm = algorithm_of(key).value
    jwk = get_default_algorithms()[algorithm].to_jwk(key.public_key(), as_dict=True)
    jwk.pop("key_ops", None)
    return {**jwk, "kid": key_id(key), "alg": algorithm, "use": "sig"}


def key_id(key: PrivateKey) -> str:
    """Of the public key, so that it need not be kept anywhere."""
    public = key.public_key().public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return hashlib.sha256(public).hexdigest()[:16]


def add_to_jwks(path: Path, key: PrivateKey) -> str:
    """To those in the file, if there are any; returns the key's id."""
    try:
        known = msgspec.json.decode(path.read_bytes(), type=KeySet).keys
    except FileNotFoundError:
        known = []
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        raise BadConfig(f"{path} is there and is no set of keys (JWKS): name another") from None
    text = msgspec.json.format(msgspec.json.encode(KeySet([*known, public_jwk(key)])))
    try:
        replace_file(path, text + b"\n")
    except OSError as error:
        raise BadInput(f"{path} cannot be written: {error.strerror}") from None
    return key_id(key)


def mint_jwt(key: PrivateKey, claims: dict[str, Any]) -> str:
    return jwt.encode(claims, key, algorithm_of(key).value, headers={"kid": key_id(key)})


# What a credential says, and whether a node with some settings would accept it.


def explain_token(given: str, config: Config | None) -> tuple[list[str], bool]:
    """Lines for people, and whether nothing is wrong with it."""
    token = secret_of(given)
    lines = (
        _claims_of(token) if looks_like_jwt(token) else ["It is no JWT; it may be a publish key."]
    )
    if config is None:
        lines.append("Whether it is accepted depends on the node: name its settings with --config.")
        return lines, True
    if not has_keys(config):
        return [*lines, "A node with these settings has no keys, and asks nobody."], True
    verdict, good = asyncio.run(_verdict(token, config))
    return [*lines, verdict], good


def _claims_of(token: str) -> list[str]:
    try:
        header = jwt.get_unverified_header(token)
        claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    except (jwt.PyJWTError, ValueError, RecursionError) as error:
        raise BadInput(f"this is no JWT: {error}") from None
    lines = [f"It is signed with {header.get('alg')}, by the key {header.get('kid')}."]
    for name, value in claims.items():
        shown = msgspec.json.encode(value).decode()
        when = f" ({_moment(value)})" if name in ("exp", "nbf", "iat") else ""
        lines.append(f"  {name}: {shown}{when}")
    return lines


def _moment(value: Any) -> str:
    try:
        return f"{datetime.fromtimestamp(value, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (TypeError, ValueError, OverflowError, OSError):
        return "no moment"


async def _verdict(token: str, config: Config) -> tuple[str, bool]:
    authority = KeyedAuthority(config)
    try:
        who = await authority.explained(token)
    except (BadJwt, RoskvaError) as error:
        return f"It is not accepted: {error}.", False
    finally:
        await authority.close()
    return _rights(who, config), True


def _rights(who: Principal, config: Config) -> str:
    if who.key:
        return f"It is a publish key of {who.app}: it may publish any object of it."
    rules = config.app(who.app or "")
    register = ", ".join(rules.register) or "nothing"
    publish = ", ".join(rules.publish) or "nothing"
    asked = ", if its hook agrees" if rules.hook else ""
    return (
        f"It is accepted as {who.name} of {who.app}: may register for {register}{asked}, and "
        f"publish {publish}."
    )


# The commands.


@command(
    "roskva token keys",
    "roskva token keys --private-key 2027.pem --jwks jwks.json --algorithm ES256",
    of=app,
    codes=_CODES,
)
def keys(
    private_key: PrivateKeyOption = Path("jwt.pem"),
    jwks: Annotated[
        Path, Option(metavar="FILE", help="The public keys; it is added to those there.")
    ] = Path("jwks.json"),
    algorithm: Annotated[Algorithm, "What it is for."] = Algorithm.EDDSA,
) -> None:
    """Make a key that JWTs are signed with, and add its public half to a set of keys (JWKS).

    Your login signs with the private key and keeps it to itself; the node reads the set.
    """
    key = new_private_key(private_key, algorithm)
    kid = add_to_jwks(jwks, key)
    print(f"{private_key} holds the private key {kid}: keep it where JWTs are issued.")
    print(f'{jwks} holds the public ones: set jwks = "{jwks}" under [apps.NAME].')


@command(
    "roskva token mint --app contacts --principal alice",
    "roskva token mint --app contacts --principal alice --ttl 5m --private-key 2027.pem",
    of=app,
    codes=_CODES,
)
def mint(
    app: Annotated[str, Option(metavar="APP", help="Whose client it is for.")],
    principal: Annotated[str, Option(metavar="NAME", help="Who is to have it: its sub.")],
    ttl: Annotated[str, "How long it is good for: 30s, 5m, 1h, 7d."] = "1h",
    private_key: PrivateKeyOption = Path("jwt.pem"),
    audience: Annotated[str | None, "Its aud, if that is not the app's name."] = None,
    issuer: Annotated[str | None, "Its iss, if the app wants one."] = None,
) -> None:
    """Print a JWT, to try with or for a device that has no login. It is a secret."""
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


@command(
    "roskva token explain eyJhbGciOi... --config roskva.toml",
    "roskva token explain env:TOKEN",
    of=app,
    codes=_CODES,
)
def explain(
    token: Annotated[str, Argument(help="A JWT or a publish key: itself, env:NAME or file:PATH.")],
    config: Annotated[
        Path | None, Option(metavar="FILE", help="Would a node with these settings accept it?")
    ] = None,
) -> None:
    """Say what a JWT says and, with the node's settings, whether it is good and why not.

    A node itself never tells that to whoever shows a token.
    """
    settings = None if config is None else load(config)
    lines, good = explain_token(token, settings)
    for line in lines:
        print(line)
    if not good:
        raise typer.Exit(FAILED)


@command("roskva token rotate --data /var/lib/roskva", of=app, codes=_CODES)
def rotate(
    data: Annotated[Path, Option(metavar="DIR", help="The data directory.")] = Path("roskva-data"),
) -> None:
    """Change the key of the tokens that the node itself grants to clients.

    Tokens of the last key stay good until the next rotation, so leave a month between two. A node
    that runs is told to read the keys again.
    """
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
