"""What a client can do through the API, verb by verb."""

from __future__ import annotations

import threading
import time
from functools import partial
from pathlib import Path

import httpx
import pytest

from tests.server.api.conftest import Running, Start
from tests.server.api.fake import ANNA_TOKEN
from trine.executor.attempt.storage import open_log_file
from trine.server.api.limits import Limits
from trine.server.api.logs import TAIL_BYTES, tail_offset

JOB = {"run": "python train.py", "gpus": 2}


def submitted(client: httpx.Client, **keys: object) -> str:
    answer = client.post("/v1/jobs", json={**JOB, **keys})
    assert answer.status_code == 201
    (job_id,) = answer.json()["ids"]
    return str(job_id)


def test_a_job_is_submitted_and_shown(anna: httpx.Client) -> None:
    job_id = submitted(anna, name="first", **{"class": "A"})
    job = anna.get(f"/v1/jobs/{job_id}").json()
    assert (job["name"], job["user"], job["gpus"], job["state"]) == ("first", "anna", 2, "waiting")
    assert (job["queue"], job["app_class"]) == ("default", "A")
    assert job["reason"]["sentence"] == "No GPU is free."


def test_a_list_is_submitted_in_order(anna: httpx.Client) -> None:
    answer = anna.post("/v1/jobs", json=[{**JOB, "name": f"job{i}"} for i in range(1_000)])
    assert answer.status_code == 201
    names = [job["name"] for job in anna.get("/v1/jobs").json()]
    assert len(answer.json()["ids"]) == 1_000 and names == [f"job{i}" for i in range(1_000)]


def test_one_bad_job_keeps_the_others_out(anna: httpx.Client) -> None:
    answer = anna.post("/v1/jobs", json=[JOB, {**JOB, "gpus": 0}])
    assert answer.status_code == 422
    assert answer.json()["field"] == "gpus" and "request[1]: gpus: found 0" in answer.json()["message"]
    assert anna.get("/v1/jobs").json() == []


def test_the_same_key_submits_once(anna: httpx.Client) -> None:
    headers = {"Idempotency-Key": "5f2b-1"}
    answers = [anna.post("/v1/jobs", json=JOB, headers=headers).json() for _ in range(3)]
    assert answers == [{"ids": ["1"]}] * 3
    assert len(anna.get("/v1/jobs").json()) == 1


def test_jobs_are_listed_by_state(anna: httpx.Client, server: Running) -> None:
    ids = [submitted(anna) for _ in range(3)]
    server.finish(ids[0])
    anna.post(f"/v1/jobs/{ids[1]}/hold")

    def listed(query: str) -> list[str]:
        return [job["id"] for job in anna.get(f"/v1/jobs?{query}").json()]

    assert listed("") == listed("state=live") == ids[1:]
    assert listed("state=done") == listed("state=ended") == ids[:1]
    assert listed("state=held&state=done") == ids[:2]
    assert listed("state=all") == ids
    assert listed("state=all&limit=1") == ids[:1]


def test_hold_release_cancel(anna: httpx.Client) -> None:
    job_id = submitted(anna)
    states = [anna.post(f"/v1/jobs/{job_id}/{verb}").json()["state"] for verb in ("hold", "release", "cancel")]
    assert states == ["held", "waiting", "cancelled"]


def test_a_priority_is_changed(anna: httpx.Client) -> None:
    job_id = submitted(anna)
    assert anna.post(f"/v1/jobs/{job_id}/priority", json={"priority": 2.5}).json()["priority"] == 2.5
    assert anna.get(f"/v1/jobs/{job_id}").json()["priority"] == 2.5


def test_quotas_are_listed_and_changed(admin: httpx.Client, anna: httpx.Client) -> None:
    changed = admin.post("/v1/quotas", json={"quotas": {"user:ben": 4.0, "queue:default": 8}}).json()
    assert {(quota["kind"], quota["name"]): quota["max_gpus"] for quota in changed} == {
        ("queue", "default"): 8,
        ("user", "ben"): 4,
    }
    (seen,) = anna.get("/v1/quotas").json()
    assert (seen["name"], seen["max_gpus"], seen["configured"], seen["changed_by"]) == ("default", 8, None, "root")


def test_explain_tells_the_story(anna: httpx.Client) -> None:
    told = anna.get(f"/v1/jobs/{submitted(anna)}/explain").json()
    assert told["sentences"] == ["No GPU is free."]
    assert told["story"] == [{"at_s": 1_000.0, "what": "submitted", "sentence": ""}]


def test_nodes_are_drained_and_used_again(admin: httpx.Client) -> None:
    assert admin.get("/v1/nodes").json()[0]["gpus"][0]["flags"] == ["slow"]
    drained = admin.post("/v1/nodes/node0/drain", json={"reason": "new fan"}).json()
    assert (drained["state"], drained["reason"]) == ("drained", "new fan")
    assert admin.post("/v1/nodes/node0/undrain").json()["state"] == "up"
    assert admin.post("/v1/nodes/node0/drain").json()["state"] == "drained"


def test_the_daemon_describes_itself(anna: httpx.Client) -> None:
    assert anna.get("/v1/daemon").json()["policy"] == "fifo"
    metrics = anna.get("/metrics")
    assert metrics.text == "trine_jobs 1\n" and metrics.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_wait_answers_when_the_job_ends(anna: httpx.Client, server: Running) -> None:
    job_id = submitted(anna)
    threading.Timer(0.2, server.finish, [job_id]).start()
    job = anna.get(f"/v1/jobs/{job_id}/wait?timeout_s=15").json()
    assert (job["state"], job["exit_code"]) == ("done", 0)


def test_wait_answers_in_time_when_it_does_not(anna: httpx.Client) -> None:
    started_s = time.monotonic()
    assert anna.get(f"/v1/jobs/{submitted(anna)}/wait?timeout_s=0.2").json()["state"] == "waiting"
    assert time.monotonic() - started_s < 10


def test_logs_are_read_from_an_offset(anna: httpx.Client, server: Running) -> None:
    job_id = submitted(anna)
    url = f"/v1/jobs/{job_id}/log"
    assert anna.get(url).text == ""
    (server.service.logs / f"{job_id}.log").write_bytes(b"step 1\nstep 2\n" + b"x" * 200_000)
    whole = anna.get(url)
    assert len(whole.content) == 200_014 and whole.headers["content-type"] == "text/plain; charset=utf-8"
    assert anna.get(f"{url}?offset=7").text.startswith("step 2\n")
    assert anna.get(f"{url}?offset=-5").text == "xxxxx"
    assert anna.get(f"{url}?offset=999999").text == ""


def test_every_rank_has_its_log(anna: httpx.Client, ben: httpx.Client, server: Running) -> None:
    job_id = submitted(anna)
    url = f"/v1/jobs/{job_id}/log"
    (server.service.logs / f"{job_id}.log").write_text("zero\n")
    (server.service.logs / f"{job_id}.log.1").write_text("one\nmore\n")
    assert [anna.get(f"{url}?rank={rank}").text for rank in (0, 1)] == ["zero\n", "one\nmore\n"]
    assert anna.get(f"{url}/offset?rank=1&tail=1").json() == {"offset": 4}
    assert [anna.get(f"{url}?rank={rank}").status_code for rank in ("2", "-1", "x")] == [404, 422, 422]
    assert [ben.get(f"{url}{path}").status_code for path in ("?rank=1", "/offset?tail=1")] == [404, 404]


@pytest.mark.parametrize(
    ("text", "tails"),
    [
        (b"", [0, 0, 0]),
        (b"a\nb\nc\n", [6, 4, 2]),
        (b"a\nb\nno end", [10, 4, 2]),
        (b"\n\n", [2, 1, 0]),
        (b"x" * 100_000 + b"\n" + b"y" * 100_000 + b"\n", [200_002, 100_001, 0]),
    ],
)
def test_the_last_lines_of_a_log_are_found(text: bytes, tails: list[int], tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(text)
    assert [tail_offset(partial(open_log_file, tmp_path / "log"), lines) for lines in (0, 1, 2)] == tails


def test_lines_are_looked_for_only_so_far_back(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        log.truncate(TAIL_BYTES + 1_000)
    assert tail_offset(partial(open_log_file, tmp_path / "log"), 1) == 1_000


def test_jobs_are_counted(anna: httpx.Client, ben: httpx.Client, server: Running) -> None:
    ids = [submitted(anna, name=name) for name in ("a", "b", "b")]
    server.finish(ids[0])
    assert anna.get("/v1/jobs/count").json() == {"count": 2}
    assert anna.get("/v1/jobs/count?state=all&name=b&user=anna").json() == {"count": 2}
    assert [job["id"] for job in anna.get("/v1/jobs?state=all&name=a").json()] == [ids[0]]
    assert ben.get("/v1/jobs/count?user=anna").json() == {"count": 0}


def test_a_followed_log_ends_with_the_job_and_misses_nothing(anna: httpx.Client, server: Running) -> None:
    job_id = submitted(anna)
    path = server.service.logs / f"{job_id}.log"

    def write(text: str) -> None:
        with path.open("a") as log:
            log.write(text)

    with anna.stream("GET", f"/v1/jobs/{job_id}/log?follow=true") as answer:
        parts = answer.iter_text()
        write("one\n")
        assert next(parts) == "one\n"
        write("two\n")
        assert next(parts) == "two\n"
        write("last words\n")
        server.finish(job_id)
        assert "".join(parts) == "last words\n"


def test_shutdown_ends_calls_that_last(start: Start) -> None:
    server = start(Limits(shutdown_s=5))
    client = server.client(ANNA_TOKEN)
    job_id = submitted(client)
    with client.stream("GET", f"/v1/jobs/{job_id}/log?follow=true") as answer:
        started_s = time.monotonic()
        server.stop()
        assert answer.read() == b""
    assert time.monotonic() - started_s < 4
    with pytest.raises(httpx.ConnectError):
        client.get("/healthz")


def test_every_request_is_logged_with_its_user(anna: httpx.Client, server: Running) -> None:
    submitted(anna)
    anna.get("/v1/jobs/9")
    anna.get("/v1/jobs?limit=5")
    anna.get("/healthz")
    noted = [{key: entry[key] for key in ("method", "path", "status", "user")} for entry in server.noted(3)]
    assert noted == [
        {"method": "POST", "path": "/v1/jobs", "status": 201, "user": "anna"},
        {"method": "GET", "path": "/v1/jobs/9", "status": 404, "user": "anna"},
        {"method": "GET", "path": "/v1/jobs", "status": 200, "user": "anna"},
    ]
    assert all(entry["ms"] >= 0 for entry in server.log.entries)


def test_a_log_path_that_is_a_link_shows_nothing(anna: httpx.Client, server: Running, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("do not read")
    (server.service.logs / f"{submitted(anna)}.log").symlink_to(secret)
    assert anna.get("/v1/jobs/1/log").text == ""
