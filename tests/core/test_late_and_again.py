"""What comes late, or comes again: an old session's write, a number, a registration."""

from tests.core.lone import IDENTITY, SESSION, LoneClient
from tests.core.pair import Pair, knowing

from roskva.core.effects import (
    Apply,
    ClientRow,
    Effect,
    FeedEnd,
    FromConnection,
    FromLink,
    LinkUp,
    LoadClient,
    Loaded,
    LoadObjects,
    NotifyUnknown,
    ObjectRow,
    Opened,
    Persist,
    Persisted,
    PutShard,
    Register,
    RegistrationFailure,
    SendLink,
    Tick,
    Unregister,
)
from roskva.core.identity import Claims, TokenKeys
from roskva.core.matcher import Matcher, MatcherConfig
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.core.rows import Rows
from roskva.errors import Fenced
from roskva.model import Update, reset_mark
from roskva.wire.links import (
    DIGEST_KIND,
    LINK_PROTOCOL,
    Interest,
    LinkHello,
    OpenSession,
    Pushes,
    Registered,
    RowRefused,
    SessionOpened,
    WriteRow,
)
from roskva.wire.messages import PROTOCOL, Hello

X = "app/x"
CLIENT = b"c" * 16
LINEAGE = 77


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
        effects = registrar.step(FromConnection(conn, Hello(PROTOCOL, b"n", None, token, "")), 0.0)
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


def test_who_may_not_have_an_object_any_more_loses_it_with_all_it_acked() -> None:
    """It says that its cache fell back to 1, is refused, and comes back: 9 has to be told again."""
    pair, client = knowing(X, 9)
    pair.registrar.denied = frozenset({X})
    client.register(X, version=1)
    pair.run(5)
    assert RegistrationFailure(X, False, "unauthorised") in client.events
    assert not any(pair.shard.cells.values())
    pair.registrar.denied = frozenset()
    client.clear()
    client.register(X)
    pair.run(5)
    assert client.told(X)[-1] == 9


def test_a_reset_from_beyond_a_gap_voids_what_comes_from_before_it() -> None:
    """And comes again in its turn: nothing is told twice, and nothing older."""
    matcher = _interested()
    early = [(3, Update(X, reset_mark(7), reset=True)), (4, Update(X, 24))]
    told = _told(matcher.step(Apply(LINEAGE, 3, 4, early), 0.0))
    assert told[-1] == 24
    for offset, update in [(1, Update(X, 1)), (2, Update(X, 1000)), *early]:
        assert not _told(matcher.step(Apply(LINEAGE, offset, offset, [(offset, update)]), 0.0))
    assert matcher.objects[X].version() == 24
    assert matcher.applied == 4
    assert _told(matcher.step(Apply(LINEAGE, 5, 5, [(5, Update(X, 25))]), 0.0)) == [25]


def test_versions_are_persisted_after_a_while_or_at_once_for_who_waits() -> None:
    matcher = _interested(flush_delay=0.5)
    assert not _persists(matcher.step(Apply(LINEAGE, 1, 1, [(1, Update(X, 1))]), 10.0))
    assert matcher.next_deadline() == 10.5
    assert not _persists(matcher.step(Apply(LINEAGE, 2, 2, [(2, Update(X, 2))]), 10.4))
    (persist,) = _persists(matcher.step(Tick(), 10.5))
    assert PutShard(1, LINEAGE, 2) in persist.writes
    matcher.step(Persisted(persist.id), 10.6)
    assert _persists(matcher.step(Apply(LINEAGE, 3, 3, [(3, Update(X, 3))], "bridge"), 10.7))


def _interested(flush_delay: float = 0.0) -> Matcher:
    """A matcher that a registrar has asked about X."""
    config = MatcherConfig(0, 1, link_timeout=1e9, flush_delay=flush_delay)
    matcher = Matcher(config, PutShard(1, LINEAGE, 0))
    matcher.step(FeedEnd(LINEAGE, 0, 5), 0.0)
    matcher.step(FromLink("link", LinkHello(LINK_PROTOCOL, "r", 0, 1, DIGEST_KIND)), 0.0)
    effects = matcher.step(FromLink("link", Interest([X])), 0.0)
    load = next(effect for effect in effects if isinstance(effect, LoadObjects))
    matcher.step(Loaded(load.id, {X: ObjectRow()}), 0.0)
    return matcher


def _told(effects: list[Effect]) -> list[int]:
    said = [effect.message for effect in effects if isinstance(effect, SendLink)]
    told = [message.pushes for message in said if isinstance(message, Pushes)]
    return [push.version for pushes in told for push in pushes]


def _persists(effects: list[Effect]) -> list[Persist]:
    return [effect for effect in effects if isinstance(effect, Persist)]


def test_acks_wait_for_the_link_to_the_row() -> None:
    pair, client = knowing(X, 1)
    pair.run(10)
    pair.publish(X, 2)
    pair.run_until(lambda: client.told(X)[-1:] == [2])
    pair.registrar.cut()
    pair.run(30)
    pair.registrar.join()
    pair.run(30)
    (cells,) = pair.shard.cells.values()
    assert cells[X].acked == 2
