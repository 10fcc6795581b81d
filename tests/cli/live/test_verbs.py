"""The live verbs as a user types them: ids and tables on stdout, talk on stderr, the right exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.live.command import trine
from tests.client.fake_daemon import FakeDaemon


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    monkeypatch.setenv("TRINE_STATE", str(state))


@pytest.fixture
def running(daemon: FakeDaemon) -> str:
    """A job that holds GPUs and tells how far it is."""
    return daemon.add(
        "running",
        name="[red]resnet[/red]",
        placement=[{"node": "n0", "gpus": [0, 1, 3]}, {"node": "n1", "gpus": [0]}],
        progress={"step": 40.0, "total": 100.0, "steps_per_s": 2.5, "at_s": 1.7e9},
    )


def test_queue_lists_live_jobs_with_place_progress_and_reason(daemon: FakeDaemon, running: str) -> None:
    daemon.add("waiting", name="next"), daemon.add("done", name="old")
    header, first, second = trine("queue").out.splitlines()
    assert header.split() == ["pos", "id", "name", "user", "state", "gpus", "where", "progress", "reason"]
    assert "[red]resnet[/red]" in first
    assert "n0:0-1,3 n1:0" in first
    assert "40 %" in first
    assert second.split()[:3] == ["1", "2", "next"]
    assert second.endswith("2 of 4 GPUs are free.")


def test_queue_never_cuts_or_breaks_lines_when_piped(daemon: FakeDaemon) -> None:
    long = "behind " + "many " * 200 + "jobs"
    daemon.add(reason={"code": "x", "sentence": long, "change": "", "counts": {}}, name="two\nlines\x1b[2J")
    lines = trine("queue").out.splitlines()
    assert len(lines) == 2
    assert lines[1].endswith(long)
    assert "\x1b" not in lines[1]


def test_queue_can_choose_states(daemon: FakeDaemon) -> None:
    for state in ("running", "done", "failed"):
        daemon.add(state)
    assert [job["id"] for job in trine("queue", "-o", "json").json] == ["1"]
    assert [job["id"] for job in trine("queue", "--all", "-o", "json").json] == ["1", "2", "3"]
    assert [job["id"] for job in trine("queue", "--only", "done,failed", "-o", "json").json] == ["2", "3"]


def test_an_empty_queue_is_a_header(daemon: FakeDaemon) -> None:
    assert trine("queue").out.split()[0] == "pos"
    assert trine("queue", "-o", "json").json == []


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["queue", "--only", "runing"], "did you mean 'running'?"),
        (["queue", "--watch", "-o", "json"], "--watch"),
        (["queue", "-o", "yaml"], "yaml"),
        (["queue", "--limit", "0"], "--limit"),
        (["nodes", "n9"], "unknown node 'n9'"),
        (["submit", "--gpus", "99", "--", "true"], "more GPUs than there are"),
        (["submit", "--gpus", "x", "--", "true"], "--gpus"),
        (["submit", "--steps", "nan", "--", "true"], "finite"),
        (["submit", "--"], "nothing after --"),
        (["submit", "--gpus", "1"], "no job"),
        (["submit", "python", "train.py"], "a command goes after --"),
        (["submit", "missing.yaml"], "missing.yaml"),
        (["submit", "--env", "NOT_SET_HERE", "--", "true"], "NOT_SET_HERE"),
        (["show"], "JOB"),
        (["token", "add", "no/user"], "no/user"),
        (["token", "revoke", "nobody"], "nobody"),
    ],
)
def test_wrong_usage_is_one_sentence_and_exit_2(daemon: FakeDaemon, arguments: list[str], part: str) -> None:
    done = trine(*arguments)
    assert (done.code, done.out) == (2, "")
    assert part in done.err
    assert "Traceback" not in done.err
    assert daemon.jobs == {}


def test_show_prints_names_and_values(daemon: FakeDaemon, running: str) -> None:
    lines = dict(line.split(None, 1) for line in trine("show", running).out.splitlines())
    assert (lines["state"], lines["where"]) == ("running", "n0:0-1,3 n1:0")
    assert lines["progress"].startswith("step 40 of 100 (40 %), 2.5 steps/s")
    assert "finished" not in lines
    assert trine("show", running, "-o", "json").json == daemon.jobs[running]


def test_explain_says_why_and_tells_the_story(daemon: FakeDaemon) -> None:
    job_id = daemon.add(gpus=1)
    text = trine("explain", job_id).out
    assert text.startswith(f"Job {job_id} (train, 1 GPU): waiting.\n  It needs 2 GPUs, 1 is free.\n")
    assert text.endswith("submitted\n")
    assert trine("explain", job_id, "-o", "json").json["story"][0]["what"] == "submitted"


def test_hold_release_and_cancel_take_several_jobs(daemon: FakeDaemon) -> None:
    one, two = daemon.add(), daemon.add()
    assert trine("hold", one, two).out == "1 held\n2 held\n"
    assert [job["state"] for job in trine("release", one, "-o", "json").json] == ["waiting"]
    assert trine("cancel", two).out == "2 cancelled\n"


def test_cancel_does_what_it_can_and_says_what_it_could_not(daemon: FakeDaemon) -> None:
    ended, live = daemon.add("done"), daemon.add()
    done = trine("cancel", ended, "77", live)
    assert (done.code, done.out) == (1, "2 cancelled\n")
    assert done.err == "trine: job 1 has ended (done)\ntrine: there is no job 77\n"


def test_logs_are_printed_byte_for_byte(daemon: FakeDaemon) -> None:
    job_id = daemon.add("done")
    daemon.write(job_id, "½ \x1b[1mbold\x1b[0m\nno end".encode())
    assert trine("logs", job_id).out == trine("logs", "-f", job_id).out == "½ \x1b[1mbold\x1b[0m\nno end"
    assert trine("logs", job_id, "-o", "json").json == {"id": job_id, "log": "½ \x1b[1mbold\x1b[0m\nno end"}


@pytest.mark.parametrize(
    ("jobs", "code"),
    [
        ([("done", 0)], 0),
        ([("failed", 7)], 7),
        ([("failed", -9)], 137),
        ([("failed", None)], 1),
        ([("failed", 0)], 1),
        ([("failed", 256)], 1),
        ([("cancelled", None)], 1),
        ([("done", 0), ("done", 0)], 0),
        ([("done", 0), ("failed", 7)], 1),
    ],
)
def test_wait_exits_with_the_status_of_the_job(daemon: FakeDaemon, jobs: list[tuple[str, int]], code: int) -> None:
    ids = [daemon.add(state, exit_code=status) for state, status in jobs]
    done = trine("wait", *ids)
    assert (done.code, done.err) == (code, "")
    assert [line.split()[:2] for line in done.out.splitlines()] == [[i, s] for i, (s, _) in zip(ids, jobs, strict=True)]


def test_wait_gives_up_with_124(daemon: FakeDaemon) -> None:
    job_id = daemon.add("running")
    done = trine("wait", job_id, "--timeout", "0.05", "-o", "json")
    assert done.code == 124
    assert [job["state"] for job in json.loads(done.out)] == ["running"]
    assert "has not ended in time" in done.err


def test_nodes_list_every_gpu(daemon: FakeDaemon) -> None:
    lines = trine("nodes").out.splitlines()
    assert len(lines) == 5
    assert lines[1].split() == ["n0", "r0", "up", "0", "v100", "1", "A=1.00", "B=1.25", "-", "-"]
    assert "drift" in lines[3]
    assert [node["name"] for node in trine("nodes", "n1", "-o", "json").json] == ["n1"]


def test_who_shares_gpus_with_whom_is_shown(daemon: FakeDaemon) -> None:
    job_id = daemon.add("running", gpus=1, placement=[{"node": "n0", "gpus": [0]}], shares_with="7")
    assert "n0:0 with 7" in trine("queue").out
    assert "shares with" in (shown := trine("show", job_id).out) and shown.split("shares with")[1].split()[0] == "7"
    assert "running on n0:0 with 7." in trine("explain", job_id).out
    daemon.nodes[0]["gpus"][0]["second_job"] = "7"
    assert trine("nodes").out.splitlines()[1].split()[5] == "1+7"
    assert trine("drain", "n0").out == "n0 drained, still held by 1, 7\n"


def test_drain_and_undrain_tell_the_new_state(daemon: FakeDaemon) -> None:
    assert trine("drain", "n0", "--reason", "fan").out == "n0 drained, still held by 1\n"
    assert daemon.nodes[0]["reason"] == "fan"
    assert trine("undrain", "n0", "-o", "json").json["state"] == "up"
    assert trine("drain", "n7").code == 1


def test_tokens_are_made_listed_and_revoked(daemon: FakeDaemon, state: Path) -> None:
    token = trine("token", "add", "ada").out.strip()
    assert len(token) == 64
    assert trine("token", "add", "bob", "-o", "json").json["user"] == "bob"
    assert [row.split()[1] for row in trine("token", "list").out.splitlines()] == ["user", "ada", "bob"]
    assert token not in (state / "tokens.json").read_text()
    assert trine("token", "revoke", "ada").out.endswith(" ada revoked\n")
    assert [entry["user"] for entry in trine("token", "list", "-o", "json").json] == ["bob"]
