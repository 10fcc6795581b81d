"""The Python client against a daemon that answers, refuses, breaks off and comes back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.fake_daemon import FakeDaemon, serving
from trine.client import Client, ConnectionBrokenError, RefusedError, WaitTimeoutError
from trine.client.client import log_lines
from trine.core.errors import InputError

SPEC = {"run": ["true"], "gpus": {"count": 1}}


@pytest.fixture
def client(daemon: FakeDaemon, state: Path) -> Iterator[Client]:
    with Client(state=state) as made:
        yield made


def test_submit_gives_ids_in_order(client: Client, daemon: FakeDaemon) -> None:
    assert client.submit(SPEC) == ["1"]
    assert client.submit([SPEC | {"name": "a"}, SPEC | {"name": "b"}]) == ["2", "3"]
    assert [daemon.jobs[i]["name"] for i in ("2", "3")] == ["a", "b"]


def test_a_connection_that_breaks_after_acceptance_submits_once(client: Client, daemon: FakeDaemon) -> None:
    daemon.break_next = 2
    assert client.submit(SPEC) == ["1"]
    assert len(daemon.jobs) == 1


def test_an_outcome_the_daemon_does_not_know_is_asked_for_until_it_does(daemon: FakeDaemon, state: Path) -> None:
    with Client(state=state, sleep=lambda _: None) as client:
        daemon.refuse_next = [(503, "unknown"), (503, "unavailable")]
        assert client.submit(SPEC) == ["1"]
        daemon.refuse_next = [(503, "unknown"), *[(503, "unavailable")] * 9]
        with pytest.raises(RefusedError) as told:
            client.submit(SPEC)
        assert told.value.outcome_unknown, "that nothing can be written now does not say that nothing was"
        daemon.refuse_next = [(503, "unavailable")]
        with pytest.raises(RefusedError) as told:
            client.submit(SPEC)
        assert not told.value.outcome_unknown
    assert len(daemon.jobs) == 3


def test_two_submissions_are_two_jobs_unless_they_share_an_id(client: Client, daemon: FakeDaemon) -> None:
    assert client.submit(SPEC) != client.submit(SPEC)
    assert client.submit(SPEC, "same") == client.submit(SPEC, "same")
    assert len(daemon.jobs) == 3


def test_a_connection_that_keeps_breaking_is_said_so(daemon: FakeDaemon, state: Path) -> None:
    pauses: list[float] = []
    daemon.break_next = 100
    with Client(state=state, sleep=pauses.append) as client, pytest.raises(ConnectionBrokenError, match="broke"):
        client.submit(SPEC)
    assert len(daemon.jobs) == 1
    assert pauses == sorted(pauses)


def test_what_must_not_be_repeated_is_sent_once(client: Client, daemon: FakeDaemon) -> None:
    job_id = daemon.add()
    daemon.break_next = 1
    with pytest.raises(ConnectionBrokenError):
        client.cancel(job_id)
    assert [r for r in daemon.requests if r.endswith("cancel")] == [f"POST /v1/jobs/{job_id}/cancel"]


def test_values_json_cannot_hold_are_refused_before_anything_is_sent(client: Client, daemon: FakeDaemon) -> None:
    with pytest.raises(InputError, match="finite"):
        client.submit(SPEC | {"steps": float("nan")})
    assert daemon.requests == []


def test_a_request_id_that_no_header_can_hold_is_refused(client: Client) -> None:
    with pytest.raises(InputError, match="visible ASCII"):
        client.submit(SPEC, "a\r\nb")


def test_jobs_can_be_chosen_by_state(client: Client, daemon: FakeDaemon) -> None:
    running, done = daemon.add("running"), daemon.add("done")
    assert [job["id"] for job in client.jobs()] == [running]
    assert [job["id"] for job in client.jobs(["done", "failed"])] == [done]


def test_hold_release_cancel_answer_with_the_job(client: Client, daemon: FakeDaemon) -> None:
    job_id = daemon.add()
    assert client.hold(job_id)["state"] == "held"
    assert client.release(job_id)["state"] == "waiting"
    assert client.cancel(job_id)["state"] == "cancelled"
    with pytest.raises(RefusedError, match="has ended") as caught:
        client.cancel(job_id)
    assert (caught.value.status, caught.value.code, caught.value.usage) == (409, "ended", False)


def test_priorities_and_quotas_are_changed(client: Client, daemon: FakeDaemon) -> None:
    assert client.set_priority(daemon.add(), -2.5)["priority"] == -2.5
    assert client.set_quotas({"user:ann": 16, "queue:prod": None}) == client.quotas()
    assert [(quota["name"], quota["max_gpus"]) for quota in client.quotas()] == [("ann", 16), ("prod", None)]


def test_nodes_can_be_drained_and_put_back(client: Client) -> None:
    assert client.drain("n0", "fan")["reason"] == "fan"
    assert [node["state"] for node in client.nodes()] == ["drained", "up"]
    assert client.undrain("n0")["state"] == "up"


def test_explain_and_daemon_answer(client: Client, daemon: FakeDaemon) -> None:
    assert client.explain(daemon.add())["sentences"] == ["It needs 2 GPUs, 1 is free."]
    assert client.daemon()["policy"] == "las"


def test_an_id_cannot_lead_elsewhere(client: Client, daemon: FakeDaemon) -> None:
    with pytest.raises(RefusedError):
        client.job("../nodes")
    assert daemon.requests == ["GET /v1/jobs/..%2Fnodes"]


def test_a_wrong_token_is_the_daemons_sentence(daemon: FakeDaemon, state: Path) -> None:
    with Client(token="wrong", state=state) as client, pytest.raises(RefusedError, match="token") as caught:
        client.jobs()
    assert "wrong" not in str(caught.value)


def test_wait_gives_the_job_as_it_ended(client: Client, daemon: FakeDaemon) -> None:
    job_id = daemon.add("running")
    later = threading.Timer(0.1, lambda: daemon.update(job_id, state="failed", exit_code=7))
    later.start()
    job = client.wait(job_id, timeout_s=20)
    later.join()
    assert (job["state"], job["exit_code"]) == ("failed", 7)


def test_wait_gives_up_in_time(client: Client, daemon: FakeDaemon) -> None:
    job_id = daemon.add("running")
    with pytest.raises(WaitTimeoutError) as caught:
        client.wait(job_id, timeout_s=0.05)
    assert caught.value.job["state"] == "running"


def test_wait_outlives_a_restart_of_the_daemon_at_another_address(state: Path) -> None:
    fake, ended = FakeDaemon(), list[str]()
    job_id = fake.add("done")

    def wait() -> None:
        with Client(state=state) as client:
            ended.append(client.wait(job_id)["state"])

    waiting = threading.Thread(target=wait)
    fake.break_next = 1000
    with serving(fake, state):
        waiting.start()
        with fake.changed:
            assert fake.changed.wait_for(lambda: bool(fake.requests), 10)
    (state / "api.json").unlink()
    fake.break_next = 0
    with serving(fake, state):
        waiting.join(20)
    assert ended == ["done"]


def test_wait_does_not_outlive_a_daemon_that_stays_away(daemon: FakeDaemon, state: Path) -> None:
    slept_s: list[float] = []
    daemon.break_next = 1000
    with (
        Client(state=state, outage_s=5, clock=lambda: sum(slept_s), sleep=slept_s.append) as client,
        pytest.raises(ConnectionBrokenError),
    ):
        client.wait(daemon.add("done"))
    assert sum(slept_s) >= 5


def test_a_log_up_to_now(client: Client, daemon: FakeDaemon) -> None:
    job_id = daemon.add("running")
    daemon.write(job_id, "one\ntwo\nthree ½".encode())
    assert list(client.logs(job_id)) == ["one", "two", "three ½"]
    assert b"".join(client.log_bytes(job_id, offset=4)).startswith(b"two\n")


def test_following_a_log_ends_with_the_job(client: Client, daemon: FakeDaemon) -> None:
    job_id = daemon.add("running")
    daemon.write(job_id, b"first\n")
    followed = client.logs(job_id, follow=True)
    assert next(followed) == "first"
    daemon.write(job_id, b"second\nlast")
    daemon.update(job_id, state="done")
    assert list(followed) == ["second", "last"]


def test_following_goes_on_where_a_connection_broke(client: Client, daemon: FakeDaemon) -> None:
    job_id = daemon.add("running")
    daemon.write(job_id, b"0123456789\n")
    daemon.cut_logs_after = [4, 0, 3]
    followed = client.log_bytes(job_id, follow=True)
    text = b""
    while len(text) < 11:
        text += next(followed)
    daemon.update(job_id, state="done")
    assert text + b"".join(followed) == b"0123456789\n"


def test_lines_may_arrive_in_any_pieces() -> None:
    whole = "a½b\r\n\nend".encode()
    for at in range(len(whole)):
        assert list(log_lines([whole[:at], whole[at:]])) == ["a½b", "", "end"]
    assert list(log_lines([b"\xff\n"])) == ["�"]
