"""What comes late, or comes again: an old session's write, a number, a registration."""

from tests.core.lone import IDENTITY, SESSION, LoneClient
from tests.core.pair import Pair

from roskva.core.effects import (
    ClientRow,
    Effect,
    FromLink,
    LinkUp,
    LoadClient,
    Loaded,
    NotifyUnknown,
    Opened,
    Received,
    Register,
    SendLink,
    Unregister,
)
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.core.rows import Rows
from roskva.core.token import Claims, TokenKeys
from roskva.errors import Fenced
from roskva.wire.links import OpenSession, Registered, RowRefused, SessionOpened, WriteRow
from roskva.wire.messages import PROTOCOL, Hello

X = "app/x"
CLIENT = b"c" * 16


def test_a_late_write_of_an_old_session_leaves_nothing_in_memory() -> None:
    """Nobody holds the newer session any more, so nobody would ever close it."""
    rows = Rows(1, 0, 0.0)
    write = WriteRow(0, CLIENT, 5, [Registered(X, 3, 1)])
    (load,) = rows.step(FromLink("link", write), 0.0)
    assert isinstance(load, LoadClient)
    (refused,) = rows.step(Loaded(load.id, ClientRow(9, "", [])), 0.0)
    assert refused == SendLink("link", RowRefused(CLIENT, 5, Fenced.code))
    assert not rows.holders


def test_a_session_number_given_out_again_fences_the_session_that_had_it() -> None:
    keys = TokenKeys({1: bytes(32)}, current=1)
    registrar = Registrar(RegistrarConfig("r", 1), keys, 0, 0.0)
    registrar.step(LinkUp(0), 0.0)
    for conn in ("first", "second"):
        token = keys.seal(Claims("app", CLIENT, "", "local", 1 << 40), bytes(12))
        registrar.step(Opened(conn, bytes(28)), 0.0)
        effects = registrar.step(Received(conn, Hello(PROTOCOL, b"n", None, token, "")), 0.0)
        registrar.step(FromLink(0, SessionOpened(_request(effects), 7)), 0.0)
    assert list(registrar.conns) == ["second"]
    assert registrar.sessions[CLIENT, 7].conn == "second"


def _request(effects: list[Effect]) -> int:
    return next(
        effect.message.request
        for effect in effects
        if isinstance(effect, SendLink) and isinstance(effect.message, OpenSession)
    )


def test_a_resumed_client_that_leaves_an_object_and_returns_is_told_to_look() -> None:
    """The server may never hear that it left, and counts as acked what an earlier life was told."""
    client = LoneClient(identity=IDENTITY)
    client.step(Register(X, None))
    client.greet()
    assert client.core.session == SESSION
    client.step(Unregister(X))
    client.step(Register(X, None))
    assert [event.object for event in client.events if isinstance(event, NotifyUnknown)] == [X]


def test_so_is_one_that_does_both_before_it_has_restated_anything() -> None:
    client = LoneClient(identity=IDENTITY)
    client.step(Unregister(X))
    client.step(Register(X, None))
    assert [event.object for event in client.events if isinstance(event, NotifyUnknown)] == [X]


def test_a_declared_version_above_what_is_known_is_answered_by_unknown() -> None:
    """The cache is from before a loss or a reset, which a new registration does not show."""
    pair = Pair()
    pair.publish(X, 3)
    client = pair.client()
    client.register(X, version=1000)
    pair.run(5)
    assert client.told(X) == [None]
