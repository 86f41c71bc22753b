"""What a node with keys needs to know who is who: JWKS, hooks, and HTTP to ask for them.

Only such a node loads this: with it come an HTTP client and all of JWT.
"""

from datetime import datetime
from typing import Final

import httpx

from roskva.config import AppConfig, Config
from roskva.config.access import key_digest
from roskva.core.identity import Standing, TokenKeys
from roskva.model import PROBE_APPS
from roskva.server.access.authority import AppRules, KeyedAuthority
from roskva.server.access.hook import Hook, HookSettings
from roskva.server.access.jwks import Jwks
from roskva.server.access.jwt import JwtVerifier
from roskva.server.access.patterns import NamePatterns
from roskva.server.access.prober import ProberKeys, accepted_keys
from roskva.server.access.publish_keys import PublishKeys

_OF_PROBER: Final = AppRules(register=NamePatterns(("**",)), publish=NamePatterns(("**",)))


class Keyed:
    """Keys that were fetched, and what hooks have allowed, outlive a reload of the settings that
    does not concern them."""

    def __init__(self) -> None:
        self._http = httpx.AsyncClient(follow_redirects=False)
        self._jwks: dict[str, Jwks] = {}
        self._hooks: dict[HookSettings, Hook] = {}

    def read_again(self) -> None:
        for jwks in self._jwks.values():
            if not jwks.remote:
                jwks.read_again()

    async def fetch_what_is_due(self) -> None:
        for jwks in list(self._jwks.values()):
            if jwks.due():
                await jwks.ask()

    async def close(self) -> None:
        await self._http.aclose()

    def authority(self, config: Config, tokens: TokenKeys | None) -> KeyedAuthority:
        jwks = {app.jwks: self._jwks_at(app.jwks) for app in config.apps.values() if app.jwks}
        hooks = {
            settings: self._hooks.get(settings) or Hook(settings, self._http)
            for name, app in config.apps.items()
            if (settings := hook_settings(name, app)) is not None
        }
        apps = {name: _rules(name, app, jwks, hooks) for name, app in config.apps.items()}
        verifiers = [rules.verifier for rules in apps.values() if rules.verifier is not None]
        for found in jwks.values():
            found.on_change([v.forget for v in verifiers if v.jwks is found])
        self._jwks, self._hooks = jwks, hooks
        keys = PublishKeys(
            (name, key_digest(reference))
            for name, app in config.apps.items()
            for reference in app.publish_keys
        )
        guarded = frozenset(name for name, app in config.apps.items() if app.authorise_at_notify)
        prober = ProberKeys(() if tokens is None else accepted_keys(config.probe, tokens))
        apps |= dict.fromkeys(PROBE_APPS, _OF_PROBER)
        return KeyedAuthority(apps, keys, prober, standing_of(config, keys), guarded)

    def _jwks_at(self, place: str) -> Jwks:
        return self._jwks.get(place) or Jwks(place, self._http)


def _rules(
    name: str, app: AppConfig, jwks: dict[str, Jwks], hooks: dict[HookSettings, Hook]
) -> AppRules:
    verifier = None
    if app.jwks is not None:
        verifier = JwtVerifier(name, app.audience or name, app.issuer, jwks[app.jwks])
    settings = hook_settings(name, app)
    hook = None if settings is None else hooks[settings]
    return AppRules(verifier, NamePatterns(app.register), NamePatterns(app.publish), hook)


def hook_settings(name: str, app: AppConfig) -> HookSettings | None:
    if app.hook is None:
        return None
    return HookSettings(name, app.hook, app.hook_timeout_ms / 1000, app.hook_cache_seconds)


def standing_of(config: Config, keys: PublishKeys) -> Standing:
    return Standing(
        keyed=True,
        apps={n: _seconds(app.generation) for n, app in config.apps.items() if app.jwks}
        | dict.fromkeys(PROBE_APPS, 0),
        principals={
            name: {principal: _seconds(moment) for principal, moment in app.revoked.items()}
            for name, app in config.apps.items()
            if app.revoked
        },
        keys=keys.names(),
    )


def _seconds(moment: datetime | None) -> int:
    return 0 if moment is None else int(moment.timestamp())
