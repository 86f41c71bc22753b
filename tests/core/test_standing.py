"""Who may stay: tokens carry who it is and since when, and do not outlive their generation."""

from typing import Any

import pytest
from tests.core.pair import Pair
from tests.core.registrar_side import KEYS

from roskva.core.effects import (
    FromConnection,
    RegistrationFailure,
    Reloaded,
    Withdrawn,
)
from roskva.core.identity import Standing, TokenKeys
from roskva.core.registrar import Registrar
from roskva.model import NOBODY, Principal
from roskva.wire.messages import Hello

ALICE = Principal("alice", "app", 100)
KEY = Principal("key-1", "app", key=True)


@pytest.mark.parametrize(
    ("standing", "who", "holds"),
    [
        (Standing(), NOBODY, True),
        (Standing(), ALICE, True),
        (Standing(keyed=True), ALICE, False),
        (Standing(keyed=True, apps={"app": 0}), ALICE, True),
        (Standing(keyed=True, apps={"app": 0}), NOBODY, False),
        (Standing(keyed=True, apps={"app": 0}), Principal("", "app", 100), False),
        (Standing(keyed=True, apps={"app": 0}), Principal("alice", None, 100), False),
        (Standing(keyed=True, apps={"other": 0}), ALICE, False),
        (Standing(keyed=True, apps={"app": 100}), ALICE, True),
        (Standing(keyed=True, apps={"app": 101}), ALICE, False),
        (Standing(keyed=True, apps={"app": 0}, principals={"app": {"alice": 100}}), ALICE, True),
        (Standing(keyed=True, apps={"app": 0}, principals={"app": {"alice": 101}}), ALICE, False),
        (Standing(keyed=True, apps={"app": 101}, principals={"app": {"alice": 5}}), ALICE, False),
        (Standing(keyed=True, apps={"app": 0}, principals={"app": {"bob": 101}}), ALICE, True),
        (Standing(keyed=True, apps={"app": 0}), KEY, False),
        (Standing(keyed=True, keys={"key-1": "app"}), KEY, True),
        (Standing(keyed=True, keys={"key-1": "other"}), KEY, False),
    ],
)
def test_a_principal_holds_if_its_credential_is_of_its_generation(
    standing: Standing, who: Principal, holds: bool
) -> None:
    assert standing.holds(who) == holds


def keyed(generation: int = 0) -> Standing:
    return Standing(keyed=True, apps={"app": generation})


def pair_with(principal: Principal, **options: Any) -> Pair:
    """A registrar that takes everybody who names an app for this one."""
    pair = Pair(**options)
    side = pair.registrar
    plain = side.step

    def step(event: Any) -> None:
        if isinstance(event, FromConnection) and isinstance(event.message, Hello):
            event = FromConnection(event.conn, event.message, principal=principal)
        plain(event)

    side.step = step  # type: ignore[method-assign]
    return pair


def session_of(core: Registrar) -> Any:
    [session] = core.sessions.values()
    return session


def test_a_client_that_comes_back_by_its_token_is_who_it_was() -> None:
    pair = pair_with(ALICE)
    pair.registrar.step(Reloaded(KEYS, keyed()))
    client = pair.client()
    client.register("app/x")
    pair.run(1)
    assert session_of(pair.registrar.core).principal == ALICE
    first = client.core.client_id
    client.lose_connection()
    pair.run(5)
    assert client.core.client_id == first
    assert session_of(pair.registrar.core).principal == ALICE


def test_raising_a_generation_ends_sessions_and_tokens() -> None:
    pair = pair_with(ALICE)
    pair.registrar.step(Reloaded(KEYS, keyed()))
    client = pair.client()
    client.register("app/x")
    pair.run(1)
    before = client.core.client_id
    pair.registrar.step(Reloaded(KEYS, keyed(100)))
    pair.run(1)
    assert pair.registrar.core.counters["revoked"] == 0
    pair.registrar.step(Reloaded(KEYS, keyed(101)))
    pair.run(20)
    assert pair.registrar.core.counters["revoked"] == 1
    assert not pair.registrar.core.sessions, "its credential is still of the old generation"
    pair.registrar.step(Reloaded(KEYS, keyed(50)))
    pair.run(300)
    assert client.core.client_id != before
    assert session_of(pair.registrar.core).principal == ALICE
    assert set(session_of(pair.registrar.core).registered) == {"app/x"}


def test_whoever_came_before_there_were_keys_has_to_come_again() -> None:
    pair = Pair()
    client = pair.client()
    client.register("app/x")
    pair.run(1)
    pair.registrar.step(Reloaded(KEYS, keyed()))
    pair.run(5)
    assert not pair.registrar.core.sessions
    assert pair.registrar.core.counters["rejected_tokens"] >= 1


def test_tokens_of_the_last_key_are_accepted_and_those_before_are_not() -> None:
    pair = Pair()
    client = pair.client()
    client.register("app/x")
    pair.run(1)
    before = client.core.client_id
    second, third = b"2" * 32, b"3" * 32
    for keys in (
        TokenKeys({2: second, **KEYS.keys}, 2),
        TokenKeys({3: third, 2: second}, 3),
    ):
        pair.registrar.step(Reloaded(keys, Standing()))
        client.lose_connection()
        pair.run(5)
        assert client.core.client_id == before, "each reconnect brings a token of the new key"
    assert pair.registrar.core.counters["rejected_tokens"] == 0
    pair.registrar.step(Reloaded(TokenKeys({9: b"9" * 32}, 9), Standing()))
    client.lose_connection()
    pair.run(5)
    assert client.core.client_id != before
    assert pair.registrar.core.counters["rejected_tokens"] == 1


def test_a_token_is_replaced_before_it_expires() -> None:
    pair = Pair(token_lifetime=1000.0)
    client = pair.client()
    client.register("app/x")
    pair.run(1)
    identity, tokens = client.core.client_id, {client.core.token}
    for _ in range(40):
        pair.run(100)
        tokens.add(client.core.token)
        assert client.core.token is not None
        wall_s = int(pair.registrar.core.admission.wall_s + pair.now)
        claims = KEYS.open(client.core.token, wall_s + 300)
        assert claims is not None, "it would be good for a while yet"
        assert claims.client == identity
    assert pair.registrar.core.counters["refreshed_tokens"] >= 6
    assert len(tokens) == pair.registrar.core.counters["refreshed_tokens"] + 1
    assert len({token[1:13] for token in tokens if token}) == len(tokens), "a nonce was used twice"
    client.lose_connection()
    pair.run(5)
    assert client.core.client_id == identity
    assert pair.registrar.core.counters["rejected_tokens"] == 0


def test_what_could_not_be_asked_may_be_tried_again() -> None:
    pair = Pair()
    client = pair.client()
    side = pair.registrar
    plain = side.step
    undecided = frozenset({"app/x"})

    def step(event: Any) -> None:
        if isinstance(event, FromConnection):
            event = FromConnection(event.conn, event.message, undecided=undecided)
        plain(event)

    side.step = step  # type: ignore[method-assign]
    client.register("app/x", "app/y")
    pair.run(1)
    failures = [event for event in client.events if isinstance(event, RegistrationFailure)]
    assert failures == [RegistrationFailure("app/x", True, "unavailable")]
    undecided = frozenset()
    client.register("app/x")
    pair.run(1)
    assert set(session_of(side.core).registered) == {"app/x", "app/y"}


def test_a_registration_can_be_withdrawn() -> None:
    pair = Pair()
    client = pair.client()
    client.register("app/x", "app/y")
    pair.run(1)
    conn = session_of(pair.registrar.core).conn
    pair.registrar.step(Withdrawn(conn, "app/x"))
    pair.registrar.step(Withdrawn(conn, "app/never"))
    pair.registrar.step(Withdrawn(-1, "app/x"))
    pair.run(5)
    failures = [event for event in client.events if isinstance(event, RegistrationFailure)]
    assert failures == [RegistrationFailure("app/x", False, "unauthorised")]
    [cells] = pair.shard.cells.values()
    assert set(cells) == {"app/y"}
    pair.publish("app/x", 5)
    pair.run(100)
    assert client.told("app/x") == [None], "when it was registered, and never again"
