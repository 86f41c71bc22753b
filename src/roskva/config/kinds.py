"""What the sections of the settings are made of."""

import ipaddress
import re
from collections.abc import Iterable
from typing import Annotated, Final

from msgspec import Meta

from roskva.errors import BadConfig

Port = Annotated[int, Meta(ge=0, le=65535)]


class Conflict(BadConfig):
    """Settings that do not go together; `keys` are the ones to look at, in this order."""

    def __init__(self, sentence: str, *keys: str) -> None:
        super().__init__(sentence)
        self.keys = keys


_ORIGIN: Final = re.compile(r"https?://[^/\s]+")


def check_networks(networks: Iterable[str]) -> None:
    for text in networks:
        try:
            ipaddress.ip_network(text)
        except ValueError:
            raise Conflict(
                f"behind_proxy has {text!r}, which is no address or network: write 10.1.2.3 or "
                "10.0.0.0/8",
                "node.behind_proxy",
            ) from None


def check_origins(origins: Iterable[str]) -> None:
    for text in origins:
        if text != "*" and not _ORIGIN.fullmatch(text):
            raise Conflict(
                f"allowed_origins has {text!r}, which is no origin: write https://app.example.com, "
                "without a path, or *",
                "node.allowed_origins",
            )
