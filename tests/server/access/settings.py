"""Settings of apps, for tests of who may do what."""

from pathlib import Path
from typing import Any

from tests.serving.keyed import Issuer

from roskva.config import AppConfig, Config
from roskva.model import Principal
from roskva.server.access.authority import Later, Verdict
from roskva.server.access.keyed import KeyedAuthority


def app(login: Issuer | None = None, /, **settings: Any) -> AppConfig:
    jwks = None if login is None else str(login.jwks)
    return AppConfig(**{"jwks": jwks, "register": ["**"], **settings})


def access(**apps: AppConfig) -> KeyedAuthority:
    return KeyedAuthority(Config(apps=apps))


async def identified(asked: Principal | Later[Principal]) -> Principal:
    return asked if isinstance(asked, Principal) else await asked


async def judged(asked: Verdict | Later[Verdict]) -> Verdict:
    return asked if isinstance(asked, Verdict) else await asked


def issuer_at(place: Path, name: str = "jwks") -> Issuer:
    return Issuer(place / f"{name}.json")
