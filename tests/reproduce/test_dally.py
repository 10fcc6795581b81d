"""``trine reproduce dally``: its jobs, its statistics and bands, and whole runs on a world made tiny."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from trine.core.job import Job
from trine.inputs.yaml_reader import read_mapping
from trine.report.compare import estimate
from trine.report.files import JOB_COLUMNS
from trine.reproduce.dally import ALWAYS, AUTO, FULL, NO_WAIT, PAPER, SKEW, WITHOUT_DATA, Tuner, bands, contenders
from trine.reproduce.dally_settings import LONGEST_S, SIZES, DallyInputs, generated_jobs, prototypes, stretch
from trine.reproduce.experiment import Outcome, attempt, contenders_of
from trine.reproduce.paired_comparison import (
    Band,
    PairedComparison,
    Setting,
    at_least_lower,
    between,
    described,
    difference,
    no_worse,
)
from trine.reproduce.reproduction import Reproduction, write_page
from trine.sim.scenario import Scenario
from trine.trace.generate import offered_load
from trine.trace.models import network_sensitive


@dataclass(frozen=True)
class Figures:
    """An outcome with made-up figures."""

    makespan_h: float = 100.0
    jct_h: float = 10.0
    wait_p95_h: float = 5.0
    comm_h: float = 1000.0
    comm_node_h: float = 100.0
    comm_spread_h: float = 90.0


PLAIN = Figures()
SETTING = Setting("here", (Scenario(), Scenario()))


def figures() -> dict[str, Any]:
    found: dict[str, Any] = read_mapping(PAPER.figures).plain()
    return found


def inputs(given: dict[str, Any] | None = None) -> DallyInputs:
    return DallyInputs(Path(), Path(), figures() if given is None else given)


def results(**changed: Figures) -> dict[Any, Any]:
    """Everything alike, two seeds, but for the policies named."""
    names = {"auto": AUTO, "skew": SKEW, "always": ALWAYS, "no_wait": NO_WAIT}
    base = dict.fromkeys((*contenders(inputs()), *contenders_of(figures()["tuner"])), PLAIN)
    found = base | {names[name]: value for name, value in changed.items()}
    return {("here", name, seed): value for name, value in found.items() for seed in range(2)}


# -- jobs ------------------------------------------------------------------------------------------------------------


def test_generated_jobs_ask_for_the_load_and_are_the_same_every_time() -> None:
    jobs = generated_jobs(3, jobs=200, gpus=256)
    assert jobs == generated_jobs(3, jobs=200, gpus=256)
    assert jobs != generated_jobs(4, jobs=200, gpus=256)
    assert offered_load(jobs, 256) == pytest.approx(1.0, rel=1e-3)
    assert {job.gpus for job in jobs} <= set(SIZES)
    assert max(job.steps for job in jobs) <= LONGEST_S


def test_a_batch_and_another_share_of_models_leave_sizes_and_run_times_alone() -> None:
    poisson, batch = (generated_jobs(1, jobs=50, gpus=64, load=load) for load in (1.0, None))
    calm = generated_jobs(1, jobs=50, gpus=64, sensitive_share=0.0)
    assert (
        [(j.gpus, j.steps) for j in poisson] == [(j.gpus, j.steps) for j in batch] == [(j.gpus, j.steps) for j in calm]
    )
    assert {job.submit_s for job in batch} == {0.0}
    assert not any(network_sensitive(job.model) for job in calm if job.gpus > 1)


def test_stretches_start_at_equal_distances_and_at_time_zero() -> None:
    jobs = [Job(str(i), 100.0 + i, 1, 1.0) for i in range(10)]
    assert [stretch(jobs, n, 3, 4)[0].id for n in range(3)] == ["0", "3", "6"]
    assert [job.submit_s for job in stretch(jobs, 2, 3, 4)] == [0.0, 1.0, 2.0, 3.0]
    assert len(stretch(jobs, 1, 3, 50)) == 10


# -- bands -----------------------------------------------------------------------------------------------------------


def test_differences_are_paired_by_seed_and_say_what_is_uncertain() -> None:
    found = difference([50.0, 100.0, 1.0], [100.0, 200.0, 0.0])
    assert (found.mean, found.half) == (-50.0, 0.0), "a seed in which the base has nothing is left out"
    assert described(found) == "-50 ± 0 %, best -50 %"
    assert described(estimate([-30.0, 20.0])).endswith("best -30 %, interval includes 0")


def test_communication_of_spread_jobs_leaves_out_seeds_in_which_the_base_spreads_none() -> None:
    """What is inside nodes is the same under both, and hides what a policy avoids."""
    quiet = replace(PLAIN, comm_node_h=1.0, comm_spread_h=0.0)
    found: dict[Any, Any] = {("here", name, 1): quiet for name in (AUTO, SKEW)}
    found |= {("here", AUTO, 0): quiet, ("here", SKEW, 0): replace(PLAIN, comm_node_h=100.0, comm_spread_h=99.0)}
    compared = PairedComparison(found)
    assert compared.difference(SETTING, AUTO, SKEW, "comm_node_h").values == pytest.approx([-99.0, 0.0])
    assert compared.difference(SETTING, AUTO, SKEW, "comm_spread_h").values == pytest.approx([-100.0])
    assert "comm_spread_h" not in {band.figure for band in bands(inputs())}


def test_the_best_of_several_is_taken_seed_by_seed() -> None:
    hours = {AUTO: (9.0, 9.0), SKEW: (10.0, 30.0), ALWAYS: (20.0, 18.0)}
    found: dict[Any, Any] = {
        ("here", name, seed): Figures(jct_h=h) for name, own in hours.items() for seed, h in enumerate(own)
    }
    compared = PairedComparison(found)
    assert compared.difference(SETTING, AUTO, (SKEW, ALWAYS), "jct_h").values == pytest.approx([-10.0, -50.0])
    doubled = compared.difference(SETTING, AUTO, SKEW, lambda outcome: 2 * outcome.jct_h)
    assert doubled == compared.difference(SETTING, AUTO, SKEW, "jct_h"), "a figure may be a function of the outcome"
    given = {"figure": "jct_h", "against": [SKEW, ALWAYS], "between_percent": [-40, -20]}
    check = Band.of(AUTO, given).check(compared, SETTING)
    assert (check.held, check.what) == (True, f"JCT against the best per seed of {SKEW}; {ALWAYS}")


def test_a_failed_run_is_outside_the_band_and_loses_no_other_figure() -> None:
    found = results(auto=replace(PLAIN, makespan_h=60.0))
    found["here", SKEW, 1] = Outcome("a wheel came off")
    checks = [band.check(PairedComparison(found), SETTING) for band in bands(inputs())]
    assert [c.ours == "failed: a wheel came off" for c in checks] == [True] * 3 + [False] * 7
    assert {c.held for c in checks[:3]} == {False}


def test_bands_hold_at_their_edge() -> None:
    assert at_least_lower(35)(estimate([-35.0])) and not at_least_lower(35)(estimate([-34.9]))
    assert at_least_lower()(estimate([-0.1])) and not at_least_lower()(estimate([0.0]))
    assert between(-2, 1)(estimate([1.0])) and not any(between(-2, 1)(estimate([x])) for x in (-2.1, 1.1))
    assert no_worse(estimate([-1.0, 2.0])), "higher, but within its interval"
    assert not no_worse(estimate([5.0, 5.1]))


def test_each_band_is_judged_by_the_policy_it_names() -> None:
    better = replace(PLAIN, makespan_h=60.0, jct_h=6.0, wait_p95_h=4.0, comm_h=500.0, comm_node_h=4.0)
    every = [band.check(PairedComparison(results(auto=better)), SETTING) for band in bands(inputs())]
    assert [c.held for c in every] == [True] * 10
    assert every[1].ours == "-40 ± 0 %, best -40 %"
    assert [c.published for c in every[:3]] == [
        "up to 69 % lower, 68 % mean (v2)",
        "up to 83 % lower",
        "up to 98 % lower (all jobs)",
    ]
    slower = results(auto=better, always=replace(PLAIN, jct_h=5.0), no_wait=replace(PLAIN, comm_h=400.0))
    every = [band.check(PairedComparison(slower), SETTING) for band in bands(inputs())]
    missed = [c.what for c in every if not c.held]
    assert missed == [f"JCT against {ALWAYS}", f"communication against {NO_WAIT}"]


def test_the_tuner_is_held_to_the_best_fixed_timer() -> None:
    tuner = Tuner([SETTING])
    found = tuner.judge(inputs(), results(auto=replace(PLAIN, jct_h=10.4)))
    assert (found.checks[0].held, found.checks[0].ours) == (True, "+4.0 %")
    found = tuner.judge(inputs(), results(auto=PLAIN, no_wait=replace(PLAIN, jct_h=9.0)))
    assert (found.checks[0].held, found.checks[0].reference) == (False, "9.00 h with 0")
    one, three, day, _ = contenders_of(figures()["tuner"])
    assert list(tuner.timers) == [NO_WAIT, one, three, "dally, 12 h and 24 h", day, FULL]


# -- runs ------------------------------------------------------------------------------------------------------------


def tiny() -> dict[str, Any]:
    told_here = figures()
    told_here["prototype"] |= {"cluster": "2x4x8", "jobs": 12}
    told_here["philly"] |= {"jobs": 6, "clusters": {"vc": "2x2x2"}}
    return told_here


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reproduction]:
    """All parts, on 64 GPUs and on a trace of nine jobs."""
    root = tmp_path_factory.mktemp("data")
    path = root / "traces/philly_flat/philly_sia_devVCs.csv"
    path.parent.mkdir(parents=True)
    rows = [f"2017-10-09 07:{i:02}:00,{600 + i}.0,{2 ** (i % 3)},0,{'vc' if i < 8 else 'other'}" for i in range(9)]
    path.write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *rows, ""]))
    told_here = tiny()
    told_here["philly"]["file"] = "traces/philly_flat/philly_sia_devVCs.csv"
    yield PAPER.reproduce(str(root), workers=1, figures=told_here, quick=True)


def test_every_scenario_has_a_table_with_every_policy(found: Reproduction) -> None:
    titles = [table.title for table in found.tables]
    for name in ("Poisson, congested", "batch, congested", "Poisson, free network", "Philly vc, congested"):
        table = found.tables[next(i for i, title in enumerate(titles) if title.startswith(f"{name}, "))]
        assert [row[0] for row in table.rows] == list(contenders(inputs()))
        assert all(len(row) == len(table.header) for row in table.rows)
    assert WITHOUT_DATA not in found.notes


def test_only_congested_scenarios_are_judged_and_the_tuner_everywhere(found: Reproduction) -> None:
    judged = {c.experiment for c in found.checks}
    assert judged == {"Poisson, congested", "batch, congested", "Philly vc, congested", "tuner"}
    assert sum(c.experiment == "tuner" for c in found.checks) == 5
    assert found.sentence().endswith(".") and "\n" not in found.sentence()


def test_it_serialises_and_makes_a_page(found: Reproduction, tmp_path: Path) -> None:
    told_here = json.loads(json.dumps(found.as_dict()))
    assert {table["title"] for table in told_here["tables"]} >= {
        "Where waiting pays",
        "Tuner: JCT h by timer for a node",
    }
    write_page(found, tmp_path / "page")
    page = (tmp_path / "page/report.html").read_text()
    assert "Where waiting pays: JCT by oversubscription" in page
    assert "BERT-large" in page


def test_without_the_trace_it_says_so_and_gives_the_same_again() -> None:
    one, other = (PAPER.reproduce("", workers=workers, figures=tiny(), quick=True) for workers in (1, 2))
    assert one.notes[-1] == WITHOUT_DATA
    assert one.as_dict() == other.as_dict()


def test_a_folder_that_is_not_there_is_a_mistake(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trine", "reproduce", "dally", "--data", str(tmp_path / "none"), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.strip().splitlines()) == 1


def test_communication_is_known_by_job_and_stays_out_of_the_contract(tmp_path: Path) -> None:
    given = DallyInputs(tmp_path, tmp_path, tiny())
    setting = prototypes(given, 1)[0]
    result = attempt(contenders(given)[SKEW].on(setting.scenarios[0]))
    by_job = [job.comm_gpu_s for job in result.jobs]
    assert sum(by_job) == pytest.approx(result.summary.comm_gpu_s)
    assert sum(x > 0 for x in by_job) > 1
    assert result.node_gpus == 8
    assert 0 < result.comm_spread_h <= result.comm_node_h <= result.comm_h
    assert replace(result, node_gpus=1).comm_spread_h == 0, "no gang fits a node of one GPU"
    assert "comm_gpu_s" not in JOB_COLUMNS


def test_the_tuner_can_be_run_alone() -> None:
    """What it is judged by is simulated although the parts that share it are not chosen."""
    found = PAPER.reproduce("", workers=2, figures=tiny(), quick=True, only=["tuner"])
    assert found.checks and {check.experiment for check in found.checks} == {"tuner"}
    assert not [check for check in found.checks if "failed" in check.ours]
