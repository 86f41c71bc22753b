"""What ARCHITECTURE.md says of an update's way is what the running code does."""

import json

from tools.update_path import PAGE, RECORDED, record, table

MOST_MODULES = 8


def test_the_recorded_way_of_an_update_is_the_way_it_takes() -> None:
    steps = record()
    as_written = [(one["module"], one["function"]) for one in json.loads(RECORDED.read_text())]
    assert [(step.module, step.function) for step in steps] == as_written, (
        "renew it: python -m tools.update_path --write"
    )
    assert table(steps) in PAGE.read_text()
    assert len({step.module for step in steps}) <= MOST_MODULES
