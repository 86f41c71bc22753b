"""What joins two sides: a link between registrar and shard, a connection of a client."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.core.wire import Wire

from roskva.wire import codec
from roskva.wire.links import FromShard, ToShard
from roskva.wire.messages import FromClient, ServerMessage

if TYPE_CHECKING:
    from tests.core.client_side import ClientSide
    from tests.core.registrar_side import RegistrarSide
    from tests.core.shard_side import ShardSide


class Link:
    """Between a registrar and a shard."""

    def __init__(self, id: int, registrar: RegistrarSide, shard: ShardSide) -> None:
        self.id, self.registrar, self.shard = id, registrar, shard
        self.up: Wire[ToShard] = Wire(
            codec.encode_link, codec.decode_to_shard, partial(shard.from_link, self)
        )
        self.down: Wire[FromShard] = Wire(
            codec.encode_link, codec.decode_from_shard, partial(registrar.from_link, self)
        )

    def hold(self, held: bool = True) -> None:
        """Half-open: it looks up from both ends, and nothing arrives."""
        self.up.held = self.down.held = held

    def break_(self) -> None:
        self.up.frames.clear()
        self.down.frames.clear()
        self.registrar.pair.soon(partial(self.registrar.link_down, self))
        self.registrar.pair.soon(partial(self.shard.link_down, self))


class Connection:
    """Between a client and a registrar."""

    def __init__(self, id: int, client: ClientSide, registrar: RegistrarSide) -> None:
        self.id, self.client, self.registrar = id, client, registrar
        self.lagging = False
        self.up: Wire[FromClient] = Wire(
            codec.encode, codec.decode_from_client, partial(registrar.received, self)
        )
        self.down: Wire[ServerMessage] = Wire(
            codec.encode, codec.decode_from_server, partial(client.received, self)
        )
        self.up.lossy = self.down.lossy = client.pair.loses
        self.down.at_end = partial(client.hung_up, self)
