"""When a process that serves clients says that it can."""

import asyncio
from pathlib import Path

from tests.loops import in_loop, until
from tests.server.fronts import front_of_one_shard

from roskva.links.framing import Framed
from roskva.server.ports import SocketPort
from roskva.wire.codec import encode_link
from roskva.wire.links import Welcome


@in_loop
async def test_a_shard_that_can_be_reached_and_says_nothing_is_not_there(tmp_path: Path) -> None:
    front = front_of_one_shard()
    front.core.interests.link_timeout = 3600.0  # that nobody answers pings is not the point here
    path = str(tmp_path / "shard")
    port = SocketPort(0, path, front)
    front.ports.append(port)
    hellos: asyncio.Queue[Framed] = asyncio.Queue()

    def accept() -> Framed:
        return Framed(_ignore, lambda stream, _: hellos.put_nowait(stream), _ignore)

    server = await asyncio.get_running_loop().create_unix_server(accept, path)
    keeping_up = asyncio.create_task(port.run())
    async with server:
        shard = await hellos.get()
        assert front.core.interests.links[0].up
        assert not front.ready

        shard.send(encode_link(Welcome(0)))
        await until(lambda: front.ready)

        shard.drop()
        again = await hellos.get()
        assert not front.ready
        keeping_up.cancel()
        await asyncio.wait([keeping_up])
        again.drop()


def _ignore(stream: Framed) -> None:
    pass
