"""Who a client is, kept in a file."""

import stat
from pathlib import Path

import pytest
from tests.client.scripted import CLIENT_ID, TOKEN, ScriptedServer, quick
from tests.client.test_client import next_of
from tests.loops import in_loop
from tests.serving.nodes import await_that

from roskva.client.client import Client
from roskva.client.identity import IdentityFile
from roskva.core.effects import ReissueRegistrations, Trouble
from roskva.core.identity import Identity, pack_identity
from roskva.errors import Unavailable
from roskva.wire.messages import Hello, ServerError


def keeping(server: ScriptedServer, path: Path) -> Client:
    return quick(Client(server.url, "contacts", identity=path))


async def run_once(server: ScriptedServer, path: Path) -> Hello:
    """A run of the program, and how it introduced itself."""
    async with keeping(server, path) as client:
        hello = await (await server.accept()).greet()
        await next_of(client, ReissueRegistrations)
    return hello


@in_loop
async def test_is_the_same_client_in_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    async with ScriptedServer() as server:
        assert (await run_once(server, path)).app == "contacts"
        assert path.read_bytes() == pack_identity(Identity("contacts", CLIENT_ID, TOKEN))
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        again = await run_once(server, path)
        assert (again.app, again.token) == (None, TOKEN)


@in_loop
async def test_damaged_identity_means_a_new_client(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    async with ScriptedServer() as server:
        for damaged in (
            b"",
            b"rubbish",
            pack_identity(Identity("contacts", CLIENT_ID, TOKEN))[:-1],
        ):
            path.write_bytes(damaged)
            assert (await run_once(server, path)).app == "contacts"
            assert (await run_once(server, path)).token == TOKEN


@in_loop
async def test_identity_of_another_app_means_a_new_client(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    path.write_bytes(pack_identity(Identity("other", CLIENT_ID, TOKEN)))
    async with ScriptedServer() as server:
        assert (await run_once(server, path)).app == "contacts"


@in_loop
async def test_rejected_identity_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    path.write_bytes(pack_identity(Identity("contacts", CLIENT_ID, b"old")))
    async with ScriptedServer() as server:
        async with keeping(server, path):
            conversation = await server.accept()
            assert (await conversation.hear_hello()).token == b"old"
            await conversation.say(error=ServerError("token_rejected"))
            assert (await conversation.hear_hello()).app == "contacts"
        assert not path.exists()


@in_loop
async def test_each_grant_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    async with ScriptedServer() as server:
        async with keeping(server, path) as client:
            for token in (b"first", b"second"):
                conversation = await server.accept()
                await conversation.greet(token)
                await conversation.hang_up()
            conversation = await server.accept()
            await conversation.greet(b"last")
            await client.register("alice")
            assert await conversation.confirm()
        assert path.read_bytes() == pack_identity(Identity("contacts", CLIENT_ID, b"last"))


@in_loop
async def test_one_identity_serves_one_client_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    async with ScriptedServer() as server:
        async with keeping(server, path):
            with pytest.raises(Unavailable, match="another client"):
                await keeping(server, path).__aenter__()
        await run_once(server, path)


@in_loop
async def test_identity_that_cannot_be_kept_is_trouble_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    (tmp_path / "identity.tmp").mkdir()  # where it would be written first
    async with ScriptedServer() as server, keeping(server, path) as client:
        await (await server.accept()).greet()
        assert (await next_of(client, Trouble)).code == "storage_unavailable"
        assert client.connected


def test_file_keeps_the_last_of_many_and_is_left_free(tmp_path: Path) -> None:
    path = tmp_path / "identity"
    file = IdentityFile(path)
    for number in range(20):
        file.write(b"%d" % number)
    file.release()
    again = IdentityFile(path)
    assert again.read() == b"19"
    again.write(None)
    again.release()
    assert not path.exists()
    assert [entry.name for entry in tmp_path.iterdir()] == ["identity.lock"]


def test_a_file_that_is_being_written_is_released_when_that_is_done(tmp_path: Path) -> None:
    """By a thread that nobody waits for any more, on a slow disk."""
    path = tmp_path / "state"
    file = IdentityFile(path)
    with file._writing:
        file.release()
        with pytest.raises(Unavailable):
            IdentityFile(path)
    again = await_that(lambda: claimed(path), 60.0)
    file.write(b"late")
    assert not path.exists()
    again.release()


def claimed(path: Path) -> IdentityFile | None:
    try:
        return IdentityFile(path)
    except Unavailable:
        return None
