"""Whether `roskva serve` would start with these settings; for whoever asks before it does."""

from typing import Final

from roskva.config import Config, exposed, read_secret
from roskva.errors import BadConfig
from roskva.server.tls import server_context

INSECURE: Final = "or say --insecure, if everybody who can reach it may do everything"


def check_start(config: Config, insecure: bool) -> None:
    """All that can be wrong with settings that are well-formed, or `BadConfig`."""
    if config.tls.enabled:
        server_context(config.tls)
    if config.admin.key is not None:
        read_secret("key under [admin]", config.admin.key)
    if config.probe.key is not None:
        read_secret("key under [probe]", config.probe.key)
    problems = exposed(config)
    if problems and not insecure:
        raise BadConfig("\n".join([*problems, INSECURE]))
