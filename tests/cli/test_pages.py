"""Pages that are made from the code are what the code would make of them now."""

from pathlib import Path

import pytest

from roskva.cli import errors_text, limits_text
from roskva.config import LimitsConfig, settings

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("name", "page"), [("errors", errors_text.page), ("limits", limits_text.page)]
)
def test_a_page_is_up_to_date(name: str, page: object) -> None:
    assert callable(page)
    renew = f"python -m roskva.cli.{name}_text > docs/{name}.md"
    assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == page(), f"renew it with: {renew}"


def test_every_limit_says_what_it_answers() -> None:
    assert set(limits_text.ANSWERS) == {setting.key for setting in settings(LimitsConfig)}
