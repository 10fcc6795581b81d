"""``trine sim`` refuses input that it cannot simulate: one sentence on stderr, exit code 2, nothing on stdout."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trine.cli.main import main

GENERATED = "job_id,job_type,scale_factor,total_steps,duration_s_on_v100,priority_weight,arrival_s\n"
OWN = "job_id,submit_s,gpus,steps,step_s,model,group,deadline_s\n"
RATES = "model,gpus,gpu_type,steps_per_s\n"
JOBS = OWN + "1,0,1,100,,m,research,\n2,10,1,100,,m,web,\n"
TABLE = RATES + "m,1,v100,2\nm,1,k80,1\n"


@pytest.fixture(autouse=True)
def _interrupt_as_before() -> Iterator[None]:
    """The command sets its own handler of Ctrl-C."""
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


class LiveService:
    """Files of a user, and the command run on them."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str]) -> None:
        self._folder, self._patch, self._capture = folder, patch, capture

    def file(self, name: str, text: str) -> str:
        path = self._folder / name
        path.write_text(text)
        return str(path)

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, stdout and stderr of ``trine sim run``."""
        self._patch.setattr(sys, "argv", ["trine", "sim", "run", *words])
        with pytest.raises(SystemExit) as left:
            main()
        out, err = self._capture.readouterr()
        return int(left.value.code or 0), out, err

    def refused(
        self, jobs: str, table: str, *words: str, policy: str = "max-min-fairness", trace: str = "jobs.csv"
    ) -> str:
        cluster = () if "--cluster" in words else ("--cluster", "v100=1x1,k80=1x1")
        code, out, err = self.run(
            *("--trace", self.file(trace, jobs), "--throughputs", self.file("rates.csv", table)),
            *("--policy", policy, *cluster, *words),
        )
        assert (code, out) == (2, ""), err
        assert err.startswith("trine: ")
        assert len(err.splitlines()) == 1
        return err


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> LiveService:
    return LiveService(tmp_path, monkeypatch, capsys)


def test_a_model_that_the_table_does_not_know(desk: LiveService) -> None:
    told = desk.refused(GENERATED + "0,m,1,10,5,1,0\n1,mm,1,10,5,1,0\n", TABLE)
    assert "jobs.csv:3: model" in told
    assert "'mm' (did you mean 'm'?)" in told
    assert "'mm'" in desk.refused(OWN + "1,0,1,100,,mm,,\n", TABLE, policy="srtf")


def test_a_job_that_runs_on_no_type_of_the_cluster(desk: LiveService) -> None:
    told = desk.refused(JOBS, RATES + "m,1,v100,2\nm,1,k80,0\n", "--cluster", "k80=2x1")
    assert "jobs.csv:2: model" in told
    assert "0 steps/s" in told


@pytest.mark.parametrize("deadline", ["0", "10", "-3", "nan"])
def test_a_deadline_that_is_over_on_arrival(desk: LiveService, deadline: str) -> None:
    told = desk.refused(OWN + f"1,0,1,100,,m,,500\n2,10,1,100,,m,,{deadline}\n", TABLE, policy="max-throughput")
    assert "jobs.csv:3: deadline" in told


@pytest.mark.parametrize("slo", ["0", "-5", "nan"])
def test_an_slo_in_the_past(desk: LiveService, slo: str) -> None:
    rows = [("m", "run %s", "dir", "--steps", 0, 100, 1, 1, limit, 10) for limit in ("-1", slo)]
    text = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    assert "jobs.trace:2: " in desk.refused(text, TABLE, "--format", "gavel", trace="jobs.trace")


@pytest.mark.parametrize("rate", ["nan", "-1", "inf", "fast", ""])
def test_a_throughput_that_is_none(desk: LiveService, rate: str) -> None:
    told = desk.refused(JOBS, RATES + f"m,1,v100,2\nm,1,k80,{rate}\n")
    assert "rates.csv:3: steps_per_s" in told
    paired = "model,gpus,gpu_type,steps_per_s,other,other_steps_per_s\nm,1,v100,2,,\n" + f"m,1,v100,1,m,{rate}\n"
    assert "rates.csv:3: other_steps_per_s" in desk.refused(JOBS, paired)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("type_order=v10", "type_order: unknown GPU type 'v10' (did you mean 'v100'?)"),
        ("window=0:3", "window: '0:3'; expected FROM:TO with 0 <= FROM < TO <= 2"),
        ("window=1:1", "window: '1:1'"),
        ("window=1", "window: '1'"),
        ("entities=web=1:fiffo", "entities: 'web=1:fiffo'; expected GROUP=WEIGHT or GROUP=WEIGHT:RULE"),
        ("entities=web=0", "entities: 'web=0'"),
        ("entities=web=1,web=2", "entities: group 'web' twice"),
        ("stay_rounds=-1", "stay_rounds: '-1'; expected at least 0"),
        ("rounds_seed=one", "rounds_seed: 'one'; expected whole number or none"),
    ],
)
def test_a_setting_that_makes_no_sense(desk: LiveService, word: str, told: str) -> None:
    assert told in desk.refused(JOBS, TABLE, "--set", word, policy="hierarchical")


def test_a_group_without_jobs_is_told(desk: LiveService) -> None:
    jobs, table = desk.file("jobs.csv", JOBS), desk.file("rates.csv", TABLE)
    given = ("--trace", jobs, "--throughputs", table, "--cluster", "v100=1x1,k80=1x1", "--policy", "hierarchical")
    code, _, err = desk.run(*given, "--set", "entities=reserch=2,web=1")
    assert code == 0
    assert "No job belongs to 'reserch' of entities (did you mean 'research'?)." in err
    assert "'web'" not in err


def test_a_placement_given_as_a_policy_is_named(desk: LiveService) -> None:
    code = (
        "from trine.placement.base import Placement\n\nclass Lowest(Placement):\n"
        "    name = 'lowest'\n    title = 'lowest ids'\n    def place(self, ask, pool): return []\n"
    )
    err = desk.refused(JOBS, TABLE, policy=desk.file("lowest.py", code))
    assert "0 policy classes (Lowest is a Placement); expected exactly one class" in err


def test_steps_without_any_table_are_not_blamed_on_a_table(desk: LiveService) -> None:
    code, _, err = desk.run("--trace", desk.file("jobs.csv", OWN + "1,0,1,100,,m,,\n"), "--cluster", "v100=1x1")
    assert code == 2
    assert "job 1 states no run time, only steps of model 'm', and there is no throughput table; expected" in err
