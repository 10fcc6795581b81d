"""Counts on the public files themselves: every file is read, or refused with the option that takes it."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import pytest

from trine.core.errors import InputError
from trine.trace import ImportOptions, inspect, load

# file, format, rows, jobs, skipped, span_s, gpus_max, duration_p50_s
COUNTS: list[tuple[str, str, int, int, dict[str, int], float, int, float | None]] = [
    ("pal_workloads/philly/workload-1.csv", "pal", 160, 160, {}, 17772, 24, 411.5543856987),
    ("pal_workloads/philly/workload-2.csv", "pal", 160, 160, {}, 17925, 48, 362.5963192035),
    ("pal_workloads/philly/workload-3.csv", "pal", 160, 160, {}, 17874, 48, 316.479047094),
    ("pal_workloads/shockwave/poisson_trace_50+1.0.csv", "pal", 50, 50, {}, 2733, 8, 3774.5),
    ("pal_workloads/shockwave/poisson_trace_50_lam1.csv", "pal", 50, 50, {}, 2733, 8, 3774.5),
    ("philly_flat/philly_sia_devVCs.csv.gz", "philly", 61503, 61453, {"duplicate-row": 50}, 9408690, 128, 846),
    ("philly_vc_gavel/seed=0/ee9e8c.trace.gz", "gavel", 2000, 2000, {}, 4508448, 32, None),
    ("philly_vc_gavel/physical_cluster/max_min_fairness.trace", "gavel", 96, 96, {}, 46317, 4, None),
    ("philly_vc_gavel/physical_cluster/minimize_makespan.trace", "gavel", 100, 100, {}, 0, 4, None),
    (
        "gavel_generated/multi_seed0_lam1800.csv.gz",
        "gavel-generated",
        6000,
        6000,
        {},
        10709556.6,
        8,
        16232.166156334639,
    ),
    (
        "gavel_generated/single_seed0_lam2700.csv.gz",
        "gavel-generated",
        1000,
        1000,
        {},
        2663930.6,
        1,
        16224.636396407386,
    ),
    ("gavel_generated/static_multi_seed0.csv.gz", "gavel-generated", 700, 700, {}, 0, 8, 14658.01266083978),
    ("muri_philly/trace1.csv.gz", "muri", 1494, 1494, {}, 10817570, 32, 14392.5),
    ("muri_philly/trace1_pr.csv.gz", "muri", 1494, 1494, {}, 0, 32, 14392.5),
    ("muri_philly/trace2.csv.gz", "muri", 5755, 5755, {}, 8572283, 32, 8653),
    ("chronus_philly_slo/trace_job_Philly_SLO.csv.gz", "chronus", 30940, 30735, {"zero-gpu": 205}, 1209000, 32, 3540),
    ("elasticflow_philly/traces_for_ElasticFlow/philly_103959.csv", "elasticflow", 876, 876, {}, 7910536, 4, 24049),
    ("elasticflow_philly/traces_for_ElasticFlow/resnet_cifar_trace.csv", "elasticflow", 5, 5, {}, 309537, 1, 3930),
    ("rubick_llm/naive.csv", "rubick", 10, 10, {}, 5586, 48, 99.07621527),
    ("tiresias/60_job.csv", "tiresias", 60, 60, {}, 1779, 8, 125),
    ("tiresias/tf_job.csv", "tiresias", 2, 1, {"duplicate-row": 1}, 0, 12, 20),
    (
        "alibaba_openb_2023/openb_pod_list_default.csv.gz",
        *("alibaba", 8152, 6203, {"zero-gpu": 1088, "never-scheduled": 897}, 12901761, 8, 655),
    ),
    (
        "alibaba_openb_2023/openb_pod_list_gpushare20.csv.gz",
        *("alibaba", 8152, 6260, {"zero-gpu": 1088, "never-scheduled": 840}, 12474700, 8, 637.5),
    ),
]
OPTION = {
    "node_list": "--cluster",
    "machine_list": "--cluster",
    "cluster_specs": "JSON of an unknown shape",
    "cluster_spec.csv": "--cluster",
    "n160g8": "--cluster",
    "n256g8": "--cluster",
    "n32g4": "--cluster",
    "n1g4": "--cluster",
    "topo": "--cluster",
    "gput": "--set sample=",
    "cdf": "no option",
    "summary": "no option",
}


@pytest.mark.parametrize(
    ("name", "fmt", "rows", "jobs", "skipped", "span_s", "gpus_max", "p50_s"), COUNTS, ids=[c[0] for c in COUNTS]
)
def test_counts(
    shared_data: Path,
    name: str,
    fmt: str,
    rows: int,
    jobs: int,
    skipped: dict[str, int],
    span_s: float,
    gpus_max: int,
    p50_s: float | None,
) -> None:
    trace = load(shared_data / "traces" / name)
    s = trace.summary
    assert (s.format, s.rows, s.jobs, s.skipped, s.gpus_max) == (fmt, rows, jobs, skipped, gpus_max)
    assert s.span_s == pytest.approx(span_s, abs=0.1)
    assert s.duration_p50_s == (None if p50_s is None else pytest.approx(p50_s, rel=1e-9))
    assert len(trace.jobs) == jobs


def test_every_public_file_is_counted_or_refused_with_the_option_that_takes_it(shared_data: Path) -> None:
    for path in sorted((shared_data / "traces").rglob("*.*")):
        if not path.is_file():
            continue
        hint = next((option for part, option in OPTION.items() if part in path.name), None)
        if hint is None:
            assert inspect(path).jobs > 0, path
            continue
        with pytest.raises(InputError) as caught:
            inspect(path)
        assert hint in str(caught.value), path


def test_pods_show_all_their_traits(shared_data: Path) -> None:
    found = inspect(shared_data / "traces/alibaba_openb_2023/openb_pod_list_default.csv.gz").found
    assert found == {"zero-gpu": 1088, "never-scheduled": 897, "fractional-gpu": 3078, "censored": 5193}


def test_pods_without_times_are_counted_and_run_with_a_given_duration(shared_data: Path) -> None:
    path = shared_data / "traces/alibaba_openb_2023/openb_pod_list_multigpu20.csv.gz"
    assert (inspect(path).rows, inspect(path).jobs, inspect(path).duration_p50_s) == (8324, 7236, None)
    with pytest.raises(InputError, match="duration_s"):
        load(path)
    assert load(path, options=ImportOptions(duration_s=100)).summary.duration_p50_s == 100


def test_both_shockwave_layouts_of_pal_hold_the_same_jobs(shared_data: Path) -> None:
    folder = shared_data / "traces/pal_workloads/shockwave"
    first, second = (load(folder / f"poisson_trace_50{n}.csv").jobs for n in ("+1.0", "_lam1"))
    assert [(j.id, j.submit_s, j.gpus, j.ideal_s, j.model) for j in first] == [
        (j.id, j.submit_s, j.gpus, j.ideal_s, j.model) for j in second
    ]


def test_pal_sizes_that_fit_no_node_are_kept(shared_data: Path) -> None:
    sizes = {
        j.gpus for n in (1, 2, 3) for j in load(shared_data / f"traces/pal_workloads/philly/workload-{n}.csv").jobs
    }
    assert {6, 12, 24, 48} <= sizes


def test_drawn_arrivals_are_those_of_pals_own_run(shared_data: Path, reference: Path) -> None:
    trace = load(
        shared_data / "traces/synergy_standin/synergy-standin-jobs.csv.gz", options=ImportOptions(10.0, seed=1)
    )
    submit_s = {j.id: j.submit_s for j in trace.jobs}
    with (reference / "pal/syn256-standin-load10.0-Fifo-PAL-2000-3000.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert rows and all(submit_s[r["job_id"]] == float(r["arrival_s"]) for r in rows)


def test_sixty_thousand_rows_load_in_about_a_second(shared_data: Path) -> None:
    start_s = time.process_time()
    load(shared_data / "traces/philly_flat/philly_sia_devVCs.csv.gz")
    # Several times the usual second: a loaded machine must not fail the suite, a quadratic loop must.
    assert time.process_time() - start_s < 5
