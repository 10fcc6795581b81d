"""The live verbs as a user types them: ids and tables on stdout, talk on stderr, the right exit status."""

from __future__ import annotations

import json
import time
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
    # Columns that were there before stay where scripts expect them.
    assert header.split()[:8] == ["pos", "id", "name", "user", "state", "gpus", "where", "progress"]
    assert header.split()[8:] == ["elapsed", "waited", "limit", "reason"]
    assert "[red]resnet[/red]" in first
    assert "n0:0-1,3 n1:0" in first
    assert "40 %" in first
    assert second.split()[:3] == ["1", "2", "next"]
    assert second.endswith("2 of 4 GPUs are free.")


def test_queue_tells_how_long_jobs_run_and_wait_and_may_run(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(time, "time", lambda: 1.7e9 + 7_380.0)
    daemon.add("running", started_s=1.7e9 + 60, run_from_s=1.7e9 + 3_600, max_runtime_s=43_200.0)
    daemon.add("waiting")
    daemon.add("done", started_s=1.7e9 + 5, finished_s=1.7e9 + 50)
    daemon.add("cancelled", finished_s=1.7e9 + 86_400 * 2 + 7_200)
    header, *lines = [line.split() for line in trine("queue", "--all").out.splitlines()]
    at = header.index("elapsed")
    assert [line[at : at + 3] for line in lines] == [
        ["1h03m", "1m", "12h"],
        ["-", "2h03m", "-"],
        ["45s", "5s", "-"],
        ["-", "2d02h", "-"],
    ]


def test_queue_shows_the_expected_start_where_the_daemon_knows_it(daemon: FakeDaemon) -> None:
    daemon.add()
    assert " start " not in trine("queue").out
    daemon.update("1", expected_start_s=1.7e9)
    header, line = trine("queue").out.splitlines()
    assert " start " in header and line[header.index("start") :].startswith("2023-11-1")


def test_queue_says_how_many_jobs_it_does_not_show(daemon: FakeDaemon) -> None:
    for _ in range(5):
        daemon.add()
    done = trine("queue", "--limit", "2")
    assert (done.code, len(done.out.splitlines())) == (0, 3)
    assert done.err == "trine: 3 more jobs are not shown; --limit N shows more\n"
    done = trine("queue", "--limit", "2", "-o", "json")
    assert len(json.loads(done.out)) == 2 and "3 more jobs" in done.err
    assert trine("queue", "--limit", "5").err == ""


def test_queue_says_that_the_engine_cannot_be_asked(daemon: FakeDaemon) -> None:
    daemon.add()
    assert trine("queue").err == ""
    daemon.engine_down = "the engine slurm does not answer: squeue timed out"
    done = trine("queue")
    assert (done.code, done.err) == (0, "trine: the engine slurm does not answer: squeue timed out\n")
    assert len(done.out.splitlines()) == 2, "what was last seen is shown"


def test_queue_chooses_by_user_and_name(daemon: FakeDaemon) -> None:
    daemon.add(user="ada", name="sweep-1"), daemon.add(user="bob", name="sweep-2"), daemon.add(user="ada", name="x")
    assert [job["id"] for job in trine("queue", "--user", "ada", "-o", "json").json] == ["1", "3"]
    assert [job["id"] for job in trine("queue", "--name", "sweep-*", "-o", "json").json] == ["1", "2"]


@pytest.mark.parametrize("verb", ["queue", "show", "explain", "wait"])
def test_states_that_a_newer_daemon_has_are_shown(daemon: FakeDaemon, verb: str) -> None:
    job_id = daemon.add("timed out", finished_s=1.7e9 + 9)
    done = trine(verb, *(["--all"] if verb == "queue" else [job_id]))
    assert done.code == (1 if verb == "wait" else 0)
    assert "timed out" in done.out


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


def test_a_priority_is_changed_also_to_one_below_zero(daemon: FakeDaemon) -> None:
    job_id = daemon.add()
    assert trine("priority", job_id, "5").out == "1 waiting, priority 5\n"
    assert trine("priority", job_id, "-2.5", "-o", "json").json["priority"] == -2.5
    for wrong in ("high", "nan", "1e7"):
        done = trine("priority", job_id, wrong)
        assert done.code == 2 and "expected a number from -1,000,000 to 1,000,000" in done.err
    assert daemon.jobs[job_id]["priority"] == -2.5


def test_quotas_are_changed_and_listed(daemon: FakeDaemon) -> None:
    changed = trine("quota", "user:ann=16", "queue:prod=none").out.splitlines()
    assert [line.split()[:4] for line in changed[1:]] == [
        ["user:ann", "16", "none", "root"],
        ["queue:prod", "none", "none", "root"],
    ]
    assert daemon.quotas == {"user:ann": 16, "queue:prod": None}
    assert [quota["name"] for quota in trine("quota", "-o", "json").json] == ["ann", "prod"]
    assert trine("quota", "user:ann=default").out.splitlines()[1].split() == ["user:ann", "none", "none", "-", "-"]
    for wrong in (["ann=16"], ["user:ann=-1"], ["user:ann"], ["user:ann=1", "user:ann=2"]):
        done = trine("quota", *wrong)
        assert done.code == 2 and "expected" in done.err


def test_cancel_does_what_it_can_and_says_what_it_could_not(daemon: FakeDaemon) -> None:
    ended, live = daemon.add("done"), daemon.add()
    done = trine("cancel", ended, "77", live)
    assert (done.code, done.out) == (1, "2 cancelled\n")
    assert done.err == "trine: job 1 has ended (done)\ntrine: there is no job 77\n"


def test_cancel_takes_a_choice_instead_of_ids(daemon: FakeDaemon) -> None:
    daemon.add("running", name="keep"), daemon.add(name="sweep-1"), daemon.add("held", name="sweep-2")
    daemon.add(name="sweep-3", user="bob"), daemon.add("done", name="sweep-4")
    assert trine("cancel", "--name", "sweep-*", "--only", "waiting", "--user", "ada").out == "2 cancelled\n"
    assert trine("cancel", "--name", "sweep-*").out.split() == ["4", "cancelled", "3", "cancelled"]
    assert [job["id"] for job in trine("cancel", "--all", "-o", "json").json] == ["1"]
    done = trine("cancel", "--all")
    assert (done.code, done.out) == (0, "")
    assert "none matches" in done.err


@pytest.mark.parametrize("words", [["--name", "sweep"], list("12345")])
def test_of_an_array_those_that_wait_are_cancelled_before_those_whose_turn_it_is(
    daemon: FakeDaemon, words: list[str]
) -> None:
    """An element that ends passes its turn on: what is to be cancelled next would start for a moment."""
    for state in ("held", "running", "waiting", "waiting", "waiting"):
        daemon.add(state, name="sweep")
    assert trine("cancel", *words).code == 0
    cancelled = [line.split("/")[-2] for line in daemon.requests if line.endswith("/cancel")]
    assert cancelled == (list("54312") if words[0] == "--name" else list("54321"))


def test_a_choice_that_could_mean_something_else_cancels_nothing(daemon: FakeDaemon) -> None:
    daemon.add()
    for arguments, part in (
        (["1", "--all"], "both ids and a choice"),
        ([], "no job"),
        (["--only", "done"], "'done'"),
        (["--all", "--state", "waiting"], "--only waiting"),
    ):
        done = trine("cancel", *arguments)
        assert (done.code, done.out) == (2, "")
        assert part in done.err
    assert daemon.jobs["1"]["state"] == "waiting"


def test_logs_of_a_job_that_never_started_say_so(daemon: FakeDaemon) -> None:
    daemon.add("waiting"), daemon.add("cancelled"), daemon.add("done", attempt=1)
    done = trine("logs", "1")
    assert (done.code, done.out) == (0, "")
    assert done.err == "trine: job 1 has not started yet, so it wrote nothing: it is waiting\n"
    assert trine("logs", "2").err == trine("logs", "-f", "2").err
    assert "never started" in trine("logs", "2").err
    assert trine("logs", "3").err == ""


@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_logs_of_a_job_that_failed_without_a_word_say_why(daemon: FakeDaemon, follow: list[str]) -> None:
    reason = {"code": "failed", "sentence": "job 1 failed. pythn: not found in PATH", "change": "", "counts": {}}
    daemon.add("failed", attempt=1, reason=reason)
    done = trine("logs", *follow, "1")
    assert (done.code, done.out) == (0, "")
    assert done.err == "trine: job 1 wrote nothing: job 1 failed. pythn: not found in PATH\n"
    daemon.write("1", b"a word\n")
    assert trine("logs", *follow, "1").err == trine("logs", *follow, "--tail", "0", "1").err == ""


def test_show_tells_what_a_job_runs_and_where(daemon: FakeDaemon) -> None:
    daemon.add("done", command=["python", "train.py", "--name", "my run"], workdir="/home/ada/runs")
    lines = dict(line.split(maxsplit=1) for line in trine("show", "1").out.splitlines())
    assert (lines["command"], lines["workdir"]) == ("python train.py --name 'my run'", "/home/ada/runs")


def test_progress_that_is_known_only_from_a_checkpoint_has_no_time_and_no_speed(daemon: FakeDaemon) -> None:
    daemon.add("running", progress={"step": 53.0, "total": 300.0, "steps_per_s": 0.0, "at_s": 0.0})
    [line] = [line for line in trine("show", "1").out.splitlines() if line.startswith("progress")]
    assert line.split(maxsplit=1)[1] == "step 53 of 300 (18 %)"


@pytest.mark.parametrize("follow", [[], ["-f"]])
def test_logs_can_begin_with_the_last_lines(daemon: FakeDaemon, follow: list[str]) -> None:
    job_id = daemon.add("done")
    daemon.write(job_id, b"a\nb\nc\nno end")
    assert trine("logs", *follow, "--tail", "2", job_id).out == "c\nno end"
    assert trine("logs", *follow, "--tail", "0", job_id).out == ""
    assert trine("logs", *follow, "--tail", "9", job_id).out == "a\nb\nc\nno end"


def test_logs_of_other_ranks_are_shown(daemon: FakeDaemon) -> None:
    job_id = daemon.add("done")
    daemon.logs[f"{job_id}.1"] = b"rank one\n"
    assert trine("logs", "--rank", "1", job_id).out == trine("logs", "-f", "--rank", "1", job_id).out == "rank one\n"
    done = trine("logs", "--rank", "2", job_id)
    assert (done.code, done.err) == (1, f"trine: job {job_id} has no rank 2\n")


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
    assert trine("drain", "n7").code == 2


def test_single_gpus_are_drained_and_undrained(daemon: FakeDaemon) -> None:
    assert trine("drain", "n0:0", "--reason", "ecc").out == "n0:0 drained, still held by 1\n"
    (gpu,) = [row.split() for row in trine("nodes", "n0").out.splitlines() if row.split()[3:4] == ["0"]]
    assert (gpu[2], gpu[-1]) == ("drained", "ecc")
    assert daemon.nodes[0]["state"] == "up"
    assert trine("undrain", "n0:0").out == "n0:0 up\n"


def test_gpus_that_others_hold_are_shown_with_the_reason(daemon: FakeDaemon) -> None:
    daemon.nodes[0]["gpus"][1] |= {"withheld": True, "reason": "job 77 of alice"}
    (gpu,) = [row for row in trine("nodes", "n0").out.splitlines() if row.split()[3:4] == ["1"]]
    assert gpu.split()[2] == "withheld" and gpu.rstrip().endswith("job 77 of alice")


def test_undraining_a_node_says_that_its_gpus_are_back_too(daemon: FakeDaemon) -> None:
    trine("drain", "n0:0,1")
    assert trine("undrain", "n0").out == "n0 up, its GPUs 0-1, drained by themselves, too\n"
    assert not any(gpu["drained"] for gpu in daemon.nodes[0]["gpus"])


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        (("n0:0", "n0:9"), "no GPU 9 on n0; expected one of 0-1"),
        (("n0:0", "n7"), "unknown node 'n7'"),
        (("n0:",), "found 'n0:'; expected indices of GPUs, as in node0:3"),
        (("n0:3-1",), "found 'n0:3-1'"),
        (("n0:x",), "found 'n0:x'"),
    ],
)
def test_of_several_places_either_all_are_drained_or_none(
    daemon: FakeDaemon, places: tuple[str, ...], sentence: str
) -> None:
    done = trine("drain", *places)
    assert (done.code, done.out) == (2, "")
    assert sentence in done.err
    assert all(node["state"] == "up" for node in daemon.nodes)
    assert not any(gpu.get("drained") for node in daemon.nodes for gpu in node["gpus"])


@pytest.mark.parametrize("line", [["add", "ada"], ["list"], ["revoke", "ada"]], ids=lambda line: line[0])
def test_tokens_are_not_managed_over_the_api(
    daemon: FakeDaemon, state: Path, monkeypatch: pytest.MonkeyPatch, line: list[str]
) -> None:
    monkeypatch.setenv("TRINE_API", "http://127.0.0.1:9")
    done = trine("token", *line)
    assert (done.code, done.out) == (2, "")
    assert "TRINE_API" in done.err and "--state" in done.err
    assert not (state / "tokens.json").exists()
    assert trine("token", "list", "--state", state).code == 0


def test_tokens_are_made_listed_and_revoked(daemon: FakeDaemon, state: Path) -> None:
    token = trine("token", "add", "ada").out.strip()
    assert len(token) == 64
    assert trine("token", "add", "bob", "-o", "json").json["user"] == "bob"
    assert [row.split()[1] for row in trine("token", "list").out.splitlines()] == ["user", "ada", "bob"]
    assert token not in (state / "tokens.json").read_text()
    assert trine("token", "revoke", "ada").out.endswith(" ada revoked\n")
    assert [entry["user"] for entry in trine("token", "list", "-o", "json").json] == ["bob"]


def test_states_of_two_words_may_be_written_with_a_hyphen() -> None:
    from trine.cli.live.queue import states_of
    from trine.client.answers import ENDED, LIVE

    assert states_of(["set-aside,timed out"], [*LIVE, *ENDED]) == ["set aside", "timed out"]
