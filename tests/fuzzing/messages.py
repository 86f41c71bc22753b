"""The messages of the protocol, our tokens and stored identities: by their decoders."""

from typing import Final

from tests.fuzzing.target import Target
from tests.wire.hostile import DECODERS

TARGETS: Final = [
    Target(f"messages: {decoder.name}", decoder.corpus, decoder.accepts)
    for decoder in DECODERS.values()
]
