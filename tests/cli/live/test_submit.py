"""``trine submit``: what reaches the daemon, and what is said when nothing does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.live.command import trine
from tests.client.fake_daemon import FakeDaemon

TWO_JOBS = """\
name: first
run: python train.py
gpus: {count: 4, types: [v100]}
env: {A: "1", B: "2"}
checkpoint: {dir: /data/ckpt, grace_s: 60}
---
run: [echo, two words]
gpus: 1
"""


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch, state: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("TRINE_STATE", str(state))
    monkeypatch.chdir(tmp_path)


def test_a_command_is_submitted_as_it_was_typed(daemon: FakeDaemon, tmp_path: Path) -> None:
    done = trine("submit", "--gpus", "2", "--", "sh", "-c", "echo $HOME; exit 3", "--gpus", "--", "x")
    assert (done.code, done.out, done.err) == (0, "1\n", "")
    spec = daemon.specs["1"]
    assert spec["run"] == ["sh", "-c", "echo $HOME; exit 3", "--gpus", "--", "x"]
    assert (spec["gpus"], spec["workdir"]) == ({"count": 2}, str(tmp_path))


def test_every_option_reaches_the_daemon(daemon: FakeDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FROM_HERE", "yes")
    options = "--gpus 4 --gpu-types v100,p100 --nodes 2 --ranks node --name n --queue q --user u --priority 2 --model m"
    options += " --class A --steps 100 --env K=V=W --env FROM_HERE --workdir sub --checkpoint-dir /c --grace 5"
    options += " --max-runtime 2h --deadline 3600 --retries 2 --no-preempt --min-run 10m --export none"
    options += " --after 7 --after any:8,9 --array 0-3%2"
    assert trine("submit", *options.split(), "--", "true").code == 0
    assert daemon.specs["1"] == {
        **{"run": ["true"], "workdir": str(tmp_path / "sub"), "gpus": {"count": 4, "types": ["v100", "p100"]}},
        **{"nodes": 2, "ranks": "node", "name": "n", "queue": "q", "user": "u", "priority": 2.0, "model": "m"},
        **{"class": "A", "steps": 100.0, "env": {"K": "V=W", "FROM_HERE": "yes"}, "max_runtime": "2h"},
        **{"checkpoint": {"dir": "/c", "grace_s": 5.0}, "deadline": 3600.0},
        **{"retries": 2, "preemptible": False, "min_run": "10m", "after": "7,any:8,9", "array": "0-3%2"},
    }


def test_the_daemon_understands_what_a_command_line_becomes(daemon: FakeDaemon) -> None:
    import json

    from trine.inputs.job_spec import parse_jobs

    trine("submit", "--gpus", "2", "--class", "A", "--grace", "5", "--max-runtime", "90m", "--", "python", "x.py")
    [spec] = parse_jobs(json.dumps(daemon.specs["1"]))
    assert (spec.gpus.count, spec.app_class, spec.name, spec.max_runtime) == (2, "A", "x.py", 5400.0)


def test_files_hold_one_job_or_several_and_all_ids_are_printed(daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(TWO_JOBS)
    (tmp_path / "one.yaml").write_text("run: 'true'\n")
    assert trine("submit", "two.yaml", "one.yaml").out == "1\n2\n3\n"
    assert daemon.specs["1"]["run"] == ["python", "train.py"]
    assert daemon.specs["2"]["run"] == ["echo", "two words"]
    assert daemon.specs["3"]["workdir"] == str(tmp_path)
    assert len([request for request in daemon.requests if request.startswith("POST")]) == 1


def test_options_override_files_key_by_key(daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(TWO_JOBS)
    trine("submit", "--gpus", "2", "--env", "B=3", "--grace", "5", "--export", "none", "two.yaml")
    spec = daemon.specs["1"]
    assert spec["gpus"] == {"count": 2, "types": ["v100"]}
    assert spec["env"] == {"A": "1", "B": "3"}
    assert spec["checkpoint"] == {"dir": "/data/ckpt", "grace_s": 5.0}


def test_a_typo_in_a_file_is_named_with_its_line_and_nothing_is_submitted(daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("run: 'true'\n")
    (tmp_path / "job.yaml").write_text("run: 'true'\ngpu: 4\n")
    done = trine("submit", "good.yaml", "job.yaml")
    assert (done.code, done.out) == (2, "")
    assert "job.yaml:2: " in done.err
    assert "did you mean 'gpus'?" in done.err
    assert daemon.requests == []


def test_json_holds_the_ids_and_the_request_id_makes_a_second_try_safe(daemon: FakeDaemon) -> None:
    first = trine("submit", "-o", "json", "--", "true").json
    assert first["ids"] == ["1"]
    assert trine("submit", "--request-id", first["request_id"], "--", "true").out == "1\n"
    assert len(daemon.jobs) == 1


def test_a_connection_that_stays_broken_tells_how_to_try_again(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon.break_next = 100
    done = trine("submit", "--request-id", "abc", "--", "true")
    assert (done.code, done.out) == (1, "")
    assert "--request-id abc" in done.err


@pytest.mark.parametrize("trouble", ["timeout", "unknown"])
def test_without_an_answer_the_request_id_is_told(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    from trine.client import client, transport

    monkeypatch.setattr(transport, "_AGAIN_AFTER_S", (0.0,))
    if trouble == "timeout":
        impatient = (client.Client.__init__.__kwdefaults__ or {}) | {"timeout_s": 0.2}
        monkeypatch.setattr(client.Client.__init__, "__kwdefaults__", impatient)
        daemon.answering.clear()
    else:
        daemon.refuse_next = [(503, "unknown")] * 9
    done = trine("submit", "--", "true")
    daemon.answering.set()
    [request_id] = daemon.by_request
    assert (done.code, done.out) == (1, "")
    assert (
        f"whether the jobs were accepted is not known; to be sure, submit again with --request-id {request_id}"
        in done.err
    )
    daemon.refuse_next = []
    assert trine("submit", "--request-id", request_id, "--", "true").out == "1\n"


@pytest.mark.parametrize(
    ("name", "text", "how"),
    [
        ("train.py", "import torch\n", "trine submit -- python train.py\n"),
        ("job.sh", "#!/bin/bash\npython train.py\n", "trine submit -- bash job.sh\n"),
        ("job", "#!/usr/bin/env -S zsh -e\ntrue\n", "trine submit -- zsh job\n"),
        (
            "job.sbatch",
            "#!/bin/bash -l\n#SBATCH --gres=gpu:2\ntrue\n",
            "trine submit -- bash job.sbatch; its #SBATCH lines are not read, say the same with options\n",
        ),
    ],
)
def test_a_script_in_place_of_a_job_file_is_told_how_to_be_run(
    daemon: FakeDaemon, tmp_path: Path, name: str, text: str, how: str
) -> None:
    (tmp_path / name).write_text(text)
    done = trine("submit", name)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"trine: {name}: a script; expected a job file (YAML); to run the script: {how}"
    assert not daemon.specs


def test_a_job_file_may_begin_as_a_script_does(daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text('#!/usr/bin/env -S trine submit\nrun: ["true"]\n')
    assert trine("submit", "job.yaml").out == "1\n"
    assert daemon.specs["1"]["run"] == ["true"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [(["--after", ""], "ids of jobs"), (["--after", "1", "--after", " "], "ids of jobs"), (["--array", ""], "indices")],
)
def test_an_empty_variable_in_place_of_ids_submits_nothing(daemon: FakeDaemon, words: list[str], expected: str) -> None:
    """As in ``trine submit --after "$id"`` after a submission that failed: the job would start at once."""
    done = trine("submit", *words, "--", "true")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"trine: {words[-2]}: {words[-1]!r}; expected {expected}")
    assert not daemon.specs


@pytest.mark.parametrize(
    ("option", "ours"),
    [("--gres=gpu:2", "--gpus"), ("--partition=p", "--queue"), ("-p", "--queue"), ("--time=1:00:00", "--max-runtime")],
)
def test_an_option_of_sbatch_is_told_what_it_is_called_here(daemon: FakeDaemon, option: str, ours: str) -> None:
    done = trine("submit", option, "--", "true")
    assert (done.code, done.out) == (2, "")
    name = option.partition("=")[0]
    assert done.err == f"trine: submit: {name}, an option of sbatch; expected {ours}\n"
    assert not daemon.specs


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("request: array: found '5-1'; expected indices", "trine: --array: found '5-1'; expected indices\n"),
        ("request: gpus.count: found -1; expected a number", "trine: --gpus: found -1; expected a number\n"),
        ("request: max_runtime: found 'x'; expected seconds", "trine: --max-runtime: found 'x'; expected seconds\n"),
        ("job 'x' can never run: it is too large", "trine: job 'x' can never run: it is too large\n"),
    ],
)
def test_what_is_wrong_with_an_option_is_said_of_the_option(
    daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, said: str, shown: str
) -> None:
    from trine.client import Client
    from trine.client.errors import RefusedError

    def refused(*_: object) -> list[str]:
        raise RefusedError(422, "invalid", said)

    monkeypatch.setattr(Client, "submit", refused)
    done = trine("submit", "--", "true")
    assert (done.code, done.err) == (2, shown)
