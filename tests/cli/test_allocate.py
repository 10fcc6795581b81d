"""``trine allocate`` as a user types it: the answer as JSON and as a table, errors as one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from trine.cli.main import app
from trine.core.errors import InputError

PROBLEM: dict[str, Any] = {
    "workers": {"v100": 1, "p100": 2, "k80": 3},
    "jobs": [
        {"id": 0, "throughput": {"v100": 2.0, "p100": 1.0, "k80": 0.5}, "steps_left": 300},
        {"id": 1, "throughput": {"v100": 3.0, "p100": 2.0, "k80": 1.0}, "steps_left": 500},
    ],
}
PAIRED = PROBLEM | {
    "workers": {"v100": 1, "p100": 1, "k80": 1},
    "pairs": [{"jobs": [0, 1], "throughput": {"v100": [2, 3], "p100": [1, 2], "k80": [0.5, 1]}}],
}
KEYS = {"shares", "pair_shares", "effective_throughput", "objective", "gap", "solver", "cpu_s"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "problem.json"


def run(path: Path, document: Any, *options: str) -> Any:
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return CliRunner().invoke(app, ["allocate", str(path), *options])


def answer(path: Path, document: Any, *options: str) -> dict[str, Any]:
    done = run(path, document, "--json", *options)
    assert done.exit_code == 0, done.exception
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def sentence(path: Path, document: Any, *options: str) -> str:
    """The one sentence the command ends with, as an input error."""
    done = run(path, document, *options)
    assert isinstance(done.exception, InputError), done.output
    assert not done.stdout
    return str(done.exception)


def test_the_object_other_programs_rely_on(path: Path) -> None:
    found = answer(path, PROBLEM, "--policy", "max-min-fairness")
    assert set(found) == KEYS
    assert found["shares"]["0"] == pytest.approx({"k80": 0, "p100": 18 / 31, "v100": 13 / 31}, abs=1e-6)
    assert found["effective_throughput"] == pytest.approx({"0": 44 / 31, "1": 80 / 31})
    assert found["objective"] == pytest.approx(48 / 31)
    assert 0 <= found["gap"] <= 1e-6 and found["pair_shares"] == [] and found["cpu_s"] >= 0


def test_pairs_in_and_out(path: Path) -> None:
    found = answer(path, PAIRED, "--policy", "hierarchical")
    (row,) = found["pair_shares"]
    assert row.pop("jobs") == [0, 1]
    assert row == pytest.approx({"k80": 0, "p100": 0, "v100": 1}, abs=1e-6)
    apart = answer(path, PAIRED, "--policy", "max-min-fairness", "--set", "space_sharing=false")
    assert apart["objective"] < 1.5


def test_levels_of_a_hierarchy(path: Path) -> None:
    jobs = [job | {"entity": "ab"[i]} for i, job in enumerate(PROBLEM["jobs"])]
    document = {"workers": {"v100": 1}, "jobs": jobs, "entities": {"a": {"weight": 1}, "b": {"weight": 3}}}
    for job in document["jobs"]:
        job["throughput"] = {"v100": 2.0}
    found = answer(path, document, "--policy", "hierarchical")
    assert found["levels"] == pytest.approx({"0": 0.25, "1": 0.75})


def test_the_table_says_why(path: Path) -> None:
    done = run(path, PROBLEM, "--policy", "max-min-fairness")
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert any("0.4194" in line and "1.419" in line for line in lines)
    told = {line.split(":")[0]: line for line in lines if line.startswith("job ")}
    assert set(told) == {"job 0", "job 1"}
    assert "fair level 1.548" in told["job 0"] and "v100" in told["job 0"]
    assert lines[-1].startswith("smallest normalised throughput: 1.54839")


def test_a_deadline_that_cannot_be_met_is_told_and_the_others_hold(path: Path) -> None:
    jobs = [PROBLEM["jobs"][0] | {"deadline_s": 10}, PROBLEM["jobs"][1] | {"deadline_s": 200}]
    document = {"workers": {"v100": 1, "p100": 1}, "jobs": jobs}
    for job in jobs:
        job["throughput"] = {k: v for k, v in job["throughput"].items() if k != "k80"}
    found = answer(path, document, "--policy", "max-throughput")
    assert found["effective_throughput"]["1"] >= 500 / 200 - 1e-9
    assert len(found["notes"]) == 1
    assert "job 0 cannot meet its deadline: it needs 30 steps/s and makes at most 2" in found["notes"][0]
    done = run(path, document, "--policy", "max-throughput")
    assert "job 0: job 0 cannot meet its deadline" in done.stdout
    assert "note: job 0 cannot meet its deadline" in done.stderr


@pytest.mark.parametrize(
    ("document", "options", "words"),
    [
        ("{", (), ["problem.json:1", "not JSON"]),
        ('{"workers": {"v100": 1},\n "jobs": [}', (), ["problem.json:2", "not JSON"]),
        ('{"workers": {"v100": 1, "v100": 2}, "jobs": []}', (), ["'v100' twice"]),
        ('{"workers": {"v100": 1}, "jobs": [{"id": "x", "throughput": {"v100": NaN}}]}', (), ["job x", "nan"]),
        (PROBLEM, ("--policy", "max-min-fairnes"), ["--policy", "did you mean 'max-min-fairness'"]),
        (PROBLEM, ("--policy", "srtf"), ["--policy", "unknown share policy 'srtf'"]),
        (PROBLEM, ("--set", "awar=false"), ["awar", "did you mean 'aware'"] ),
        (PROBLEM, ("--set", "aware=perhaps"), ["aware", "perhaps"]),
        (PROBLEM, ("--policy", "min-cost"), ["no price", "k80"]),
        ({"workers": {"v100": 1}, "jobs": [{"id": 7, "throughput": {"v100": 1}}]}, ("--policy", "makespan"),
         ["job 7 has no steps_left"]),
        ({"workers": {"v100": 2}, "jobs": [{"id": 7, "gpus": 2, "throughput": {"v100": 1}, "steps_left": 5}]},
         ("--policy", "allox"), ["job 7 has gpus 2"]),
    ],
)  # fmt: skip
def test_wrong_input_is_one_sentence(document: Any, options: tuple[str, ...], words: list[str], path: Path) -> None:
    message = sentence(path, document, *options)
    for word in words:
        assert word in message, message


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["allocate", str(tmp_path / "none.json")])
    assert isinstance(done.exception, InputError) and "no such file" in str(done.exception)


def test_a_problem_from_a_pipe() -> None:
    done = CliRunner().invoke(app, ["allocate", "-", "--policy", "isolated", "--json"], input=json.dumps(PROBLEM))
    assert json.loads(done.stdout)["objective"] == pytest.approx(1.0)


def test_chance_follows_the_seed(path: Path) -> None:
    """Six jobs on one GPU: which of them share it is drawn."""
    jobs = [{"id": i, "throughput": {"v100": 1.0}} for i in range(6)]
    pairs = [{"jobs": [a, b], "throughput": {"v100": [0.8, 0.8]}} for a in range(6) for b in range(a + 1, 6)]
    document = {"workers": {"v100": 1}, "jobs": jobs, "pairs": pairs}
    drawn = [answer(path, document, "--policy", "gandiva", "--seed", str(s))["pair_shares"] for s in (1, 1, 2, 3, 4)]
    assert drawn[0] == drawn[1]
    assert any(other != drawn[0] for other in drawn[2:])
    assert sum(1 for row in drawn[0] if row["v100"] > 0) == 3


@pytest.mark.parametrize("command", [("run", "--policy", "allox"), ("compare", "--policies", "fifo,allox")])
def test_the_simulator_runs_them_too(command: tuple[str, ...]) -> None:
    words = ["sim", *command, "--workload", "pai", "--cluster", "2x4", "--set", "workload.jobs=20"]
    done = subprocess.run([sys.executable, "-m", "trine", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "allox" in done.stdout


def test_policies_are_listed_with_what_they_compute() -> None:
    found = json.loads(CliRunner().invoke(app, ["policies", "--json"]).stdout)
    assert found["max-min-fairness"]["computes"] == "shares" and found["srtf"]["computes"] == "order"
    assert found["fifo"]["computes"] == "order" and found["fifo"]["as_shares"]["computes"] == "shares"
    text = CliRunner().invoke(app, ["policies"]).stdout
    assert "max-min-fairness (shares): " in text and "\nfifo: " in f"\n{text}" and "fifo (shares): " in text
