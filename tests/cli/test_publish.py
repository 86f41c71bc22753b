"""`roskva publish` and `roskva reset`, over the HTTP API."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.cli.fake_node import Answer, FakeNode
from typer.testing import CliRunner, Result

from roskva.cli import publish
from roskva.cli.options import add_commands

app = typer.Typer()
add_commands(app, publish.__name__)


def run(*words: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, words, input=stdin)


def lines_of(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_an_update_is_published(node: FakeNode) -> None:
    result = run("publish", "contacts/alice", "42", "--url", node.url)
    assert (result.exit_code, result.stdout) == (0, "contacts/alice is at version 42\n")
    assert node.requests == [
        ("POST", "/v1/publish", [{"app": "contacts", "name": "alice", "version": 42}])
    ]


def test_of_several_addresses_one_that_answers_will_do(node: FakeNode, nobody: str) -> None:
    for version in range(1, 9):  # which comes first is drawn
        words = "publish", "contacts/alice", str(version), "--url", f"{nobody},{node.url}"
        assert run(*words).exit_code == 0
    assert len(node.requests) == 8
    result = run("publish", "contacts/alice", "9", "--url", f"{nobody},{nobody}/two")
    assert (result.exit_code, len(node.requests)) == (3, 8)
    assert "no node answers at" in result.stderr


def test_a_version_may_be_assigned(node: FakeNode) -> None:
    result = run("publish", "home/kitchen/temp", "--payload", "21.5", "--url", node.url, "--json")
    assert lines_of(result) == [{"object": "home/kitchen/temp", "version": "7"}]
    assert node.requests[0][2] == [{"app": "home", "name": "kitchen/temp", "text": "21.5"}]


def test_a_payload_from_a_file_and_a_source(node: FakeNode, tmp_path: Path) -> None:
    (tmp_path / "value").write_bytes(b"\xff\x00")
    words = ("--payload-file", str(tmp_path / "value"), "--source", "tab-1", "--url", node.url)
    assert run("publish", "a/b", "1", *words).exit_code == 0
    assert node.requests[0][2] == [
        {"app": "a", "name": "b", "version": 1, "source": "tab-1", "payload": "/wA="}
    ]


def test_the_url_may_come_from_the_environment(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROSKVA_URL", node.url + "/")
    assert run("publish", "a/b", "1").exit_code == 0


@pytest.mark.parametrize(
    "words",
    [
        ("publish", "alice", "1"),
        ("publish", "A/alice", "1"),
        ("publish", "a/b", "-1"),
        ("publish", "a/b", "9223372036854775808"),
        ("publish", "a/b", "1", "--payload", "x", "--payload-file", __file__),
        ("publish", "a/b", "1", "--payload-file", "nowhere"),
        ("publish", "-", "1"),
        ("publish", "a/b", "1", "--url", "localhost:7600"),
        ("publish", "a/b", "1", "--url", "http://[::"),
        ("reset", "alice"),
        ("reset",),
        ("reset", "a/b", "--app", "a"),
        ("reset", "--app", "a/b", "--yes"),
    ],
)
def test_bad_usage_is_exit_code_2(words: tuple[str, ...], node: FakeNode) -> None:
    url = () if "--url" in words else ("--url", node.url)
    assert run(*words, *url).exit_code == 2
    assert node.requests == []


def test_a_refusal_is_exit_code_1(node: FakeNode, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(b"x" * 2000)
    words = ("publish", "a/b", "1", "--payload-file", str(tmp_path / "large"), "--url", node.url)
    result = run(*words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "roskva: payload above 1024 bytes (too_large)\n"
    as_json = run(*words, "--json")
    assert as_json.exit_code == 1
    assert lines_of(as_json)[0]["error"]["code"] == "too_large"


def test_nobody_there_is_exit_code_3(nobody: str) -> None:
    for words in (("publish", "a/b", "1"), ("reset", "a/b")):
        result = run(*words, "--url", nobody)
        assert result.exit_code == 3
        assert f"no node answers at {nobody}" in result.stderr
        assert "roskva serve" in result.stderr


@pytest.mark.parametrize(
    ("answer", "exit_code"),
    [
        ((503, {"error": {"code": "unavailable", "text": "stopping", "retriable": True}}), 3),
        (
            (503, {"results": [{"error": {"code": "overloaded", "text": "", "retriable": True}}]}),
            3,
        ),
        ((403, {"results": [{"error": {"code": "unauthorised", "text": "not yours"}}]}), 1),
        ((400, {"error": {"code": "bad_input", "text": "what is that"}}), 1),
        ((200, {"results": []}), 3),
        ((200, b"<html>Log in to the hotel's network</html>"), 3),
        ((404, b"<html>Not here</html>"), 1),
        ((502, b"<html>Bad gateway</html>"), 3),
    ],
)
def test_exit_codes_tell_what_may_be_tried_again(
    node: FakeNode, answer: Answer, exit_code: int
) -> None:
    node.answer = lambda *_: answer
    result = run("publish", "a/b", "1", "--url", node.url)
    assert result.exit_code == exit_code
    assert result.stderr.startswith("roskva: ")


def test_many_updates_come_from_stdin(node: FakeNode) -> None:
    stdin = "\n".join(
        [
            "contacts/alice 41",
            "",
            "rooms/the blue one 7\r",
            "home/temp",
            '{"app": "home", "name": "lamp 2", "version": "9", "text": "on"}',
            "contacts/alice 42",
        ]
    )
    result = run("publish", "-", "--url", node.url, stdin=stdin)
    assert (result.exit_code, result.stdout) == (0, "5 accepted, 0 refused\n")
    assert node.versions == {
        "contacts/alice": 42,
        "rooms/the blue one": 7,
        "home/temp": 7,
        "home/lamp 2": 9,
    }


def test_many_lines_leave_in_batches_and_in_order(node: FakeNode) -> None:
    stdin = "".join(f"numbers/{n % 10} {n}\n" for n in range(25_000))
    assert run("publish", "-", "--url", node.url, stdin=stdin).exit_code == 0
    sizes = [len(body) for _, _, body in node.requests]
    assert sum(sizes) == 25_000
    assert max(sizes) == 1000
    assert len(sizes) < 35
    published = [update["version"] for _, _, body in node.requests for update in body]
    assert published == list(range(25_000))


def test_a_bad_line_is_named_and_holds_up_nobody(node: FakeNode) -> None:
    stdin = b"""a/b 1
no slash 2
{"app": "a"}
a/\xff 3
{"app": "a", "name": "b", "version": -1}
{"app": "a", "name": "b", "payload": "no base64"}
{"app": "a", "name": "b", "verison": 1}
a/b 9223372036854775808
a/b %s
a/c 4
""" % (b"9" * 5000)
    result = run("publish", "-", "--url", node.url, stdin=stdin)
    assert (result.exit_code, result.stdout) == (1, "2 accepted, 8 refused\n")
    complaints = [line.split(":")[1] for line in result.stderr.splitlines()]
    assert complaints == [f" line {number}" for number in range(2, 10)]
    assert node.versions == {"a/b": 1, "a/c": 4}


def test_lines_as_json_have_a_result_each(node: FakeNode) -> None:
    result = run("publish", "-", "--json", "--url", node.url, stdin="a/b 1\n\nbad\na/c 2\n")
    assert result.exit_code == 1
    assert [(line["line"], line.get("version")) for line in lines_of(result)] == [
        (3, None),
        (1, "1"),
        (4, "2"),
    ]


def test_a_node_that_goes_away_says_where_to_go_on(node: FakeNode) -> None:
    busy = {"error": {"code": "unavailable", "text": "stopping", "retriable": True}}
    node.answer = lambda *_: (200, {"results": [{"version": "1"}, busy, {"version": "3"}]})
    result = run("publish", "-", "--url", node.url, stdin="a/b 1\na/c 2\na/d 3\n")
    assert result.exit_code == 3
    assert "1 accepted; go on with line 2" in result.stderr


def test_an_endless_line_is_refused(node: FakeNode) -> None:
    result = run("publish", "-", "--url", node.url, stdin="a/b 1\n" + "x" * 200_000)
    assert result.exit_code == 2
    assert "line 2 is longer" in result.stderr
    assert node.versions == {"a/b": 1}


def test_reset(node: FakeNode) -> None:
    result = run("reset", "contacts/alice", "--url", node.url)
    assert (result.exit_code, result.stdout) == (0, "contacts/alice is reset\n")
    assert node.requests == [("POST", "/v1/reset", {"app": "contacts", "name": "alice"})]
    assert lines_of(run("reset", "a/b", "--json", "--url", node.url)) == [{"object": "a/b"}]


def of_app(have: int, silent: list[int] | None = None) -> dict[str, Any]:
    return {
        "app": "contacts",
        "generation": "6",
        "following": "7",
        "shards": 4,
        "have": have,
        "silent": silent or [],
        "sentence": f"Generation 6 is in {have} of 4 shards.",
    }


def test_an_app_is_reset_in_all_shards_with_one_generation(
    node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it takes: a node that is not there, or has a part of its shards."""
    monkeypatch.setattr(publish, "_ASK_AGAIN_S", 0.0)
    unavailable = 503, {"error": {"code": "unavailable", "text": "not now", "retriable": True}}
    answers = [(200, of_app(4)), unavailable, (200, of_app(2)), (200, of_app(4))]
    node.answer = lambda method, path, body: answers.pop(0)
    result = run("reset", "--app", "contacts", "--yes", "--url", node.url)
    assert result.exit_code == 0
    assert result.stdout == "contacts is reset: generation 6 is in 4 of 4 shards.\n"
    assert "not now" in result.stderr
    assert "in 2 of 4 shards" in result.stderr
    asked = ("POST", "/v1/admin/apps/contacts/reset", {"generation": "7"})
    assert [(method, path) for method, path, _ in node.requests[:1]] == [
        ("GET", "/v1/admin/apps/contacts")
    ]
    assert node.requests[1:] == [asked] * 3


def test_it_asks_before_it_resets_an_app(node: FakeNode) -> None:
    node.answer = lambda method, path, body: (200, of_app(4))
    result = run("reset", "--app", "contacts", "--url", node.url, stdin="n\n")
    assert result.exit_code == 1
    assert "becomes unknown" in result.stderr
    assert [method for method, *_ in node.requests] == ["GET"]


def test_an_app_is_not_reset_while_a_shard_cannot_say_what_it_has(node: FakeNode) -> None:
    node.answer = lambda method, path, body: (200, of_app(3, silent=[2]))
    result = run("reset", "--app", "contacts", "--yes", "--url", node.url)
    assert result.exit_code == 3
    assert [method for method, *_ in node.requests] == ["GET"]
