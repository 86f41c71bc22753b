"""The settings of an app: how it behaves, and who may do what in it (`access.py` checks that)."""

from datetime import datetime
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from roskva.model import MAX_PAYLOAD_BYTES

Word = Annotated[str, Meta(min_length=1)]
Moment = Annotated[datetime, Meta(tz=True)]


class AppConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How apps behave. What the table of an app does not set is taken from `[defaults]`."""

    versions: Annotated[
        Literal["app", "assigned"],
        Meta(
            description="Who numbers the versions: the publisher, or Roskva. With assigned "
            "versions an MQTT message is a payload, and otherwise the version in digits."
        ),
    ] = "app"
    max_payload_bytes: Annotated[
        int,
        Meta(ge=0, le=16 * MAX_PAYLOAD_BYTES, description="The largest payload of an update."),
    ] = MAX_PAYLOAD_BYTES
    fast_path: Annotated[
        bool,
        Meta(
            description="Tell clients as soon as an update is durable. Without it they are told "
            "when the feed is next read, which is later."
        ),
    ] = True
    publish_keys: Annotated[
        list[str],
        Meta(
            description="Who shows one of these may publish and reset any object of the app: "
            "`sha256:` and the hash of the key in hex, `env:` and a variable, or `file:` and a "
            "path. See docs/security.md."
        ),
    ] = []
    jwks: Annotated[
        str | None,
        Meta(
            description="The public keys that this app's JWTs are signed with: a file, or an https "
            "URL that is asked again from time to time."
        ),
    ] = None
    audience: Annotated[
        Word | None,
        Meta(description="The `aud` of this app's JWTs. Not set: the app's name."),
    ] = None
    issuer: Annotated[
        Word | None, Meta(description="The `iss` that JWTs must have. Not set: any.")
    ] = None
    register: Annotated[
        list[str],
        Meta(
            description="Names that whoever has a JWT may register for and read: `*` is anything "
            "up to the next `/`, `**` at the end anything at all, `{principal}` the `sub` of the "
            "JWT."
        ),
    ] = []
    publish: Annotated[
        list[str],
        Meta(description="Names that whoever has a JWT may publish and reset; likewise."),
    ] = []
    hook: Annotated[
        str | None,
        Meta(
            description="An https URL of the app's backend that is asked, too, about every "
            "registration that `register` allows."
        ),
    ] = None
    hook_timeout_ms: Annotated[
        int, Meta(ge=10, le=10_000, description="After this the answer of the hook is no.")
    ] = 2000
    hook_cache_seconds: Annotated[
        int, Meta(ge=0, le=300, description="For so long a yes of the hook is not asked for again.")
    ] = 10
    authorise_at_notify: Annotated[
        bool,
        Meta(
            description="Ask again before each notification. It costs time for every client that "
            "is told; without it a registration stays good until it is given up."
        ),
    ] = False
    generation: Annotated[
        Moment | None,
        Meta(
            description="JWTs and tokens of the app's clients that were issued before this moment "
            "are void."
        ),
    ] = None
    revoked: Annotated[
        dict[str, Moment] | None,
        Meta(description="The same for single principals: `alice = 2026-01-31T12:00:00Z`."),
    ] = None
