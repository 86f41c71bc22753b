"""When a process that serves clients says that it can."""

import asyncio
from pathlib import Path

from tests.loops import in_loop, until
from tests.server.fronts import registrar_of_one_shard

from roskva.links.framing import Framed
from roskva.links.shard_link import SocketLink
from roskva.wire.codec import encode_link
from roskva.wire.links import Welcome


@in_loop
async def test_a_shard_that_can_be_reached_and_says_nothing_is_not_there(tmp_path: Path) -> None:
    registrar = registrar_of_one_shard()
    registrar.core.interests.link_timeout = (
        3600.0  # that nobody answers pings is not the point here
    )
    path = str(tmp_path / "shard")
    link = SocketLink(0, path, registrar.step)
    registrar.links[0] = link.end
    hellos: asyncio.Queue[Framed] = asyncio.Queue()

    def accept() -> Framed:
        return Framed(_ignore, lambda stream, _: hellos.put_nowait(stream), _ignore)

    server = await asyncio.get_running_loop().create_unix_server(accept, path)
    keeping_up = asyncio.create_task(link.run())
    async with server:
        shard = await hellos.get()
        assert registrar.core.interests.links[0].up
        assert not registrar.ready

        shard.send(encode_link(Welcome(0)))
        await until(lambda: registrar.ready)

        shard.drop()
        again = await hellos.get()
        assert not registrar.ready
        keeping_up.cancel()
        await asyncio.wait([keeping_up])
        again.drop()


def _ignore(stream: Framed) -> None:
    pass
