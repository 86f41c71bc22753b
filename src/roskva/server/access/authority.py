"""The authority of a node with keys: nothing is allowed that an app's settings do not grant.

A credential is a publish key or a JWT. Who shows a publish key may publish in its app; who shows a
JWT may do what the app's patterns say, and register for what its hook allows, too. Apps without a
table let nobody in.
"""

import logging
from collections.abc import Collection
from typing import Final

import msgspec

from roskva.core.identity import Standing
from roskva.errors import Unavailable
from roskva.model import Key, Principal
from roskva.server.access.base import ALLOWED, Later, Verdict, not_accepted
from roskva.server.access.hook import Hook
from roskva.server.access.jwt import BadJwt, JwtVerifier, UnknownKey, audiences, looks_like_jwt
from roskva.server.access.patterns import NamePatterns
from roskva.server.access.prober import ProberKeys
from roskva.server.access.publish_keys import PublishKeys
from roskva.wire.messages import MAX_CREDENTIAL_CHARS

_log = logging.getLogger(__name__)
_REVOKED: Final = "it was issued before the generation of its app, or its sub was revoked since"
_NO_NAMES: Final = NamePatterns(())


class AppRules(msgspec.Struct, frozen=True):
    verifier: JwtVerifier | None = None
    register: NamePatterns = _NO_NAMES
    publish: NamePatterns = _NO_NAMES
    hook: Hook | None = None


class KeyedAuthority:
    def __init__(
        self,
        apps: dict[str, AppRules],
        keys: PublishKeys,
        prober: ProberKeys,
        standing: Standing,
        guarded: frozenset[str],
    ) -> None:
        self.standing = standing
        self.guarded = guarded
        self._apps = apps
        self._keys = keys
        self._prober = prober
        self._by_audience = {
            rules.verifier.audience: rules.verifier
            for rules in apps.values()
            if rules.verifier is not None
        }

    # Who it is.

    def identify(self, app: str | None, credential: str | None) -> Principal | Later[Principal]:
        if (
            credential is None
            or len(credential) > MAX_CREDENTIAL_CHARS
            or not credential.isascii()  # as every header is
        ):
            raise not_accepted()
        who = self._keys.find(credential) or self._prober.find(credential)
        if who is not None and app in (None, who.app):
            return who
        if who is not None or not looks_like_jwt(credential):
            raise not_accepted()
        verifier = self._verifier(app, credential)
        try:
            return self._verified(verifier, credential)
        except UnknownKey as error:
            if not verifier.jwks.may_ask():
                raise self._refused(error) from None
            return self._ask_for_keys(verifier, credential)
        except Unavailable:
            if not verifier.jwks.may_ask():
                raise
            return self._ask_for_keys(verifier, credential)

    async def explained(self, credential: str) -> Principal:
        """As `identify`; but what it raises says why."""
        who = self._keys.find(credential)
        if who is not None:
            return who
        if not looks_like_jwt(credential):
            raise BadJwt("no app has this publish key")
        found = [self._by_audience[a] for a in audiences(credential) if a in self._by_audience]
        if len(found) != 1:
            wanted = ", ".join(self._by_audience) or "there is none"
            raise BadJwt(f"its aud is not that of one app (of {wanted})")
        if found[0].jwks.remote:
            await found[0].jwks.ask()
        who = found[0].verify(credential)
        if not self.standing.holds(who):
            raise BadJwt(_REVOKED)
        return who

    def _verifier(self, app: str | None, credential: str) -> JwtVerifier:
        if app is not None:
            rules = self._apps.get(app)
            if rules is None or rules.verifier is None:
                raise not_accepted()
            return rules.verifier
        found = [self._by_audience[a] for a in audiences(credential) if a in self._by_audience]
        if len(found) != 1:
            raise not_accepted()
        return found[0]

    def _verified(self, verifier: JwtVerifier, credential: str) -> Principal:
        try:
            who = verifier.verify(credential)
        except UnknownKey:
            raise
        except BadJwt as error:
            raise self._refused(error) from None
        if not self.standing.holds(who):
            raise self._refused(BadJwt(_REVOKED))
        return who

    async def _ask_for_keys(self, verifier: JwtVerifier, credential: str) -> Principal:
        await verifier.jwks.ask()
        try:
            return self._verified(verifier, credential)
        except UnknownKey as error:
            raise self._refused(error) from None

    def _refused(self, why: BadJwt) -> Exception:
        _log.debug("a JWT is refused: %s", why)
        return not_accepted()

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
            unknown = rules.hook.unknown(principal, (key for key in keys if key not in denied))
            if unknown:
                return self._ask_hook(rules.hook, principal, unknown, denied)
        return Verdict(denied) if denied else ALLOWED

    async def _ask_hook(
        self, hook: Hook, principal: Principal, unknown: list[Key], denied: frozenset[Key]
    ) -> Verdict:
        try:
            allowed = await hook.ask(principal, unknown)
        except Unavailable:
            return Verdict(denied, frozenset(unknown))
        return Verdict(denied | (frozenset(unknown) - allowed))
