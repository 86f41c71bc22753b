"""Links between machines: who is let in, who is met, and who is not, in words.

On both event loops, as nodes have the one and tests the other.
"""

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest
import uvloop
from tests.links.members import CELL, CLIENT, ONE, SERVER, TWO, MembersAuthority, issued
from tests.loops import PATIENCE_S, until

from roskva.cli.certs import CertificateAuthority, Issued
from roskva.core.effects import FromLink, LinkDown, LinkUp
from roskva.links import streams
from roskva.links.framing import Framed, with_length
from roskva.links.members import Member, MemberAddress, MemberCertificates
from roskva.links.questions import ask, exchange
from roskva.links.shard_link import SocketLink
from roskva.links.streams import MemberListener, NoLink, connect, listen_for_members
from roskva.wire.codec import decode_to_shard, encode_link
from roskva.wire.links import (
    MAX_LINK_FRAME_BYTES,
    Ask,
    Interest,
    ProcessAnswer,
    Welcome,
)

Run = Callable[[Coroutine[Any, Any, None]], None]
LOOPS: Final = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
FUZZED: Final = int(os.environ.get("ROSKVA_FUZZ_ROUNDS", "150"))


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    """On a loop of its own, in bounded time, leaving no task behind."""

    async def bounded(test: Coroutine[Any, Any, None]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await test
            await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    def run(test: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=LOOPS[request.param]) as runner:
            runner.run(bounded(test))

    return run


@pytest.fixture
def authority(tmp_path: Path) -> MembersAuthority:
    return MembersAuthority(tmp_path)


class Owner:
    """What a member says to those that are let in: what each frame was."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.open: list[Framed] = []

    def stream(self) -> Framed:
        return Framed(self.open.append, self._received, self.open.remove)

    def _received(self, stream: Framed, frame: bytes) -> None:
        self.frames.append(frame)
        message = decode_to_shard(frame)
        if isinstance(message, Ask):
            stream.send(encode_link(ProcessAnswer(b'{"what":"%s"}' % message.what.encode())))
        else:
            stream.send(encode_link(Welcome(0, 7)))


@asynccontextmanager
async def listening(
    certificates: MemberCertificates, owner: Owner | None = None, port: int = 0
) -> AsyncIterator[MemberAddress]:
    owner = owner or Owner()
    listener = MemberListener(listen_for_members("127.0.0.1", port), certificates, owner.stream)
    task = asyncio.create_task(listener.run())
    try:
        yield MemberAddress(*listener.address, certificates.own)
    finally:
        task.cancel()
        await asyncio.wait([task])
        await until(lambda: not owner.open)


async def answer_of(address: MemberAddress, certificates: MemberCertificates) -> dict[str, Any]:
    answer = await exchange(
        address, Ask("status"), ProcessAnswer, PATIENCE_S, certificates=certificates
    )
    return {"json": answer.json}


def test_members_meet_and_know_who_is_there(authority: MembersAuthority, run: Run) -> None:
    async def test() -> None:
        one, two = authority.certificates(ONE), authority.certificates(TWO)
        async with listening(one) as address:
            assert await answer_of(address, two) == {"json": b'{"what":"status"}'}
            assert await answer_of(address, one) == {"json": b'{"what":"status"}'}
            big = Interest([f"app/{'x' * 200}-{n}" for n in range(500)])
            found = await exchange(address, big, Welcome, PATIENCE_S, certificates=two)
            assert found == Welcome(0, 7)

    run(test())


# Whom a listener refuses.


def other_ca(_: MembersAuthority) -> Issued:
    return CertificateAuthority.create().member(TWO, 30)


def other_cell(authority: MembersAuthority) -> Issued:
    return authority.ca.member(Member("member-2", "hamburg"), 30)


def wildcard(authority: MembersAuthority) -> Issued:
    return issued(authority.ca, f"*.{CELL}.roskva")


def common_name(authority: MembersAuthority) -> Issued:
    return issued(authority.ca, common_name=TWO.host_name)


def expired(authority: MembersAuthority) -> Issued:
    return issued(authority.ca, TWO.host_name, begins_in_days=-9, days=8)


def not_yet(authority: MembersAuthority) -> Issued:
    return issued(authority.ca, TWO.host_name, begins_in_days=2)


def for_servers(authority: MembersAuthority) -> Issued:
    return issued(authority.ca, TWO.host_name, purposes=(SERVER,))


def for_clients(authority: MembersAuthority) -> Issued:
    return issued(authority.ca, ONE.host_name, purposes=(CLIENT,))


def of_a_client(authority: MembersAuthority) -> Issued:
    return authority.ca.client("alice", 30)


def dialling(authority: MembersAuthority, shown: Issued | None) -> ssl.SSLContext:
    """As somebody would do it who believes anybody."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if shown is not None:
        files = authority.put("shown", shown)
        context.load_cert_chain(files.certificate, files.key)
    return context


async def said_to(address: MemberAddress, context: ssl.SSLContext | None, data: bytes) -> bytes:
    """All that comes back until it is over."""
    try:
        reader, writer = await asyncio.open_connection(address.host, address.port, ssl=context)
    except OSError:
        return b""
    try:
        writer.write(data)
        with suppress(OSError):
            return await reader.read()
        return b""
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


QUESTION: Final = with_length(encode_link(Ask("status")))


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (None, "it showed no certificate"),
        (other_ca, "a CA that is not known here"),
        (other_cell, f"is for member-2.hamburg.roskva, not for a member of the cell {CELL}"),
        (wildcard, f"is for *.{CELL}.roskva, not for a member"),
        (common_name, "is for no host name at all"),
        (of_a_client, "is for no host name at all"),
        (expired, "its certificate has expired"),
        (not_yet, "its certificate is not valid yet"),
        (for_servers, "for another purpose"),
    ],
    ids=str.split("none other-ca other-cell wildcard common-name client expired not-yet servers"),
)
def test_who_is_no_member_of_this_cell_is_not_heard(
    shown: Callable[[MembersAuthority], Issued] | None,
    words: str,
    authority: MembersAuthority,
    run: Run,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        owner = Owner()
        async with listening(authority.certificates(ONE), owner) as address:
            context = dialling(authority, shown and shown(authority))
            answer = await said_to(address, context, QUESTION)
            assert b"status" not in answer
            await until(lambda: words in caplog.text)
            assert owner.frames == []
            assert "status" in str(await answer_of(address, authority.certificates(TWO)))

    run(test())


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (QUESTION, "it does not speak TLS there"),
        (b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "it speaks HTTP, not TLS"),
        (bytes(1000), "TLS"),
        (b"\x16\x03\x01\x40\x00\x01" + bytes(5000), "hands were not shaken within"),
    ],
    ids=["plain frames", "http", "zeros", "half a hello"],
)
def test_what_is_no_tls_is_refused(
    data: bytes,
    words: str,
    authority: MembersAuthority,
    run: Run,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "HANDSHAKE_S", 0.2)

    async def test() -> None:
        owner = Owner()
        async with listening(authority.certificates(ONE), owner) as address:
            assert QUESTION not in await said_to(address, None, data)
            await until(lambda: words in caplog.text)
            assert owner.frames == []

    run(test())


def test_tls_1_2_is_not_spoken(
    authority: MembersAuthority,
    run: Run,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with listening(authority.certificates(ONE)) as address:
            context = dialling(authority, authority.ca.member(TWO, 30))
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            assert await said_to(address, context, QUESTION) == b""
            await until(lambda: "it does not speak TLS 1.3" in caplog.text)

    run(test())


def test_whoever_hangs_while_shaking_hands_is_cut_off(
    authority: MembersAuthority,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(streams, "HANDSHAKE_S", 0.2)

    async def test() -> None:
        async with listening(authority.certificates(ONE)) as address:
            assert await said_to(address, None, b"\x16\x03") == b""
            await until(lambda: "hands were not shaken within" in caplog.text)

    run(test())


def test_however_many_hang_a_member_comes_in(
    authority: MembersAuthority,
    run: Run,
) -> None:
    async def test() -> None:
        one, two = authority.certificates(ONE), authority.certificates(TWO)
        async with listening(one) as address:
            where = address.host, address.port
            held = [socket.create_connection(where) for _ in range(2 * streams.MAX_HANDSHAKES)]
            try:
                assert await answer_of(address, two)
                # Those that had to give way hear of it.
                await asyncio.to_thread(held[0].settimeout, PATIENCE_S)
                with suppress(ConnectionError):
                    assert await asyncio.to_thread(held[0].recv, 1) == b""
            finally:
                for each in held:
                    each.close()

    run(test())


def test_a_frame_that_is_too_large_ends_the_link(
    authority: MembersAuthority,
    run: Run,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        owner = Owner()
        async with listening(authority.certificates(ONE), owner) as address:
            context = dialling(authority, authority.ca.member(TWO, 30))
            too_large = (MAX_LINK_FRAME_BYTES + 1).to_bytes(4)
            assert await said_to(address, context, too_large + bytes(70_000)) == b""
            assert "too large" in caplog.text
            assert owner.frames == []

    run(test())


def test_garbage_of_any_kind_keeps_no_member_out(
    authority: MembersAuthority,
    run: Run,
) -> None:
    """Bytes that nearly are the beginning of TLS, cut off or changed anywhere."""
    one, two = authority.certificates(ONE), authority.certificates(TWO)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hello = two.dialling.wrap_bio(incoming, outgoing, server_hostname=ONE.host_name)
    with pytest.raises(ssl.SSLWantReadError):
        hello.do_handshake()
    sound, dice = outgoing.read(), Random(1)

    def mutated() -> bytes:
        data = bytearray(sound)
        for _ in range(dice.choice((0, 1, 3, 20))):
            data[dice.randrange(len(data))] = dice.randrange(256)
        if dice.random() < 0.5:
            del data[dice.randrange(len(data)) :]
        return bytes(data) + dice.randbytes(dice.choice((0, 0, 5, 3000)))

    async def test() -> None:
        owner = Owner()
        async with listening(one, owner) as address:
            before = _open_files()
            for at in range(0, FUZZED, 10):
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(min(10, FUZZED - at)):
                        tasks.create_task(_say_and_go(address, mutated()))
            assert owner.frames == []
            assert await answer_of(address, two)
            await until(lambda: _open_files() <= before + 1)

    run(test())


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


async def _say_and_go(address: MemberAddress, data: bytes) -> None:
    """Without waiting for an answer that may not come."""
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.write(data)
    with suppress(OSError):
        writer.write_eof()
        await writer.drain()
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


# Whom a dialler does not believe.


@pytest.mark.parametrize(
    ("shown", "words"),
    [
        (lambda authority: authority.ca.member(TWO, 30), f"is for {TWO.host_name}, not for"),
        (lambda authority: CertificateAuthority.create().member(ONE, 30), "that is not known here"),
        (wildcard, f"is for *.{CELL}.roskva, not for {ONE.host_name}"),
        (
            lambda authority: issued(authority.ca, ONE.host_name, begins_in_days=-9, days=8),
            "its certificate has expired",
        ),
        (for_clients, "for another purpose"),
    ],
    ids=str.split("another other-ca wildcard expired clients"),
)
def test_who_is_not_the_member_that_was_dialled_is_told_nothing(
    shown: Callable[[MembersAuthority], Issued],
    words: str,
    authority: MembersAuthority,
    run: Run,
) -> None:
    async def test() -> None:
        files = authority.put("server", shown(authority))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(files.certificate, files.key)
        heard = bytearray()

        async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                heard.extend(await reader.read())
            writer.close()

        server = await asyncio.start_server(hear, "127.0.0.1", 0, ssl=context)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(NoLink) as refused:
                await answer_of(MemberAddress("127.0.0.1", port, ONE), authority.certificates(TWO))
            assert words in str(refused.value)
            assert bytes(heard) == b""

    run(test())


def test_a_port_without_tls_or_that_says_nothing_is_no_member(
    authority: MembersAuthority,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "HANDSHAKE_S", 0.2)

    async def test() -> None:
        for said, words in (
            (b"hello, who is there?\r\n", "does not speak TLS"),
            (b"", "not shaken"),
        ):

            async def answer(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: bytes = said
            ) -> None:
                writer.write(said)
                with suppress(OSError):
                    await reader.read()
                writer.close()

            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            async with server:
                port = server.sockets[0].getsockname()[1]
                address = MemberAddress("127.0.0.1", port, ONE)
                with pytest.raises(NoLink, match=words):
                    await answer_of(address, authority.certificates(TWO))

    run(test())


def test_without_certificates_nobody_elsewhere_is_asked(
    run: Run,
) -> None:
    async def test() -> None:
        told = await ask(MemberAddress("127.0.0.1", 9, ONE), Ask("status"), PATIENCE_S)
        assert "no certificate here" in told["error"]
        stream = Framed(lambda _: None, lambda _, __: None, lambda _: None)
        with pytest.raises(NoLink):
            await connect(MemberAddress("127.0.0.1", 9, ONE), stream)

    run(test())


# Both ends, over time.


def test_a_dialler_hears_why_it_was_refused(
    authority: MembersAuthority,
    run: Run,
) -> None:
    async def test() -> None:
        hamburg = Member("member-2", "hamburg")
        stranger = MembersAuthority(authority.place / "others")
        stranger.trust(authority.ca, stranger.ca)  # it believes ours, and we do not believe it
        async with listening(authority.certificates(ONE)) as address:
            for certificates, words in (
                (authority.certificates(hamburg), f"not for a member of the cell {CELL}"),
                (stranger.certificates(TWO), "if it does not take our certificate, its log says"),
            ):
                with pytest.raises(NoLink, match=words):
                    await answer_of(address, certificates)

    run(test())


def test_new_files_count_from_the_next_link_on_and_open_links_stay(
    authority: MembersAuthority,
    run: Run,
) -> None:
    async def test() -> None:
        one, two = authority.certificates(ONE), authority.certificates(TWO)
        owner = Owner()
        async with listening(one, owner) as address:
            answers: asyncio.Queue[bytes] = asyncio.Queue()
            stays = Framed(
                lambda _: None, lambda _, frame: answers.put_nowait(frame), lambda _: None
            )
            await connect(address, stays, two)
            old, new = authority.ca, CertificateAuthority.create()

            # As one changes a CA without a pause: believe both, show the new, forget the old.
            authority.trust(old, new)
            for each in (one, two):
                each.reload()
            authority.ca = new
            authority.files(TWO)
            two.reload()
            assert await answer_of(address, two)
            authority.files(ONE)
            one.reload()
            assert await answer_of(address, two)
            authority.trust(new)
            for each in (one, two):
                each.reload()
            assert await answer_of(address, two)

            authority.ca = old
            authority.trust(old, new)
            with pytest.raises(NoLink, match="its log says why"):
                await answer_of(address, authority.certificates(Member("late", CELL)))
            stays.send(encode_link(Ask("now")))
            assert b"now" in await answers.get()
            stays.drop()

    run(test())


def test_a_link_to_a_shard_is_opened_again_and_says_what_is_wrong_meanwhile(
    authority: MembersAuthority,
    run: Run,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    async def test() -> None:
        one, two = authority.certificates(ONE), authority.certificates(TWO)
        events: list[Any] = []

        def step(event: Any) -> None:
            events.append(event)
            if isinstance(event, LinkUp):
                link.end.send(Interest(["app/x"]))

        async with listening(one) as address:
            link = SocketLink(0, address, step, two)
            running = asyncio.create_task(link.run())
            await until(lambda: FromLink(0, Welcome(0, 7)) in events)
            link.end.drop()
            await until(lambda: events.count(FromLink(0, Welcome(0, 7))) == 2)
            assert events[:4] == [
                *(LinkUp(0), FromLink(0, Welcome(0, 7))),
                *(LinkDown(0), LinkUp(0)),
            ]
        # Another takes the port, and then the owner comes back.
        async with listening(authority.certificates(Member("other", CELL)), port=address.port):
            await until(lambda: "is for other.berlin.roskva" in caplog.text)
        before = len(events)
        async with listening(one, port=address.port):
            await until(lambda: len(events) > before)
            await until(lambda: events[-1] == FromLink(0, Welcome(0, 7)))
        running.cancel()
        await asyncio.wait([running])
        link.end.drop()
        await until(lambda: events[-1] == LinkDown(0))

    run(test())
