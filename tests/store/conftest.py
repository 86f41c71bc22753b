from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.store.conformance import KINDS, Kind

from roskva.store.base import Store


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


@pytest.fixture
def store(kind: Kind, tmp_path: Path) -> Iterator[Store]:
    opened = kind.create(tmp_path / "store")
    yield opened
    opened.close()
