"""The OpenAPI document of a live node, turned against it: no request leads to an error of ours."""

import os
from typing import Any, Final, cast

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import Case, GenerationMode
from tests.serving.nodes import Node

SOME: Final = 25
MANY: Final = int(os.environ.get("ROSKVA_REQUESTS", "500"))
"""Per operation and kind of request."""


def test_requests_by_the_document_lead_to_no_server_error(shared: Node) -> None:
    _ask(shared, SOME)


@pytest.mark.verify
def test_thousands_of_requests_by_the_document_lead_to_no_server_error(shared: Node) -> None:
    _ask(shared, MANY)


def _ask(node: Node, examples: int) -> None:
    schema = schemathesis.openapi.from_url(f"{node.url}/schema/openapi.json")
    operations = [cast(Any, found).ok() for found in schema.get_all_operations()]
    assert {operation.path for operation in operations} >= {
        "/v1/publish",
        "/v1/reset",
        "/v1/status",
        "/v1/objects/{app}/{name}",
    }
    with requests.Session() as session:
        for operation in operations:
            strategy = st.one_of(
                operation.as_strategy(generation_mode=GenerationMode.POSITIVE),
                operation.as_strategy(generation_mode=GenerationMode.NEGATIVE),
            )

            @settings(
                max_examples=examples,
                deadline=None,
                database=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=strategy)
            def ask(case: Case[Any]) -> None:
                answer = case.call(session=session, timeout=30)
                assert answer.status_code < 500, (answer.status_code, case.as_curl_command())

            ask()
    assert node.is_ready()
