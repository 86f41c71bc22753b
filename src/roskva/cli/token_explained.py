"""What a credential says, and whether a node with some settings would accept it: for operators."""

import asyncio
from datetime import UTC, datetime
from typing import Any

import jwt
import msgspec

from roskva.cli.node import secret_of
from roskva.config import Config, has_keys
from roskva.errors import BadInput, RoskvaError
from roskva.model import Principal
from roskva.server.access.access import Access
from roskva.server.access.authority import KeyedAuthority
from roskva.server.access.jwt import BadJwt, looks_like_jwt


def explain_token(given: str, config: Config | None) -> tuple[list[str], bool]:
    """Lines for people, and whether nothing is wrong with it."""
    token = secret_of(given)
    lines = _said_by(token) if looks_like_jwt(token) else ["It is no JWT; it may be a publish key."]
    if config is None:
        lines.append("Whether it is accepted depends on the node: name its settings with --config.")
        return lines, True
    if not has_keys(config):
        return [*lines, "A node with these settings has no keys, and asks nobody."], True
    verdict, good = asyncio.run(_verdict(token, config))
    return [*lines, verdict], good


def _said_by(token: str) -> list[str]:
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
    access = Access(config)
    try:
        assert isinstance(access.authority, KeyedAuthority)
        who = await access.authority.explained(token)
    except (BadJwt, RoskvaError) as error:
        return f"It is not accepted: {error}.", False
    finally:
        await access.close()
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
