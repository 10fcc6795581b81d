"""What is refused, with which status, in which words, in one shape."""

from __future__ import annotations

import errno
from pathlib import Path

import httpx
import pytest

from tests.server.api.conftest import Running, Start
from tests.server.api.fake import ANNA_TOKEN, FakeService
from trine.server.access import Access, Queue, UserLimits
from trine.server.api.limits import Limits

JOB = {"run": "python train.py"}


def refused(answer: httpx.Response, status: int, code: str) -> str:
    assert answer.status_code == status, answer.text
    error = answer.json()
    assert set(error) == {"code", "message", "field"} and error["code"] == code
    return str(error["message"])


def test_jobs_and_nodes_that_do_not_exist(admin: httpx.Client) -> None:
    for path in ("", "/explain", "/log", "/wait"):
        assert refused(admin.get(f"/v1/jobs/17{path}"), 404, "not-found") == "There is no job 17."
    for verb in ("cancel", "hold", "release"):
        refused(admin.post(f"/v1/jobs/17/{verb}"), 404, "not-found")
    refused(admin.post("/v1/nodes/node9/drain"), 404, "not-found")
    refused(admin.get("/v2/jobs"), 404, "no-such-path")
    refused(admin.delete("/v1/jobs"), 405, "method-not-allowed")


def test_a_verb_that_does_not_fit_the_state(anna: httpx.Client, server: Running) -> None:
    anna.post("/v1/jobs", json=JOB)
    server.finish("1")
    assert refused(anna.post("/v1/jobs/1/cancel"), 409, "conflict") == "Job 1 is done."


def test_a_job_that_can_never_run(anna: httpx.Client) -> None:
    answer = anna.post("/v1/jobs", json={**JOB, "gpus": 65})
    assert refused(answer, 422, "too-large") == "The cluster has only 64 GPUs."


def test_a_misspelt_key_names_the_nearest(anna: httpx.Client) -> None:
    message = refused(anna.post("/v1/jobs", json={**JOB, "wrkdir": "/x"}), 422, "invalid")
    assert "unknown key 'wrkdir' (did you mean 'workdir'?)" in message


@pytest.mark.parametrize("query", ["state=runing", "limit=0", "limit=x", "limit=1000000000000000000000"])
def test_queries_are_checked(anna: httpx.Client, query: str) -> None:
    refused(anna.get(f"/v1/jobs?{query}"), 422, "invalid")


def test_a_misspelt_parameter_names_the_nearest(anna: httpx.Client) -> None:
    message = refused(anna.get("/v1/jobs?stat=done"), 422, "invalid")
    assert message == "Unknown parameter 'stat' (did you mean 'state'?); expected limit, name, state, user."
    refused(anna.post("/v1/jobs?dry_run=1", json=JOB), 422, "invalid")


def test_only_administrators_change_nodes(anna: httpx.Client, server: Running) -> None:
    for verb in ("drain", "undrain"):
        refused(anna.post(f"/v1/nodes/node0/{verb}"), 403, "forbidden")
    assert server.service.node.state == "up"


@pytest.mark.parametrize("body", [b"", b"{}", b'{"priority": "5"}', b'{"priority": 1e7}', b'{"priority": null}'])
def test_a_priority_with_a_bad_body(anna: httpx.Client, body: bytes) -> None:
    anna.post("/v1/jobs", json=JOB)
    message = refused(anna.post("/v1/jobs/1/priority", content=body), 422, "invalid")
    assert message.startswith('Expected a body such as {"priority": 5}: a number from -1,000,000')


def test_only_administrators_change_quotas(anna: httpx.Client, server: Running) -> None:
    refused(anna.post("/v1/quotas", json={"quotas": {"user:anna": 64}}), 403, "forbidden")
    assert server.service.changed_quotas == {}


@pytest.mark.parametrize(
    "quotas", [{}, {"anna": 1}, {"user:anna": -1}, {"user:anna": "all"}, {"user:anna": 1.5}, {"node:x": 1}, [1]]
)
def test_quotas_with_a_bad_body(admin: httpx.Client, quotas: object) -> None:
    message = refused(admin.post("/v1/quotas", json={"quotas": quotas}), 422, "invalid")
    assert '{"user:ann": 16, "queue:prod": null}' in message
    refused(admin.post("/v1/quotas", json={"quotas": {"queue:none": 1}}), 404, "not-found")


@pytest.mark.parametrize("body", [b"{", b'{"reason": 1}', b'{"why": "x"}', b'{"reason": "a\\u001b"}', b"[" * 100_000])
def test_a_drain_with_a_bad_body(admin: httpx.Client, body: bytes) -> None:
    refused(admin.post("/v1/nodes/node0/drain", content=body), 422, "invalid")


def test_a_full_disk_accepts_nothing(anna: httpx.Client, server: Running) -> None:
    server.service.full_disk = True
    answer = anna.post("/v1/jobs", json=JOB)
    refused(answer, 503, "unavailable")
    assert "retry-after" in answer.headers


def test_quotas_and_queues(start: Start, tmp_path: Path) -> None:
    queues = {"default": Queue("default"), "ml": Queue("ml", users=frozenset({"ben"}))}
    access = Access(queues, {"anna": UserLimits(max_waiting=1)})
    client = start(service=FakeService(tmp_path, access)).client(ANNA_TOKEN)
    message = refused(client.post("/v1/jobs", json={**JOB, "queue": "defalt"}), 422, "unknown-queue")
    assert "(did you mean 'default'?)" in message
    refused(client.post("/v1/jobs", json={**JOB, "queue": "ml"}), 403, "forbidden")
    refused(client.post("/v1/jobs", json={**JOB, "user": "ben"}), 403, "forbidden")
    assert client.post("/v1/jobs", json=JOB).status_code == 201
    answer = client.post("/v1/jobs", json=JOB)
    refused(answer, 429, "quota")
    assert "retry-after" in answer.headers


def test_a_bug_shows_nothing_but_is_in_the_log(anna: httpx.Client, server: Running) -> None:
    def broken() -> None:
        raise RuntimeError("secret of the inside")

    server.service.daemon = broken  # type: ignore[method-assign, assignment]
    message = refused(anna.get("/v1/daemon"), 500, "internal")
    assert "secret" not in message
    assert [entry["event"] for entry in server.noted(2)] == ["request failed", "request"]
    assert anna.get("/v1/nodes").status_code == 200


def test_a_daemon_without_descriptors_asks_to_be_asked_again(anna: httpx.Client, server: Running) -> None:
    def exhausted() -> None:
        raise OSError(errno.EMFILE, "Too many open files", "/inside/of/the/daemon")

    server.service.daemon = exhausted  # type: ignore[method-assign, assignment]
    message = refused(anna.get("/v1/daemon"), 503, "unavailable")
    assert "try again" in message and "inside" not in message


def test_too_many_that_wait(start: Start) -> None:
    server = start(Limits(watches=1))
    client = server.client(ANNA_TOKEN)
    client.post("/v1/jobs", json=JOB)
    with client.stream("GET", "/v1/jobs/1/log?follow=true"):
        refused(client.get("/v1/jobs/1/wait?timeout_s=5"), 503, "busy")
        refused(client.get("/v1/jobs/1/log?follow=true"), 503, "busy")
        assert client.get("/v1/jobs/1").status_code == 200


def test_an_outcome_that_is_not_known_is_told_as_such(anna: httpx.Client, server: Running) -> None:
    server.service.unknown = True
    answer = anna.post("/v1/jobs", json=JOB, headers={"Idempotency-Key": "r1"})
    assert refused(answer, 503, "unknown").endswith("is not known; ask again with r1")
    assert answer.headers["Retry-After"] == "2"
