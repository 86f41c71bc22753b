"""The authority of a node with keys: nothing is allowed that an app's settings do not grant.

A credential is a publish key or a JWT. Who shows a publish key may publish in its app; who shows a
JWT may do what the app's patterns say, and register for what its hook allows, too. Apps without a
table let nobody in.

Only such a node loads this: with it come an HTTP client and all of JWT.
"""

import asyncio
import logging
import re
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

import msgspec

from roskva.config import AppConfig, Config
from roskva.core.identity import Standing, TokenKeys
from roskva.errors import Unavailable
from roskva.model import PROBE_APPS, Key, Principal
from roskva.server.access import jwt
from roskva.server.access.authority import ALLOWED, Later, Verdict, not_accepted
from roskva.server.access.backends import backend_client
from roskva.server.access.hook import Hook, HookSettings, Wish
from roskva.server.access.keys import FlowKeys, ProberKeys, PublishKeys
from roskva.wire.messages import MAX_CREDENTIAL_CHARS

_log = logging.getLogger(__name__)
_REVOKED: Final = "it was issued before the generation of its app, or its sub was revoked since"
_LOOK_S: Final = 1.0
"""How often it is seen whether keys are due to be fetched again."""

PRINCIPAL: Final = "{principal}"
_REMEMBERED: Final = 10_000
_PARTS: Final = re.compile(r"\*\*|\*|\{principal\}|[^*{]+")


class NamePatterns:
    """`*` is anything up to the next `/`, `**` anything at all, `{principal}` whoever asks.

    A principal with a `/` in its name is never put into a pattern: `{principal}/*` would give it
    names that lie deeper, among those of somebody else.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._for_all = _compiled([p for p in patterns if PRINCIPAL not in p], "")
        self._personal = [pattern for pattern in patterns if PRINCIPAL in pattern]
        self._by_principal: dict[str, re.Pattern[str] | None] = {}

    def match(self, name: str, principal: str) -> bool:
        if self._for_all is not None and self._for_all.fullmatch(name):
            return True
        if not self._personal or not principal or "/" in principal:
            return False
        own = self._by_principal.get(principal)
        if own is None:
            if len(self._by_principal) >= _REMEMBERED:
                self._by_principal.clear()
            own = self._by_principal[principal] = _compiled(self._personal, principal)
        return own is not None and own.fullmatch(name) is not None


def _compiled(patterns: list[str], principal: str) -> re.Pattern[str] | None:
    if not patterns:
        return None
    spelt = {"*": "[^/]+", "**": ".+", PRINCIPAL: re.escape(principal)}
    expressions = (
        "".join(spelt.get(part, re.escape(part)) for part in _PARTS.findall(pattern))
        for pattern in patterns
    )
    return re.compile("|".join(expressions))


class AppRules(msgspec.Struct, frozen=True):
    register: NamePatterns
    publish: NamePatterns
    verifier: jwt.JwtVerifier | None = None
    hook: Hook | None = None


_OF_PROBER: Final = AppRules(register=NamePatterns(("**",)), publish=NamePatterns(("**",)))


class KeyedAuthority:
    """Keys that were fetched, and what hooks have allowed, outlive a reload of the settings that
    does not concern them."""

    def __init__(self, config: Config, tokens: TokenKeys | None = None) -> None:
        self._http = backend_client()
        self._jwks: dict[str, jwt.Jwks] = {}
        self._hooks: dict[HookSettings, Hook] = {}
        self._take_over(config, tokens)

    def reload(self, config: Config, tokens: TokenKeys | None = None) -> None:
        for jwks in self._jwks.values():
            if not jwks.remote:
                jwks.read_again()
        self._take_over(config, tokens)

    def _take_over(self, config: Config, tokens: TokenKeys | None) -> None:
        publish_keys, prober_keys = PublishKeys(config.apps), ProberKeys(config.probe, tokens)
        flow_keys = FlowKeys(config.apps_of_sources, tokens)
        places = {app.jwks for app in config.apps.values() if app.jwks}
        jwks = {place: self._jwks.get(place) or jwt.Jwks(place, self._http) for place in places}
        hooks: dict[HookSettings, Hook] = {}
        apps: dict[str, AppRules] = {}
        for name, app in config.apps.items():
            hook = verifier = None
            if app.hook is not None:
                timeout_s = app.hook_timeout_ms / 1000
                settings = HookSettings(name, app.hook, timeout_s, app.hook_cache_seconds)
                hook = hooks[settings] = self._hooks.get(settings) or Hook(settings, self._http)
            if app.jwks is not None:
                verifier = jwt.JwtVerifier(name, app.audience or name, app.issuer, jwks[app.jwks])
            register, publish = NamePatterns(app.register), NamePatterns(app.publish)
            apps[name] = AppRules(register, publish, verifier, hook)
        apps |= dict.fromkeys(PROBE_APPS, _OF_PROBER)
        # Nothing is wrong with any of it.
        verifiers = [rules.verifier for rules in apps.values() if rules.verifier is not None]
        for found in jwks.values():
            found.on_change([v.forget for v in verifiers if v.jwks is found])
        self._jwks, self._hooks, self._apps = jwks, hooks, apps
        self._by_audience = {verifier.audience: verifier for verifier in verifiers}
        self._publish_keys, self._flow_keys = publish_keys, flow_keys
        self._prober_keys = prober_keys
        self.standing = standing_of(config.apps, publish_keys.names() | flow_keys.names())
        self.guarded = frozenset(n for n, app in config.apps.items() if app.authorise_at_notify)
        self.asked_at_publish = frozenset(
            n for n, app in config.apps.items() if app.authorise_at_publish
        )

    async def run(self) -> None:
        try:
            while True:
                for jwks in list(self._jwks.values()):
                    if jwks.due():
                        await jwks.ask()
                await asyncio.sleep(_LOOK_S)
        finally:
            await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    # Who it is.

    def identify(self, app: str | None, credential: str | None) -> Principal | Later[Principal]:
        if (
            credential is None
            or len(credential) > MAX_CREDENTIAL_CHARS
            or not credential.isascii()  # as every header is
        ):
            raise not_accepted()
        who = (
            self._publish_keys.find(credential)
            or self._flow_keys.find(credential)
            or self._prober_keys.find(credential)
        )
        if who is not None and app in (None, who.app):
            return who
        if who is not None or not jwt.looks_like_jwt(credential):
            raise not_accepted()
        verifier = self._verifier(app, credential)
        try:
            return self._verified(verifier, credential)
        except jwt.UnknownKey as error:
            if not verifier.jwks.may_ask():
                raise _refused(error) from None
        except Unavailable:
            if not verifier.jwks.may_ask():
                raise
        return self._ask_for_keys(verifier, credential)

    async def explained(self, credential: str) -> Principal:
        """As `identify`; but what it raises says why."""
        who = self._publish_keys.find(credential)
        if who is not None:
            return who
        if not jwt.looks_like_jwt(credential):
            raise jwt.BadJwt("no app has this publish key")
        verifier = self._by_its_audience(credential)
        if verifier is None:
            wanted = ", ".join(self._by_audience) or "there is none"
            raise jwt.BadJwt(f"its aud is not that of one app (of {wanted})")
        if verifier.jwks.remote:
            await verifier.jwks.ask()
        return self._holding(verifier.verify(credential))

    def _verifier(self, app: str | None, credential: str) -> jwt.JwtVerifier:
        if app is None:
            found = self._by_its_audience(credential)
        else:
            rules = self._apps.get(app)
            found = None if rules is None else rules.verifier
        if found is None:
            raise not_accepted()
        return found

    def _by_its_audience(self, credential: str) -> jwt.JwtVerifier | None:
        found = [self._by_audience[a] for a in jwt.audiences(credential) if a in self._by_audience]
        return found[0] if len(found) == 1 else None

    def _verified(self, verifier: jwt.JwtVerifier, credential: str) -> Principal:
        try:
            return self._holding(verifier.verify(credential))
        except jwt.UnknownKey:
            raise
        except jwt.BadJwt as error:
            raise _refused(error) from None

    def _holding(self, who: Principal) -> Principal:
        if not self.standing.holds(who):
            raise jwt.BadJwt(_REVOKED)
        return who

    async def _ask_for_keys(self, verifier: jwt.JwtVerifier, credential: str) -> Principal:
        await verifier.jwks.ask()
        try:
            return self._verified(verifier, credential)
        except jwt.UnknownKey as error:
            raise _refused(error) from None

    # What it may do.

    def may_publish(self, principal: Principal, key: Key) -> bool:
        app, _, name = key.partition("/")
        if principal.app != app or not self.standing.holds(principal):
            return False
        if principal.key:
            return True
        rules = self._apps.get(app)
        return rules is not None and rules.publish.match(name, principal.name)

    def may_register(self, principal: Principal, keys: Collection[Key]) -> Verdict | Later[Verdict]:
        rules = self._apps.get(principal.app or "")
        if rules is None or principal.key or not self.standing.holds(principal):
            return Verdict(frozenset(keys))
        own = f"{principal.app}/"
        denied = frozenset(
            key
            for key in keys
            if not key.startswith(own) or not rules.register.match(key[len(own) :], principal.name)
        )
        if rules.hook is not None:
            allowed = [key for key in keys if key not in denied]
            unknown = rules.hook.unknown("register", principal, allowed)
            if unknown:
                return _ask_hook(rules.hook, "register", principal, unknown, denied)
        return Verdict(denied) if denied else ALLOWED

    def confirmed(self, principal: Principal, keys: Collection[Key]) -> Verdict | Later[Verdict]:
        hook = self._apps[principal.app or ""].hook
        if hook is None or principal.key:
            return ALLOWED
        unknown = hook.unknown("publish", principal, keys)
        return _ask_hook(hook, "publish", principal, unknown) if unknown else ALLOWED


def _refused(why: jwt.BadJwt) -> Exception:
    _log.debug("a JWT is refused: %s", why)
    return not_accepted()


async def _ask_hook(
    hook: Hook,
    wish: Wish,
    principal: Principal,
    unknown: list[Key],
    denied: frozenset[Key] = frozenset(),
) -> Verdict:
    try:
        allowed = await hook.ask(wish, principal, unknown)
    except Unavailable:
        return Verdict(denied, frozenset(unknown))
    return Verdict(denied | (frozenset(unknown) - allowed))


def standing_of(apps: dict[str, AppConfig], keys: dict[str, str]) -> Standing:
    return Standing(
        keyed=True,
        apps={name: _seconds(app.generation) for name, app in apps.items() if app.jwks}
        | dict.fromkeys(PROBE_APPS, 0),
        principals={
            name: {principal: _seconds(moment) for principal, moment in app.revoked.items()}
            for name, app in apps.items()
            if app.revoked
        },
        keys=keys,
    )


def _seconds(moment: datetime | None) -> int:
    return 0 if moment is None else int(moment.timestamp())
