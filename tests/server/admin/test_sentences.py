"""Sentences, over every kind of situation; `tests/serving/test_explain.py` stages them for real."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from roskva.server.admin.sentences import explain_client, explain_object, span
from roskva.wire.admin import ClientNow, NoteNow, ObjectAudit, ObjectNow

NOW = 1_000_000.0


def client(
    presence: str = "offline",
    owner_answers: bool = True,
    blind_owners: Sequence[str] = (),
    looked_at: int | None = None,
    **at: Any,
) -> str:
    found = ClientNow(client="00", presence=presence, **at)  # type: ignore[arg-type]
    return explain_client(
        found,
        NOW,
        owner="state-0",
        owner_answers=owner_answers,
        blind_owners=blind_owners,
        looked_at=looked_at,
    )


def online(**at: Any) -> str:
    return client("online", channel=at.pop("channel", "websocket"), **at)


def object_(stands: ObjectNow | None, **at: Any) -> str:
    found = ObjectNow() if stands is None else stands
    return explain_object(replace(found, process="state-0", **at), NOW)


def stands(**at: Any) -> ObjectNow:
    return ObjectNow(answers=True, **at)


def note(code: str, key: str = "", ago: float = 5.0) -> NoteNow:
    return NoteNow(NOW - ago, code, key, "registrar-0")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.2, "less than 1 s"), (5, "5 s"), (119, "119 s"), (600, "10 min"), (3 * 3600, "3 h")],
)
def test_spans_are_short(seconds: float, words: str) -> None:
    assert span(seconds) == words


def test_days_begin_when_hours_are_many() -> None:
    assert span(47 * 3600) == "47 h"
    assert span(48 * 3600) == "2 days"


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ({}, "registered for nothing."),
        ({"fresh": 1}, "it has acked the latest of its object, and has nothing to be told."),
        ({"fresh": 3}, "it has acked the latest of all 3 objects, and has nothing to be told."),
        ({"fresh": 1, "pending": 2}, "will be told 2 objects when it returns."),
        ({"pending": 1, "unknown": 1}, "told 2 objects when it returns, 1 of them as unknown."),
        ({"unknown": 2}, "told 2 objects when it returns, all of them as unknown."),
    ],
)
def test_who_is_away(counts: dict[str, int], words: str) -> None:
    said = client(seen_at=NOW - 3 * 3600, counts=counts)
    assert said.startswith("Offline for 3 h; ")
    assert said.endswith(words)


def test_who_is_not_known() -> None:
    assert client("nobody").startswith("No client has this id")
    assert "registrar-1 does not answer" in client("nobody", silent=["registrar-1"])
    assert "until state-0 is back" in client("hidden", owner_answers=False)


def test_who_was_looked_for_in_some_rows_only() -> None:
    said = client("nobody", looked_at=20_000)
    assert "none of the 20,000 clients whose rows were looked through; there are more" in said
    assert "over MQTT the client id" in said
    assert "may be others" in client(looked_at=20_000)


def test_several_with_the_same_id_are_named() -> None:
    assert "Others whose application gave the same id: ab, cd." in client(others=["ab", "cd"])
    assert "same id" not in client()


def test_who_is_online() -> None:
    assert online(counts={"fresh": 2}).startswith("Fresh: online over websocket")
    assert "registered for nothing" in online()
    assert "within a minute" in online(counts={"pending": 1})
    assert "when it reconnects" in online(counts={"pending": 1}, channel="mqtt")
    assert "the version is unknown" in online(counts={"unknown": 1})
    assert "slow reader" in online(counts={"slow": 1}, slow=True)
    assert "not missed anything" in online(counts={"fresh": 1}, slow=True)
    assert "2 registrations are on the way" in online(counts={"fresh": 2}, unsaved=2)
    assert "state-0 keeps it and does not answer" in online(opening=True, owner_answers=False)


def test_nobody_is_called_fresh_whose_shard_does_not_answer() -> None:
    said = online(counts={"blind": 1, "fresh": 2}, blind_owners=["state-1"])
    assert "Fresh" not in said
    assert "What 1 of its 3 objects stands at is not known: state-1 does not answer" in said


def test_what_was_told_lately() -> None:
    fresh = {"fresh": 1}
    assert "Fenced 5 s ago" in online(counts=fresh, notes=[note("fenced")])
    assert "two programs" in online(counts=fresh, notes=[note("fenced", ago=i) for i in range(3)])
    assert "Fenced" not in online(counts=fresh, notes=[note("fenced", ago=3600)])
    refused = [note("unauthorised", f"a/{i}") for i in range(5)]
    assert "a/0, a/1 and a/2 and 2 more" in online(counts=fresh, notes=refused)
    assert "backend could not be asked" in online(counts=fresh, notes=[note("unavailable", "a/b")])
    assert "token was rejected" in client(counts=fresh, notes=[note("token_rejected")])


def test_objects() -> None:
    known = stands(version="7", published_at=NOW - 30)
    assert object_(known) == (
        "Stands at version 7 for 30 s. Nobody who is online is registered for it."
    )
    some = object_(known, sessions=3, fresh=1, pending=2, slow=1)
    assert some.endswith("1 of 3 sessions are fresh, 2 pending, 1 of them slow readers.")
    assert "lost something after version 7" in object_(stands(lower_bound="7"))
    assert "It was reset" in object_(stands(reset=True))
    assert "Nothing was published" in object_(stands())
    assert "catching up" in object_(stands(version="7", caught_up=False))
    assert "2 sessions will be compared then" in object_(None, sessions=2)
    audited = object_(
        known, audit=ObjectAudit(NOW - 7200, {"pending": 4, "fresh": 5}), silent=["registrar-1"]
    )
    assert "At the last audit, 2 h ago, 4 of 9 clients, online or not, had yet to" in audited
    assert "registrar-1 does not answer" in audited
