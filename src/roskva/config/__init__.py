"""What can be set, and the one way to load it.

A setting is looked for in this order, and the last word wins: its default, the file
(`roskva.toml`), the environment (`ROSKVA_PORT` for `port` of `[node]`, and so on for that section),
the flags of the command. Everything is checked at load; whoever runs with a `Config` need not check
again.
"""

from roskva.config.access import exposed, has_keys, is_loopback, open_to_this_machine, read_secret
from roskva.config.sections import (
    NAMED,
    OFF,
    SECTIONS,
    SLIS,
    AdminConfig,
    AppConfig,
    Config,
    FeedConfig,
    IngestConfig,
    LimitsConfig,
    NodeConfig,
    PipelineConfig,
    ProbeConfig,
    Slo,
    SloConfig,
    TlsConfig,
)
from roskva.config.sources import Setting, Source, load, settings

__all__ = [
    "NAMED",
    "OFF",
    "SECTIONS",
    "SLIS",
    "AdminConfig",
    "AppConfig",
    "Config",
    "FeedConfig",
    "IngestConfig",
    "LimitsConfig",
    "NodeConfig",
    "PipelineConfig",
    "ProbeConfig",
    "Setting",
    "Slo",
    "SloConfig",
    "Source",
    "TlsConfig",
    "exposed",
    "has_keys",
    "is_loopback",
    "load",
    "open_to_this_machine",
    "read_secret",
    "settings",
]
