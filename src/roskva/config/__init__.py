"""What can be set, and the one way to load it.

A setting is looked for in this order, and the last word wins: its default, the file
(`roskva.toml`), the environment (`ROSKVA_PORT` for `port` of `[node]`, and so on for that section),
the flags of the command. Everything is checked at load; whoever runs with a `Config` need not check
again.
"""

from roskva.config.loading import load
from roskva.config.sections import (
    NAMED,
    OFF,
    SECTIONS,
    AppConfig,
    Config,
    FeedConfig,
    IngestConfig,
    LimitsConfig,
    NodeConfig,
    PipelineConfig,
    Setting,
    settings,
)

__all__ = [
    "NAMED",
    "OFF",
    "SECTIONS",
    "AppConfig",
    "Config",
    "FeedConfig",
    "IngestConfig",
    "LimitsConfig",
    "NodeConfig",
    "PipelineConfig",
    "Setting",
    "load",
    "settings",
]
