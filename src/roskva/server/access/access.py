"""The authority of this process, as the settings have it now, and what it needs to stay so."""

import asyncio
from typing import TYPE_CHECKING, Final

from roskva.config import Config, has_keys
from roskva.core.identity import TokenKeys
from roskva.server.access.base import AllowAll, Authority

if TYPE_CHECKING:
    from roskva.server.access.keyed import Keyed

_LOOK_S: Final = 1.0
"""How often it is seen whether keys are due to be fetched again."""


class Access:
    def __init__(self, config: Config, tokens: TokenKeys | None = None) -> None:
        """`BadConfig` if a file that the settings name is not good. `tokens`: the keys under which
        this node seals tokens; without them there is no prober."""
        self._keyed: Keyed | None = None
        self.authority: Authority = self._built(config, tokens)

    def reload(self, config: Config, tokens: TokenKeys | None = None) -> Authority:
        """`BadConfig` leaves everything as it was."""
        if self._keyed is not None:
            self._keyed.read_again()
        self.authority = self._built(config, tokens)
        return self.authority

    async def run(self) -> None:
        """Until cancelled: keep fetched keys fresh."""
        try:
            while True:
                if self._keyed is not None:
                    await self._keyed.fetch_what_is_due()
                await asyncio.sleep(_LOOK_S)
        finally:
            await self.close()

    async def close(self) -> None:
        if self._keyed is not None:
            await self._keyed.close()

    def _built(self, config: Config, tokens: TokenKeys | None) -> Authority:
        if not has_keys(config):
            return AllowAll()
        if self._keyed is None:
            from roskva.server.access.keyed import Keyed

            self._keyed = Keyed()
        return self._keyed.authority(config, tokens)
