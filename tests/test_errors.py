"""The tree of errors: what travels, and what is drawn of it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from roskva import errors
from roskva.errors import RoskvaError

PROTOCOL = Path(__file__).parents[1] / "docs" / "protocol.md"


def below(kind: type[RoskvaError]) -> Iterator[type[RoskvaError]]:
    """In the order of their definition, each with all that is below it."""
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from below(child)


EVERY: list[type[RoskvaError]] = [RoskvaError, *below(RoskvaError)]


def depth(kind: type[RoskvaError]) -> int:
    return 0 if kind is RoskvaError else 1 + depth(kind.__bases__[0])


def test_the_tree_at_the_top_of_the_file_is_the_tree() -> None:
    drawn = re.findall(r"^ {4}([│├└─ ]*)(\w+)", errors.__doc__ or "", re.MULTILINE)
    assert [(len(branch) // 4, name) for branch, name in drawn] == [
        (depth(kind), kind.__name__) for kind in EVERY
    ]


def test_no_two_errors_share_a_code() -> None:
    codes = [kind.code for kind in EVERY]
    assert len(set(codes)) == len(codes)


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.code)
def test_a_code_fits_the_wire_and_is_never_inherited(kind: type[RoskvaError]) -> None:
    assert re.fullmatch(r"[a-z_]{1,64}", kind.code)
    assert "code" in vars(kind)


def test_codes_are_what_they_have_always_been() -> None:
    """They travel: a client of last year knows these."""
    assert {kind.code for kind in EVERY} >= {
        *("internal", "bad_input", "bad_name", "bad_message", "too_large", "wrong_protocol"),
        *("bad_config", "refused", "unauthorised", "limit_exceeded", "token_rejected", "fenced"),
        *("unknown_client", "unavailable", "overloaded", "storage_unavailable", "damaged"),
    }


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.code)
def test_what_ends_the_session_is_not_to_be_tried_again_in_it(kind: type[RoskvaError]) -> None:
    assert not (kind.fatal and kind.retriable)


def test_what_is_retriable_stays_so_further_down() -> None:
    for kind in EVERY[1:]:
        parent = kind.__bases__[0]
        assert issubclass(parent, RoskvaError)
        assert kind.retriable >= parent.retriable


def table() -> str:
    """As it stands in docs/protocol.md."""

    def mark(yes: bool) -> str:
        return "yes" if yes else ""

    rows = [f"| `{kind.code}` | {mark(kind.retriable)} | {mark(kind.fatal)} |" for kind in EVERY]
    return "\n".join(["| code | retriable | fatal |", "|---|---|---|", *rows])


def test_the_protocol_document_lists_every_code() -> None:
    assert table() in PROTOCOL.read_text(encoding="utf-8"), f"it should be:\n{table()}"
