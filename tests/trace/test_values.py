"""What each public layout means: units, clocks, work, deadlines, types."""

from __future__ import annotations

import math
import random
from pathlib import Path

import pytest

from trine.core.job import Job
from trine.trace import ImportOptions, load
from trine.trace.formats import known


def jobs_of(tmp_path: Path, name: str, layout: int = 0, options: ImportOptions | None = None) -> dict[str, Job]:
    path = tmp_path / "trace"
    path.write_bytes(known()[name].examples[layout].encode())
    return {j.id: j for j in load(path, options=options or ImportOptions()).jobs}


def test_pal_counts_iterations_and_takes_their_time_and_class_from_its_table(tmp_path: Path) -> None:
    job = jobs_of(tmp_path, "pal")["0"]
    assert (job.submit_s, job.steps, job.step_s, job.app_class, job.model) == (98, 1481, 0.300610341, "C", "vgg19")


@pytest.mark.parametrize("layout", [1, 2])
def test_pal_models_outside_the_table_take_a_second_per_iteration(tmp_path: Path, layout: int) -> None:
    job = jobs_of(tmp_path, "pal", layout)["1"]
    assert (job.submit_s, job.steps, job.step_s, job.app_class, job.gpus) == (33, 9447, 1.0, "A", 1)
    assert job.batch_size == (64 if layout == 1 else None)


def test_philly_counts_time_from_the_earliest_job_and_sorts(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "philly")
    assert [(j.id, j.submit_s, j.ideal_s, j.group) for j in jobs.values()] == [
        ("1", 0.0, 2951.0, "6214e9"),
        ("0", 2932.0, 66.0, "11cb48"),
    ]


@pytest.mark.parametrize(("layout", "gpus"), [(0, [1, 7]), (1, [1, 2])])
def test_gavel_knows_steps_but_no_time(tmp_path: Path, layout: int, gpus: list[int]) -> None:
    jobs = list(jobs_of(tmp_path, "gavel", layout).values())
    assert [j.gpus for j in jobs] == gpus
    assert all(j.step_s is None and j.ideal_s is None for j in jobs)
    assert jobs[0].model.endswith(f"(batch size {jobs[0].batch_size})")


def test_gavel_slo_counts_from_arrival_and_minus_one_is_none(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "gavel", 1)
    assert jobs["0"].deadline_s is None
    assert (jobs["1"].deadline_s, jobs["1"].weight) == (3660.0, 5.0)


def test_equal_gavel_rows_are_different_jobs(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(known()["gavel"].examples[1].splitlines()[0].join(["", "\n"]) * 3)
    assert [j.id for j in load(path).jobs] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("name", "job_id", "submit_s", "steps", "duration_s"),
    [
        ("shockwave", "1", 55, 143450, 3338),
        ("gavel-generated", "0", 0, 17484476.26110642, 68344.35010595087),
        ("muri", "1", 201694, 8787693, 4472936),
        ("chronus", "0", 12198 * 60, 6910, 211 * 60),
        ("elasticflow", "0", 0, 1282877, 976570),
        ("rubick", "llama30-5", 4986, 1, 0.0425),
        ("tiresias", "1", 30, 133, 147),
    ],
)
def test_stated_durations_become_seconds_per_step(
    tmp_path: Path, name: str, job_id: str, submit_s: float, steps: float, duration_s: float
) -> None:
    job = jobs_of(tmp_path, name)[job_id]
    assert (job.submit_s, job.steps) == (submit_s, steps)
    assert job.ideal_s == pytest.approx(duration_s, rel=1e-12)


def test_chronus_takes_the_first_expected_time_as_deadline(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "chronus")
    assert "1" not in jobs
    assert jobs["2"].deadline_s == (7199 + 241) * 60
    assert jobs["3"].deadline_s is None


def test_elasticflow_deadlines_are_absolute_and_best_effort_has_none(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "elasticflow")
    assert (jobs["0"].deadline_s, jobs["1"].deadline_s) == (771220, None)
    jobs = jobs_of(tmp_path, "elasticflow", 1)
    assert (jobs["0"].deadline_s, jobs["1"].deadline_s) == (4426, None)


def test_tiresias_without_iterations_runs_in_steps_of_a_second(tmp_path: Path) -> None:
    job = jobs_of(tmp_path, "tiresias", 1)["10"]
    assert (job.gpus, job.submit_s, job.steps, job.step_s) == (12, 11, 20, 1)


def test_alibaba_pods_keep_observed_time_whole_gpus_and_allowed_types(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "alibaba")
    assert list(jobs) == ["openb-pod-0000", "openb-pod-0001"]
    shared = jobs["openb-pod-0001"]
    assert (shared.gpus, shared.gpu_types, shared.group) == (1, ("V100M16", "V100M32"), "LS")
    assert shared.ideal_s == 12902960 - 427061


def test_alibaba_without_times_takes_the_given_duration(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "alibaba", 1, ImportOptions(duration_s=90, jobs_per_h=2))
    assert [j.ideal_s for j in jobs.values()] == [90, 90]


def test_drawn_arrivals_follow_rate_and_seed(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text("duration_s,num_gpus\n" + "60,1\n" * 2000)
    slow, fast, other = (
        [j.submit_s for j in load(path, options=ImportOptions(jobs_per_h=rate, seed=seed)).jobs]
        for rate, seed in ((10, 0), (20, 0), (10, 1))
    )
    assert slow[-1] / 2000 == pytest.approx(360, rel=0.1)
    assert fast == pytest.approx([t / 2 for t in slow])
    assert other != slow
    assert slow == [j.submit_s for j in load(path).jobs]


def test_synergy_draws_arrivals_as_pal_does(tmp_path: Path) -> None:
    rng, expected = random.Random(1), 0
    jobs = jobs_of(tmp_path, "synergy", options=ImportOptions(seed=1, jobs_per_h=10))
    for job in jobs.values():
        expected += math.ceil(-math.log(1 - rng.random()) / 10 * 3600)
        rng.randint(0, 8)
        assert (job.submit_s, job.app_class) == (expected, "A")


def test_our_own_columns_mean_what_they_say(tmp_path: Path) -> None:
    jobs = jobs_of(tmp_path, "trine")
    assert (jobs["a"].ideal_s, jobs["a"].tracked, jobs["a"].deadline_s) == (50, True, None)
    assert jobs["b"] == Job(
        "b", 12.5, 4, 2000, None, "gpt2", "ben", deadline_s=9000, gpu_types=("v100", "a100"), tracked=False, line=3
    )
    assert jobs_of(tmp_path, "trine", 1)["1"].ideal_s == 3600
