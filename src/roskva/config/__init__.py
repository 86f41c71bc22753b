"""What can be set, and the one way to load it.

A setting is looked for in this order, and the last word wins: its default, the file
(`roskva.toml`), the environment (`ROSKVA_PORT` for `port` of `[node]`, and so on for that section),
the flags of the command. Everything is checked at load; whoever runs with a `Config` need not check
again.
"""

from roskva.config.access import exposed as exposed
from roskva.config.access import has_keys as has_keys
from roskva.config.access import is_loopback as is_loopback
from roskva.config.access import open_to_this_machine as open_to_this_machine
from roskva.config.access import read_secret as read_secret
from roskva.config.access import takes_any_name as takes_any_name
from roskva.config.sections import CHANGES_FORMAT as CHANGES_FORMAT
from roskva.config.sections import CHANNELS as CHANNELS
from roskva.config.sections import NAMED as NAMED
from roskva.config.sections import OFF as OFF
from roskva.config.sections import SECTIONS as SECTIONS
from roskva.config.sections import SLIS as SLIS
from roskva.config.sections import AdminConfig as AdminConfig
from roskva.config.sections import AppConfig as AppConfig
from roskva.config.sections import Config as Config
from roskva.config.sections import FeedConfig as FeedConfig
from roskva.config.sections import IngestConfig as IngestConfig
from roskva.config.sections import LimitsConfig as LimitsConfig
from roskva.config.sections import NodeConfig as NodeConfig
from roskva.config.sections import PipelineConfig as PipelineConfig
from roskva.config.sections import ProbeConfig as ProbeConfig
from roskva.config.sections import SessionsConfig as SessionsConfig
from roskva.config.sections import SloConfig as SloConfig
from roskva.config.sections import SourceConfig as SourceConfig
from roskva.config.sections import TlsConfig as TlsConfig
from roskva.config.sections import files_of_store as files_of_store
from roskva.config.sources import Setting as Setting
from roskva.config.sources import Source as Source
from roskva.config.sources import load as load
from roskva.config.sources import settings as settings
