"""Backends of apps (hooks, sets of keys) that are hostile, or slow, or somewhere else by now: the
node serves others, and tells them nothing but the question."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.loops import in_loop, until
from tests.security.hostile import ANSWERS, HostileBackend, hostile_backend
from tests.server.access.settings import access, app, identified, issuer_at, judged
from tests.serving.backend import running_backend
from tests.serving.keyed import Issuer, KeyedNode, publish_key
from tests.serving.nodes import PATIENCE_S

from roskva.errors import Unauthorised, Unavailable
from roskva.model import Principal
from roskva.server.access.authority import Verdict
from roskva.server.access.hook import OF_ONE

ALICE, BOB = Principal("alice", "contacts", 1), Principal("bob", "contacts", 1)
X: Final = "contacts/x"
SECRET, HASHED = publish_key()


@pytest.mark.parametrize("kind", ANSWERS)
@in_loop
async def test_a_hostile_answer_of_a_hook_is_no_yes(tmp_path: Path, kind: str) -> None:
    with hostile_backend() as backend:
        backend.answer = ANSWERS[kind]
        rules = app(issuer_at(tmp_path), hook=backend.url, hook_timeout_ms=300)
        found = access(contacts=rules)
        verdict = await judged(found.may_register(ALICE, [X]))
        assert verdict == Verdict(undecided=frozenset([X]))
        await found.close()


@pytest.mark.parametrize("kind", [kind for kind in ANSWERS if kind not in ("dripping", "silent")])
@in_loop
async def test_hostile_keys_are_no_keys(tmp_path: Path, kind: str) -> None:
    with hostile_backend() as backend:
        backend.answer = ANSWERS[kind]
        found = access(contacts=app(jwks=backend.url))
        token = issuer_at(tmp_path).jwt("alice", "contacts")
        with pytest.raises(Unavailable):
            await identified(found.identify("contacts", token))
        await found.close()


@in_loop
async def test_what_is_packed_is_never_unpacked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with hostile_backend() as backend:
        backend.answer = ANSWERS["a bomb"]
        rules = app(issuer_at(tmp_path), hook=backend.url, hook_timeout_ms=10_000)
        found = access(contacts=rules)
        await judged(found.may_register(ALICE, [X]))
        assert "its answer is packed" in caplog.text
        assert b"accept-encoding: identity" in backend.requests[0].lower()
        await found.close()


@in_loop
async def test_others_have_their_turn_while_an_answer_comes_in_small_parts(tmp_path: Path) -> None:
    with hostile_backend() as backend:
        backend.answer = ANSWERS["in small parts"]
        rules = app(issuer_at(tmp_path), hook=backend.url, hook_timeout_ms=2_000)
        found = access(contacts=rules)
        asked = asyncio.ensure_future(judged(found.may_register(ALICE, [X])))
        turns = 0
        while not asked.done():
            turns += bool(backend.requests)
            await asyncio.sleep(0)
        assert turns > 1000
        await found.close()


@in_loop
async def test_a_redirect_is_not_followed_and_cookies_are_not_kept(tmp_path: Path) -> None:
    with hostile_backend() as backend, hostile_backend() as elsewhere:
        moved = f"HTTP/1.1 307 \r\nlocation: {elsewhere.url}\r\ncontent-length: 0\r\n"
        backend.answer = lambda: [f"{moved}set-cookie: a=b; Path=/\r\n\r\n".encode()]
        found = access(contacts=app(issuer_at(tmp_path), hook=backend.url))
        for _ in range(2):
            await judged(found.may_register(ALICE, [X]))
        assert len(backend.requests) == 2
        assert b"cookie" not in backend.requests[1].lower()
        assert not elsewhere.requests
        await found.close()


@in_loop
async def test_a_question_to_this_machine_goes_by_no_proxy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_backend() as backend, hostile_backend() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        found = access(contacts=app(issuer_at(tmp_path), hook=backend.url))
        assert await judged(found.may_register(ALICE, [X])) == Verdict()
        assert not proxy.requests
        await found.close()


@in_loop
async def test_a_principal_that_wants_ever_more_leaves_room_for_others(tmp_path: Path) -> None:
    with running_backend() as backend:
        backend.answering.clear()
        found = access(contacts=app(issuer_at(tmp_path), hook=backend.url))
        of_alice = [
            asyncio.ensure_future(judged(found.may_register(ALICE, [f"contacts/{number}"])))
            for number in range(100)
        ]
        await until(lambda: len(backend.asked) == OF_ONE)
        of_bob = asyncio.ensure_future(judged(found.may_register(BOB, [X])))
        await until(lambda: len(backend.asked) == OF_ONE + 1)
        assert backend.asked[-1]["principal"] == "bob"
        backend.answering.set()
        assert await of_bob == Verdict()
        assert await asyncio.gather(*of_alice) == [Verdict()] * 100
        await found.close()


@in_loop
async def test_many_questions_to_one_backend_leave_connections_for_another(tmp_path: Path) -> None:
    """As many apps as would have filled a pool of connections that all have in common."""
    with hostile_backend() as slow, running_backend() as quick:
        answering = threading.Event()
        slow.answer = lambda: [b""] if answering.wait(PATIENCE_S) else []
        login, names = issuer_at(tmp_path), [f"slow{number}" for number in range(4)]
        rules = {name: app(login, hook=slow.url, hook_timeout_ms=10_000) for name in names}
        found = access(contacts=app(login, hook=quick.url, hook_timeout_ms=10_000), **rules)
        waiting = [
            asyncio.ensure_future(
                judged(found.may_register(Principal(f"p{number}", name, 1), [f"{name}/x"]))
            )
            for name in names
            for number in range(32)
        ]
        await until(lambda: len(slow.requests) == len(waiting))
        assert await judged(found.may_register(ALICE, [X])) == Verdict()
        answering.set()
        await asyncio.gather(*waiting)
        await found.close()


@pytest.mark.parametrize("claims", [{"sub": "\ud800"}, {"exp": 10**400}, {"iat": 10**400}])
def test_claims_that_cannot_be_read_are_refused(tmp_path: Path, claims: dict[str, object]) -> None:
    login = issuer_at(tmp_path)
    token = login.jwt("alice", "contacts", **claims)
    with pytest.raises(Unauthorised):
        access(contacts=app(login)).identify("contacts", token)


@pytest.fixture(scope="module")
def login(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return issuer_at(tmp_path_factory.mktemp("login"))


@pytest.fixture(scope="module")
def attacked(
    login: Issuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[KeyedNode, HostileBackend]]:
    """A node with an honest app, and two whose backends are hostile: of one it fetches keys, of the
    other it asks who may publish."""
    with hostile_backend() as backend:
        backend.answer = ANSWERS["nested without end"]
        node = KeyedNode(
            tmp_path_factory.mktemp("attacked") / "data",
            f"""
[apps.contacts]
publish_keys = ["{HASHED}"]
[apps.fetched]
jwks = "{backend.url}"
register = ["**"]
[apps.asked]
jwks = "{login.jwks}"
hook = "{backend.url}"
hook_timeout_ms = 500
publish = ["**"]
authorise_at_publish = true
""",
        )
        try:
            node.start()
            yield node, backend
        finally:
            node.end()


def test_a_node_survives_whatever_backends_answer(
    attacked: tuple[KeyedNode, HostileBackend], login: Issuer
) -> None:
    node, backend = attacked
    token = login.jwt("alice", "asked")
    for version, answer in enumerate(ANSWERS.values(), 1):
        backend.answer = answer
        assert node.publish_as(token, "asked/x", version).status_code == 503
        assert node.publish_as(SECRET, "contacts/x", version).status_code == 200
    said = node.said()
    assert "the hook of asked failed" in said
    assert "could not be fetched: this is no set of keys" in said
