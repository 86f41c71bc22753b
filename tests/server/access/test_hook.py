"""The hook: only a yes in time is a yes."""

import time
from pathlib import Path

import httpx
import pytest
from tests.loops import in_loop
from tests.server.access.settings import access, app, issuer_at, judged
from tests.serving.backend import running_backend

from roskva.config import Config
from roskva.errors import Unavailable
from roskva.model import Principal
from roskva.server.access import hook
from roskva.server.access.authority import ALLOWED, Verdict
from roskva.server.access.hook import Hook, HookSettings
from roskva.server.access.keyed import KeyedAuthority

ALICE = Principal("alice", "contacts", 1)
X, Y = "contacts/x", "contacts/y"


def settings(url: str, timeout_s: float = 5.0, cache_s: float = 10.0) -> HookSettings:
    return HookSettings("contacts", url, timeout_s, cache_s)


@in_loop
async def test_it_is_asked_who_wants_what_and_says_which(tmp_path: Path) -> None:
    with running_backend() as backend:
        backend.allows = lambda name: name == "x"
        found = access(contacts=app(issuer_at(tmp_path), hook=backend.url))
        verdict = await judged(found.may_register(ALICE, [X, Y]))
        assert verdict == Verdict(denied=frozenset([Y]))
        [question] = backend.asked
        assert question == {"app": "contacts", "principal": "alice", "register": ["x", "y"]}
        await found.close()


@in_loop
async def test_what_patterns_forbid_is_not_asked(tmp_path: Path) -> None:
    with running_backend() as backend:
        rules = app(issuer_at(tmp_path), hook=backend.url, register=["x"])
        found = access(contacts=rules)
        verdict = await judged(found.may_register(ALICE, [X, Y, "other/x"]))
        assert verdict == Verdict(denied=frozenset([Y, "other/x"]))
        assert [question["register"] for question in backend.asked] == [["x"]]
        await found.close()


@in_loop
async def test_a_yes_is_remembered_for_its_time_and_a_no_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running_backend() as backend:
        async with httpx.AsyncClient() as http:
            asked = Hook(settings(backend.url, cache_s=60.0), http)
            backend.allows = lambda name: name == "x"
            await asked.ask("register", ALICE, [X, Y])
            assert asked.unknown("register", ALICE, [X, Y]) == [Y]
            assert asked.unknown("register", Principal("bob", "contacts"), [X]) == [X]

            later = time.monotonic() + 61.0
            monkeypatch.setattr(time, "monotonic", lambda: later)
            assert asked.unknown("register", ALICE, [X]) == [X]
            monkeypatch.undo()

            forgetful = Hook(settings(backend.url, cache_s=0.0), http)
            await forgetful.ask("register", ALICE, [X])
            assert forgetful.unknown("register", ALICE, [X]) == [X]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, None),
        (302, None),
        (403, None),
        (200, b""),
        (200, b"yes"),
        (200, b'{"allow": true}'),
        (200, b'{"allow": [1]}'),
        (200, b"\xff"),
        (200, b'{"allow": []}' + b" " * (2 << 20)),
    ],
)
@in_loop
async def test_whatever_else_it_says_is_no_answer(status: int, body: bytes | None) -> None:
    with running_backend() as backend:
        backend.status, backend.body = status, body
        async with httpx.AsyncClient() as http:
            with pytest.raises(Unavailable):
                await Hook(settings(backend.url), http).ask("register", ALICE, [X])


@in_loop
async def test_names_that_were_not_asked_for_are_not_allowed() -> None:
    with running_backend() as backend:
        backend.body = b'{"allow": ["x", "secret"]}'
        async with httpx.AsyncClient() as http:
            asked = Hook(settings(backend.url), http)
            assert await asked.ask("register", ALICE, [X, Y]) == frozenset([X])
            assert asked.unknown("register", ALICE, ["contacts/secret"]) == ["contacts/secret"]


@in_loop
async def test_a_slow_answer_is_none(tmp_path: Path) -> None:
    with running_backend() as backend:
        backend.delay_s = 0.5
        rules = app(issuer_at(tmp_path), hook=backend.url, hook_timeout_ms=20)
        found = access(contacts=rules)
        verdict = await judged(found.may_register(ALICE, [X]))
        assert verdict == Verdict(undecided=frozenset([X]))
        await found.close()


@in_loop
async def test_a_backend_that_fails_is_left_alone_for_a_while() -> None:
    with running_backend() as backend:
        backend.status = 500
        async with httpx.AsyncClient() as http:
            asked = Hook(settings(backend.url), http)
            for _ in range(20):
                with pytest.raises(Unavailable):
                    await asked.ask("register", ALICE, [X])
            assert len(backend.asked) == hook._FAILURES

            asked._closed_until = 0.0  # as if the time were over
            with pytest.raises(Unavailable):
                await asked.ask("register", ALICE, [X])
            with pytest.raises(Unavailable):
                await asked.ask("register", ALICE, [X])
            assert len(backend.asked) == hook._FAILURES + 1, "one question to try it with"

            backend.status = 200
            asked._closed_until = 0.0
            for _ in range(3):
                assert await asked.ask("register", ALICE, [X]) == frozenset([X])


@in_loop
async def test_many_names_are_asked_for_in_parts() -> None:
    with running_backend() as backend:
        keys = [f"contacts/{i}" for i in range(2500)]
        async with httpx.AsyncClient() as http:
            assert await Hook(settings(backend.url), http).ask(
                "register", ALICE, keys
            ) == frozenset(keys)
        assert [len(question["register"]) for question in backend.asked] == [1000, 1000, 500]


def test_a_hook_outlives_a_reload_that_does_not_concern_it(tmp_path: Path) -> None:
    issuer = issuer_at(tmp_path)
    rules = app(issuer, hook="https://backend")
    found = KeyedAuthority(Config(apps={"contacts": rules}))
    [before] = found._hooks.values()
    found.reload(Config(apps={"contacts": rules, "other": app()}))
    assert list(found._hooks.values()) == [before]
    found.reload(Config(apps={"contacts": app(issuer)}))
    assert found._hooks == {}
    assert found.may_register(ALICE, [X]) is ALLOWED


@in_loop
async def test_it_is_asked_who_publishes_what_apart_from_registering(tmp_path: Path) -> None:
    with running_backend() as backend:
        backend.allows = lambda name: name == "x"
        rules = app(
            issuer_at(tmp_path), hook=backend.url, publish=["**"], authorise_at_publish=True
        )
        found = access(contacts=rules)
        assert found.asked_at_publish == {"contacts"}
        await judged(found.may_register(ALICE, [X]))
        verdict = await judged(found.confirmed(ALICE, [X, Y]))
        assert verdict == Verdict(denied=frozenset([Y]))
        assert backend.asked[1] == {"app": "contacts", "principal": "alice", "publish": ["x", "y"]}
        assert found.confirmed(ALICE, [X]) is ALLOWED, "a yes is remembered"
        assert found.confirmed(Principal("key-1", "contacts", key=True), [Y]) is ALLOWED
        await found.close()
