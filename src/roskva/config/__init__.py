"""What can be set, and the one way to load it.

A setting is looked for in this order, and the last word wins: its default, the file
(`roskva.toml`), the environment (`ROSKVA_PORT` for `port` of `[node]`, and so on for that section),
the flags of the command. Everything is checked at load; whoever runs with a `Config` need not check
again.
"""

from roskva.config.apps import AppConfig
from roskva.config.exposure import exposed, has_keys, is_loopback, open_to_this_machine
from roskva.config.loading import Source, load
from roskva.config.probing import SLIS, ProbeConfig, Slo, SloConfig
from roskva.config.secrets import read_secret
from roskva.config.sections import (
    NAMED,
    OFF,
    SECTIONS,
    Config,
    FeedConfig,
    IngestConfig,
    LimitsConfig,
    NodeConfig,
    PipelineConfig,
    Setting,
    settings,
)
from roskva.config.transport import AdminConfig, TlsConfig

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
