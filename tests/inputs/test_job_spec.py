"""Job specifications: what people may write, and what they are told when it is not right."""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.inputs.job_specs import from_command
from trine.core.errors import InputError
from trine.inputs.job_file import read_job_file
from trine.inputs.job_spec import JobSpec, parse_jobs, recorded_job

EVERY_KEY = """\
name: bert base
run: python train.py --name 'my run' --lr 0.1
workdir: code
env: {SEED: 7, EMPTY: ""}
gpus: {count: 8, types: [v100, 3090]}
nodes: 2
ranks: node
model: bert
class: A
queue: research
user: anna
priority: 5
checkpoint: {dir: /data/ckpt//a, grace_s: 60}
topology: {required: rack, preferred: node, max_wait_s: 600}
deadline: 2030-01-31T18:00:00+01:00
max_runtime: 90m
steps: 1e6
retries: 3
preemptible: false
min_run: 10m
"""


def job_file(folder: Path, text: str) -> Path:
    path = folder / "job.yaml"
    path.write_text(text)
    return path


def test_every_key_is_read(tmp_path: Path) -> None:
    (job,) = read_job_file(job_file(tmp_path, EVERY_KEY))
    assert job.run == ("python", "train.py", "--name", "my run", "--lr", "0.1")
    assert (job.name, job.model, job.app_class, job.queue, job.user) == ("bert base", "bert", "A", "research", "anna")
    assert job.workdir == str(tmp_path / "code")
    assert job.env == {"SEED": "7", "EMPTY": ""}
    assert (job.gpus.count, job.gpus.types, job.nodes, job.ranks) == (8, ("v100", "3090"), 2, "node")
    assert (job.checkpoint.dir, job.checkpoint.grace_s) == ("/data/ckpt/a", 60.0)
    assert (job.topology.required, job.topology.preferred, job.topology.max_wait_s) == ("rack", "node", 600.0)
    assert job.deadline_s(submitted_s=5.0) == datetime(2030, 1, 31, 17, tzinfo=UTC).timestamp()
    assert (job.max_runtime, job.steps, job.priority) == (5_400.0, 1e6, 5.0)
    assert (job.retries, job.preemptible, job.min_run) == (3, False, 600.0)


def test_a_command_is_enough() -> None:
    job = from_command(["/usr/bin/python3", "train.py", "$HOME; rm -rf /"])
    assert job.run[2] == "$HOME; rm -rf /"
    assert (job.name, job.gpus.count, job.gpus.types, job.ranks) == ("train.py", 1, (), "node")
    assert job.workdir is None and job.deadline_s(0.0) is None


def test_command_line_options_are_checked_like_a_file() -> None:
    assert from_command(["train"], gpus=4, max_runtime="2h", model=None).max_runtime == 7_200.0
    with pytest.raises(InputError, match=r"command line: gpus: found 0; expected a whole number of GPUs from 1"):
        from_command(["train"], gpus=0)


def test_a_file_may_hold_several_jobs(tmp_path: Path) -> None:
    text = "# sweep\n---\nrun: [train, --lr, 0.1]\n---\n# the second\nrun: train --lr 1\ngpus: 2\n---\n"
    jobs = read_job_file(job_file(tmp_path, text), workdir="/data/here")
    assert [job.run[-1] for job in jobs] == ["0.1", "1"]
    assert {job.workdir for job in jobs} == {"/data/here"}


@pytest.mark.parametrize(
    ("deadline", "at_s"),
    [("3600", 4_600.0), ("2h", 8_200.0), ("1.5d", 130_600.0), ("2:00:00", 8_200.0), ("1970-01-01T01:00:00Z", 3_600.0)],
)
def test_a_deadline_counts_from_submission_or_is_a_time(tmp_path: Path, deadline: str, at_s: float) -> None:
    (job,) = read_job_file(job_file(tmp_path, f"run: train\ndeadline: {deadline}\n"))
    assert job.deadline_s(submitted_s=1_000.0) == at_s


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2:00:00", 7_200.0),
        ("02:00:00", 7_200.0),
        ("100:00:01", 360_001.0),
        ("1-12:30:05", 131_405.0),
        ("0-00:30", 1_800.0),
        ("2-6", 194_400.0),
    ],
)
def test_durations_may_be_written_as_slurm_writes_them(tmp_path: Path, text: str, seconds: float) -> None:
    (job,) = read_job_file(job_file(tmp_path, f"run: train\nmax_runtime: {text}\ndeadline: {text}\n"))
    assert (job.max_runtime, job.deadline_s(0.0)) == (seconds, seconds)
    assert parse_jobs(json.dumps({"run": "train", "max_runtime": text}))[0].max_runtime == seconds


@pytest.mark.parametrize("name", ["Prüfung", "实验 7", "обучение-1", "प्रशिक्षण", "تدريب", "été (2)"])
def test_names_may_use_the_letters_of_any_language(tmp_path: Path, name: str) -> None:
    (job,) = read_job_file(job_file(tmp_path, f"run: train\nname: {name}\n"))
    assert job.name == name
    assert parse_jobs(job.as_json()) == [job]


def test_names_that_look_the_same_are_the_same() -> None:
    (job,) = parse_jobs(json.dumps({"run": "train", "name": "Pru\u0308fung"}))
    assert job.name == "Prüfung"


def test_a_program_lends_its_name_in_any_language() -> None:
    assert from_command(["/opt/..Prüfung!.sh"]).name == "Prüfung_.sh"
    assert from_command(["/opt/--"]).name == "job"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python3.11 -u src/train.py --config base.py", "train.py"),
        ("/opt/env/bin/torchrun --nproc-per-node 2 train.py", "train.py"),
        ("bash job.sh", "job.sh"),
        ("python -m torch.distributed.run --master-port=1 train.py", "train.py"),
        ("python -m mypackage.train", "python"),
        ("./prepare data.py", "prepare"),
    ],
)
def test_a_job_is_called_after_the_script_it_runs(command: str, name: str) -> None:
    assert from_command(command.split()).name == name


def test_a_line_for_the_shell_is_no_name() -> None:
    assert from_command(["sh", "-c", "cd /data && python train.py"]).name == "sh"


@pytest.mark.parametrize(
    "name", ["a\nb", "a\u202eb", "a\u2066b", "a\u200bb", "a\x9bb", "a\u2028b", "a\ue000b", "a🙂", "\u0308a", " a"]
)
def test_names_that_could_deceive_a_reader_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="expected up to 128 letters of any language"):
        parse_jobs(json.dumps({"run": "train", "name": name}))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus: 2\n", "job.yaml:1: run: found nothing; expected a command"),
        ("run: train\ngpu: 2\n", "job.yaml:2: unknown key 'gpu' (did you mean 'gpus'?)"),
        ("run: train\ngpus:\n  cout: 2\n", "job.yaml:3: gpus: unknown key 'cout' (did you mean 'count'?)"),
        ("run: train\ngpus:\n  count: 2\n  types: any/all\n", "job.yaml:4: gpus.types: found 'any/all'"),
        ("run: train\ngpus: 2.5\n", "job.yaml:2: gpus: found 2.5; expected a whole number of GPUs from 1 to 100,000"),
        ("run: train\ngpus: '4'\n", "job.yaml:2: gpus: found '4'"),
        ("run: train\n\ngpus: [1]\n", "job.yaml:3: gpus: found a list"),
        ("run: cd x && train\n", "found '&&', which only a shell understands"),
        ("run: |\n  cd x\n  train\n", "found a line break, which only a shell understands"),
        ("run: train 'a\n", "found a quote that is not closed"),
        ("run: ''\n", "job.yaml:1: run: found ''"),
        ("run: train\nnodes: 3\ngpus: 4\n", "job.yaml:2: nodes: found 3 nodes for 4 GPUs"),
        ("run: train\nname: ../etc/passwd\n", "job.yaml:2: name: found '../etc/passwd'; expected up to 128 letters"),
        ("run: train\nenv: {LD: {a: b}}\n", "job.yaml:2: env.LD: found a mapping"),
        ("run: train\nenv: {DEBUG: true}\n", "job.yaml:2: env.DEBUG: found 'true'; expected text"),
        ("run: train\nenv: {A=B: x}\n", "found variable 'A=B'"),
        ("run: train\nenv:\n  TRINE_JOB_ID: x\n", "found variable 'TRINE_JOB_ID'"),
        ("run: train\ntopology: {required: node, preferred: rack}\n", "which is wider than required node"),
        ("run: train\ntopology: {required: nod}\n", "topology.required: found 'nod'; expected node, rack or network"),
        ("run: train\nmax_runtime: 90min\n", "max_runtime: found '90min'; expected seconds, or a duration such as 90m"),
        ("run: train\nmax_runtime: -1\n", "max_runtime: found -1"),
        (
            "run: train\nmax_runtime: 2:00\n",
            "max_runtime: found '2:00'; expected seconds, or a duration such as 90m, 2h",
        ),
        ("run: train\nmax_runtime: 0:00:00\n", "max_runtime: found 0"),
        ("run: train\nmax_runtime: 1:60:00\n", "max_runtime: found '1:60:00'"),
        ("run: train\nmax_runtime: 1-24:00:00\n", "max_runtime: found '1-24:00:00'"),
        ("run: train\ndeadline: 2030-01-31T18:00:00\n", "deadline: found a time without a zone"),
        ("run: train\ndeadline: soon\n", "deadline: found 'soon'; expected seconds from submission"),
        ("run: train\nsteps: 0\n", "steps: found 0; expected a number of training steps from 1 to 1e15"),
        ("run: train\nsteps: 0.5\n", "steps: found 0.5; expected a number of training steps from 1 to 1e15"),
        ("run: train\nmax_runtime: 5e-324\n", "max_runtime: found 5e-324; expected seconds, or a duration"),
        ("run: train\nmin_run: 0\n", "min_run: found 0; expected seconds, or a duration such as 10m"),
        ("run: train\ndeadline: 1e-9\n", "deadline: found 1e-09; expected seconds from submission (1 ms or more)"),
        ("run: train\nmax_runtime: 1\nsteps: 1e15\n", "steps: found 1e+15 steps in 1 s; expected a number of"),
        ("run: train\nmax_runtime: 8e10\nsteps: 1\n", "steps: found 1 steps in 8e+10 s; expected a number of"),
        ("run: train\nranks: core\n", "ranks: found 'core'; expected node (one process per node, for all"),
        ("run: torchrun a.py\ngpus: 2\nranks: gpu\n", "job.yaml:3: ranks: found gpu for torchrun, which starts a"),
        ("run: train\nretries: -1\n", "retries: found -1; expected how often a job that fails by itself"),
        ("run: train\nretries: 1001\n", "retries: found 1001"),
        ("run: train\nretries: 1.5\n", "retries: found 1.5"),
        ("run: train\npreemptible: 0\n", "preemptible: found 0; expected true or false"),
        ("run: train\npreemptible: [a]\n", "preemptible: found a list; expected true or false"),
        ("run: train\nsteps: .inf\n", "steps: found '.inf'"),
        ("run: train\ncheckpoint: yes\n", "checkpoint: found 'yes'; expected a mapping such as"),
        ("run: train\n---\nrun: x\ngpus: 0\n", "job.yaml:4: gpus: found 0"),
        ("- run: train\n", "expected a mapping of keys to values"),
        ("", "the file is empty"),
        ("run: a\nrun: b\n", "found twice"),
    ],
)
def test_mistakes_are_named_with_file_line_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_job_file(job_file(tmp_path, text))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [
        '{"run": "train", "workdir": "/data/../etc"}',
        '{"run": "train", "workdir": "data"}',
        '{"run": "train", "workdir": "/data/\\u0000"}',
        '{"run": "train", "workdir": "/data\\nx"}',
        '{"run": "train", "checkpoint": {"dir": "/x/.."}}',
        '{"run": "train", "name": "a/b"}',
        '{"run": "train", "name": "a\\u001b[2J"}',
        '{"run": "train", "user": "../root"}',
        '{"run": ["train", "a\\u0000b"]}',
        '{"run": []}',
        '{"run": [" "]}',
        '{"run": "train", "steps": NaN}',
        '{"run": "train", "priority": Infinity}',
        '{"run": "train", "priority": 1e999}',
        '{"run": "train", "deadline": NaN}',
        '{"run": "train", "min_run": NaN}',
        '{"run": "train", "retries": true}',
        '{"run": "train", "preemptible": "false"}',
        '{"run": "train", "checkpoint": {"grace_s": Infinity}}',
        '{"run": "train", "topology": {"max_wait_s": Infinity}}',
        '{"run": "train", "gpus": true}',
        '{"run": "train", "gpus": 100001}',
        '{"run": "train", "gpus": 1e400}',
        '{"run": "train", "app_class": "A"}',
        '{"run": "train", "env": {"A": 1}}',
        '{"run": "train", "env": {"PATH\\n": "x"}}',
        '{"run": "train", "env": {"PATH\\n": 1}}',
        '{"run": "train", "PATH\\n": 1}',
        '{"run": "\\ud800"}',
        '{"run": "train"',
        "[]",
        "null",
        "",
        '{"jobs": []}',
        '{"jobs": {}}',
        '{"jobs": [{"run": "train"}], "env": []}',
        '{"jobs": [{"run": "train"}], "more": 1}',
        '{"jobs": [1]}',
        '{"jobs": [{"run": "train", "env": 1}], "env": {"A": "b"}}',
        '{"jobs": [{"run": "train"}], "env": {"RANK": "1"}}',
        '{"jobs": [{"run": "train", "gpus": 0}]',
        '{"jobs": ' + "[" * 100_000,
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_json_that_is_not_a_job_is_refused_in_one_sentence(body: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_jobs(body)
    assert len(str(caught.value)) < 700 and str(caught.value).isprintable()


@pytest.mark.parametrize(
    "keys",
    [
        {"run": ["x" * 40_000, "y" * 40_000]},
        {"run": ["x"] * 5_000},
        {"env": {f"V{i}": "" for i in range(129)}},
        {"env": {"V": "x" * 70_000}},
        {"name": "x" * 129},
        {"workdir": "/" + "x" * 1_024},
        {"gpus": {"count": 1, "types": [f"t{i}" for i in range(65)]}},
    ],
)
def test_every_field_has_a_largest_size(keys: dict[str, object]) -> None:
    with pytest.raises(InputError):
        from_command(**{"command": keys.pop("run", ["x"]), **keys})  # type: ignore[arg-type]


def test_a_yaml_bomb_stays_small(tmp_path: Path) -> None:
    levels = "".join(f"{chr(97 + i)}: &{chr(97 + i)} [{', '.join(['*' + chr(96 + i)] * 9)}]\n" for i in range(1, 12))
    bomb = job_file(tmp_path, f"a: &a [{', '.join(['lol'] * 9)}]\n{levels}run: *l\n")
    started_s = time.process_time()
    with pytest.raises(InputError, match="once aliases"):
        read_job_file(bomb)
    assert time.process_time() - started_s < 2.0


def test_a_smaller_bomb_in_a_list_of_arguments_is_refused_too(tmp_path: Path) -> None:
    nested = "x: &a [b, b, b]\nrun: [*a, *a]\n"
    with pytest.raises(InputError, match=r"run\[0\]: found a list"):
        read_job_file(job_file(tmp_path, nested))


def test_files_that_are_no_job_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_job_file(tmp_path / "missing.yaml")
    with pytest.raises(InputError, match="4 MB"):
        read_job_file(job_file(tmp_path, "#" * 4_000_001))
    with pytest.raises(InputError, match="at most 1,000 jobs in a file"):
        read_job_file(job_file(tmp_path, "---\nrun: x\n" * 1_001))


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


@given(
    run=st.lists(TEXT, max_size=5).map(lambda words: ["train", *words]),
    gpus=st.integers(1, 100_000),
    env=st.dictionaries(st.from_regex(r"[A-Q_][A-Z0-9_]{0,9}", fullmatch=True), TEXT, max_size=5),
    deadline=st.none() | st.floats(0.1, 1e9) | st.datetimes(timezones=st.just(UTC)).map(datetime.isoformat),
    priority=st.floats(-1e6, 1e6),
)
@settings(max_examples=100, deadline=None)
def test_the_json_form_reads_back_as_the_same_job(
    run: list[str], gpus: int, env: dict[str, str], deadline: object, priority: float
) -> None:
    env = {f"X{name}": value for name, value in env.items()}
    job = from_command(run, gpus, env=env, deadline=deadline, priority=priority, **{"class": "B"})
    assert parse_jobs(job.as_json()) == [job]
    assert JobSpec.model_validate_json(job.model_dump_json(by_alias=True)) == job


def test_relative_directories_are_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").mkdir()
    job_file(tmp_path / "jobs", "run: train\nworkdir: ../code\ncheckpoint: {dir: ckpt}\n")
    monkeypatch.chdir(tmp_path)
    (job,) = read_job_file(os.path.join("jobs", "job.yaml"))  # noqa: PTH118
    assert job.workdir == str(tmp_path / "code")
    assert job.checkpoint.dir == str(tmp_path / "jobs" / "ckpt")


@pytest.mark.parametrize(
    ("numbers", "moved"),
    [
        ({"steps": 1e15, "max_runtime": 5e-324}, {"steps": 1e9, "max_runtime": 1e-3}),
        ({"steps": 0.25, "deadline": 1e-9}, {"steps": 1.0, "deadline": 1e-3}),
        ({"steps": 1, "max_runtime": 8e10}, {"steps": 80.0, "max_runtime": 8e10}),
        ({"steps": 1e300, "priority": float("inf")}, {"steps": 1e15, "priority": 1e6}),
        ({"steps": float("nan"), "max_runtime": 60}, {"steps": None, "max_runtime": 60.0}),
        ({"steps": 1e15, "max_runtime": 1.0}, {"steps": 1e12, "max_runtime": 1.0}),
    ],
)
def test_a_job_on_record_is_read_with_the_nearest_numbers_that_are_accepted(
    numbers: dict[str, float], moved: dict[str, float | None]
) -> None:
    job = recorded_job({"run": ["train"], **numbers, "checkpoint": {"dir": "/data", "grace_s": 1e9}})
    assert {key: getattr(job, key) for key in moved} == pytest.approx(moved, nan_ok=False)
    assert (job.checkpoint.dir, job.checkpoint.grace_s) == ("/data", 3_600.0)
    assert parse_jobs(job.as_json()) == [job]


@pytest.mark.parametrize(
    "command",
    [
        ["/opt/env/bin/torchrun", "train.py"],
        ["python3.11", "-u", "-m", "torch.distributed.run", "--nproc-per-node", "2", "train.py"],
        ["accelerate", "launch", "train.py"],
        ["deepspeed", "train.py"],
        ["env", "A=1", "torchrun", "train.py"],
        ["uv", "run", "--frozen", "torchrun", "train.py"],
        ["bash", "-ec", "cd src && torchrun train.py"],
    ],
)
def test_a_launcher_per_gpu_is_refused_and_one_per_node_is_not(command: list[str]) -> None:
    with pytest.raises(InputError, match=r"ranks: found gpu for .*: a whole training per GPU; expected node"):
        from_command(command, gpus=2, ranks="gpu")
    assert from_command(command, gpus=2).ranks == "node"
    assert from_command(command, gpus=2, nodes=2, ranks="gpu").nodes == 2, "one per GPU is one per node there"


@pytest.mark.parametrize("command", [["python", "train.py", "torchrun"], ["accelerate", "env"], ["bash", "train.sh"]])
def test_a_plain_program_may_run_once_per_gpu(command: list[str]) -> None:
    assert from_command(command, gpus=2, ranks="gpu").ranks == "gpu"


def test_variables_common_to_several_jobs_go_below_their_own() -> None:
    one, two = parse_jobs('{"jobs": [{"run": "a", "env": {"A": "1"}}, {"run": "b"}], "env": {"A": "2", "B": "3"}}')
    assert (one.env, two.env) == ({"A": "1", "B": "3"}, {"A": "2", "B": "3"})
    with pytest.raises(InputError, match=r"request\[1\]: gpus: found 0"):
        parse_jobs('{"jobs": [{"run": "a"}, {"run": "b", "gpus": 0}]}')
