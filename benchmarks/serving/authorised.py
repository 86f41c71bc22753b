"""What keys cost a node on fan-out: clients with a JWT and names by patterns, asked once or again
before each notification; the clients are those of `encrypted.py`, without TLS."""

import time
from pathlib import Path
from typing import Final

from roskva.cli.token import Algorithm, add_to_jwks, generate, mint_jwt
from roskva.wire.mqtt.fields import binary, string, varint

APP: Final = "bench"
_HOUR_S: Final = 3600


class Keys:
    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._jwks = directory / "jwks.json"
        self._key = generate(Algorithm.EDDSA)
        add_to_jwks(self._jwks, self._key)

    def flags(self, *, at_notify: bool) -> list[str]:
        """Of a node with keys."""
        settings = self._directory / f"at-notify-{at_notify}.toml".lower()
        settings.write_text(
            "[limits]\nclient_publishes_per_second = 1_000_000\n"
            f'[apps.{APP}]\njwks = "{self._jwks}"\nregister = ["other/*", "obj*"]\n'
            f'publish = ["obj*"]\nauthorise_at_notify = {str(at_notify).lower()}\n'
        )
        return ["--config", str(settings)]

    def connect(self) -> bytes:
        """MQTT's CONNECT with a JWT."""
        now = int(time.time())
        claims = {"sub": "device", "aud": APP, "iat": now, "exp": now + _HOUR_S}
        credential = mint_jwt(self._key, claims).encode()
        body = string("MQTT") + b"\x04\xc2\x00\x00" + string("")
        body += string(APP) + binary(credential)
        return b"\x10" + varint(len(body)) + body
