"""The OpenAPI description: complete, true, and no request made from it brings the server down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.server.api.conftest import Running, running
from tests.server.api.fake import ADMIN_TOKEN, WAITS, FakeAuth, FakeService
from trine.server.api.limits import Limits
from trine.server.interface import Caller, JobView, PlacementView, ProgressView

HEADERS = {"Authorization": f"Bearer {ADMIN_TOKEN}"}
OPERATIONS = [
    "GET /healthz",
    "GET /metrics",
    "GET /v1/board/events",
    "GET /v1/board/reasons",
    "GET /v1/daemon",
    "GET /v1/history",
    "GET /v1/jobs",
    "POST /v1/jobs",
    "GET /v1/jobs/count",
    "GET /v1/history",
    "POST /v1/gc",
    "GET /v1/jobs/{job_id}",
    "GET /v1/jobs/{job_id}/explain",
    "GET /v1/jobs/{job_id}/log",
    "GET /v1/jobs/{job_id}/log/offset",
    "GET /v1/jobs/{job_id}/speed",
    "GET /v1/jobs/{job_id}/wait",
    "POST /v1/jobs/{job_id}/cancel",
    "POST /v1/jobs/{job_id}/hold",
    "POST /v1/jobs/{job_id}/release",
    "POST /v1/jobs/{job_id}/priority",
    "GET /v1/quotas",
    "POST /v1/quotas",
    "GET /v1/nodes",
    "POST /v1/nodes/{name}/drain",
    "POST /v1/nodes/{name}/undrain",
    "GET /v1/predictions",
    "POST /v1/whatif",
    "GET /v1/session",
    "POST /v1/session/code",
    "POST /v1/session/end",
    "GET /v1/shares",
    "GET /v1/usage",
]

BEYOND_A_SCHEMA: dict[str, list[Any]] = {"POST /v1/jobs": [positive_data_acceptance]}
"""A job may be wrong in ways no schema tells: a quote that is not closed, GPUs that do not divide by the nodes."""

SAMPLE = JobView(
    id="",
    name="train",
    user="root",
    queue="default",
    state="done",
    gpus=2,
    model="bert",
    app_class="A",
    priority=0.0,
    attempt=1,
    submitted_s=1.0,
    reason=WAITS,
    placement=(PlacementView("node0", (0, 1)),),
    progress=ProgressView(5.0, 10.0, 2.5, 3.0),
    started_s=2.0,
    expected_end_s=5.0,
)


class Obliging(FakeService):
    """Has every job and node with an even name, so that made-up names meet both answers."""

    def job(self, job_id: str, caller: Caller) -> JobView:
        if job_id not in self.views and len(job_id) % 2 == 0:
            self.views[job_id] = replace(SAMPLE, id=job_id)
        return super().job(job_id, caller)

    def _check_node(self, node: str) -> None:
        super()._check_node("node0" if len(node) % 2 == 0 else node)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    service = Obliging(tmp_path_factory.mktemp("logs"))
    with running(service, Limits(wait_s=0.01), FakeAuth()) as server:
        yield server


@pytest.fixture(scope="module")
def described(fuzzed: Running) -> dict[str, Any]:
    description: dict[str, Any] = httpx.get(f"{fuzzed.url}/openapi.json", headers=HEADERS).json()
    return description


def test_every_operation_is_described(described: dict[str, Any]) -> None:
    found = {f"{method.upper()} {path}" for path, verbs in described["paths"].items() for method in verbs}
    assert found == set(OPERATIONS)
    for path, verbs in described["paths"].items():
        for method, operation in verbs.items():
            assert operation["description"], f"{method} {path} says nothing about itself"
            assert operation.get("security") == [] if path == "/healthz" else "401" in operation["responses"]
    assert described["security"] == [{"token": []}]


def test_errors_have_one_shape(described: dict[str, Any]) -> None:
    errors = [
        response["content"]["application/json"]["schema"]["$ref"]
        for verbs in described["paths"].values()
        for operation in verbs.values()
        for status, response in operation["responses"].items()
        if int(status) >= 400
    ]
    assert set(errors) == {"#/components/schemas/ErrorView"}
    submit = set(described["paths"]["/v1/jobs"]["post"]["responses"])
    assert submit >= {"201", "401", "403", "409", "413", "422", "429", "503"}


def test_every_key_of_a_job_is_described(described: dict[str, Any]) -> None:
    keys = described["components"]["schemas"]["JobSpec"]["properties"]
    assert {"run", "class", "gpus", "checkpoint", "topology", "deadline", "ranks"} <= set(keys)
    assert all(key["description"] for key in keys.values())


@pytest.mark.slow
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_request_breaks_the_server_or_the_description(
    fuzzed: Running, described: dict[str, Any], operation: str, mode: GenerationMode
) -> None:
    schema = schemathesis.openapi.from_dict(described)
    schema.config.update(base_url=fuzzed.url)
    rejected = schema.config.checks.negative_data_rejection
    rejected.expected_statuses = [*rejected.expected_statuses, "413"]  # wrong data may be too large as well
    method, _, path = operation.partition(" ")
    requests = schema[path][method].as_strategy(generation_mode=mode)

    @given(requests)
    @settings(max_examples=8, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    def check(case: schemathesis.Case[Any]) -> None:
        case.call_and_validate(headers=HEADERS, excluded_checks=BEYOND_A_SCHEMA.get(operation))

    with suppress(Unsatisfiable):  # an operation without parameters cannot be called wrongly
        check()
