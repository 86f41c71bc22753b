"""Patterns of names that a credential may use."""

import pytest

from roskva.server.access.keyed import NamePatterns


@pytest.mark.parametrize(
    ("pattern", "name", "principal", "matches"),
    [
        ("**", "a", "p", True),
        ("**", "a/b/c", "", True),
        ("*", "a", "p", True),
        ("*", "a/b", "p", False),
        ("rooms/*", "rooms/1", "p", True),
        ("rooms/*", "rooms/1/2", "p", False),
        ("rooms/*", "rooms/", "p", False),
        ("rooms/**", "rooms/1/2", "p", True),
        ("rooms/**", "rooms", "p", False),
        ("room", "room", "p", True),
        ("room", "rooms", "p", False),
        ("r.om", "room", "p", False),
        ("*/state", "x/state", "p", True),
        ("{principal}/*", "alice/x", "alice", True),
        ("{principal}/*", "bob/x", "alice", False),
        ("inbox/{principal}", "inbox/a.c", "a.c", True),
        ("inbox/{principal}", "inbox/abc", "a.c", False),
        ("inbox/{principal}", "inbox/bob", "*", False),
        ("inbox/{principal}", "inbox/", "", False),
        ("inbox/{principal}/**", "inbox/bob/secret/x", "bob/secret", False),
        ("{principal}", "{principal}", "alice", False),
    ],
)
def test_a_pattern_matches_whole_names(
    pattern: str, name: str, principal: str, matches: bool
) -> None:
    assert NamePatterns([pattern]).match(name, principal) == matches


def test_any_of_several_will_do() -> None:
    patterns = NamePatterns(["public/*", "{principal}/**"])
    assert patterns.match("public/x", "alice")
    assert patterns.match("alice/a/b", "alice")
    assert not patterns.match("bob/a", "alice")
    assert patterns.match("bob/a", "bob")


def test_without_patterns_nothing_is_allowed() -> None:
    assert not NamePatterns([]).match("x", "alice")
