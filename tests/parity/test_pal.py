"""Per-job equality with the results of PAL's own simulator: the start and finish of every job, to the second."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from trine.core.result import RunResult
from trine.inputs.preset import load_preset
from trine.parity.pal import published_bins
from trine.reproduce.pal_inputs import PalData, synergy_scenario
from trine.sim.scenario import Scenario, run

CASES = [
    *[
        (workload, placement, "fifo")
        for workload in (1, 2, 3)
        for placement in ("packed-sticky", "packed", "pm-first", "pal")
    ],
    (1, "packed-sticky", "las"),
    (1, "packed-sticky", "srtf"),
]
PUBLISHED_NAMES = {
    "packed-sticky": "Default-Packed-S",
    "packed": "Default-Packed-NS",
    "pm-first": "PMFirst",
    "pal": "PAL",
}
MOVES = {
    **{(1, "packed", "fifo"): 164, (2, "packed", "fifo"): 77, (3, "packed", "fifo"): 83},
    **{(1, "pm-first", "fifo"): 137, (2, "pm-first", "fifo"): 65, (3, "pm-first", "fifo"): 95},
    **{(1, "pal", "fifo"): 137, (2, "pal", "fifo"): 68, (3, "pal", "fifo"): 82},
}
EVICTIONS = {(1, "packed-sticky", "las"): 1430, (1, "packed-sticky", "srtf"): 70}


def pal_sia(data: Path, workload: int, placement: str, policy: str, **values: object) -> Scenario:
    preset = load_preset("pal-sia")
    return Scenario(
        cluster=preset.cluster,
        policy=policy,
        placement=placement,
        trace=str(data / f"traces/pal_workloads/philly/workload-{workload}.csv"),
        format=preset.format,
        variability=str(data / "hardware/pal_gpu_variability/realised/gpus-64.csv"),
        authors=preset.authors,
        values=preset.settings | values,
    )


def times(result: RunResult) -> dict[str, tuple[float, float]]:
    return {job.job_id: (job.start_s, job.finish_s) for job in result.jobs}


@pytest.mark.parametrize(("workload", "placement", "policy"), CASES)
def test_every_job_starts_and_finishes_as_published(
    shared_data: Path, reference: Path, workload: int, placement: str, policy: str
) -> None:
    result = run(pal_sia(shared_data, workload, placement, policy), keep_segments=False)
    path = reference / f"pal/sia-w{workload}-{PUBLISHED_NAMES[placement]}-{policy}-lf1.7.csv"
    with path.open() as stream:
        expected = {row["job_id"]: (float(row["start_s"]), float(row["finish_s"])) for row in csv.DictReader(stream)}
    assert len(expected) == 160
    assert times(result) == expected


@pytest.mark.parametrize(("case", "moves"), MOVES.items())
def test_moves_of_jobs_are_those_of_the_published_run(
    shared_data: Path, case: tuple[int, str, str], moves: int
) -> None:
    result = run(pal_sia(shared_data, *case), keep_segments=True)
    moved = sum(1 for segment in result.segments if segment.ended == "moved")
    assert moved == moves


@pytest.mark.parametrize(("case", "evictions"), EVICTIONS.items())
def test_evictions_are_those_of_the_published_run(
    shared_data: Path, case: tuple[int, str, str], evictions: int
) -> None:
    result = run(pal_sia(shared_data, *case), keep_segments=True)
    assert sum(1 for segment in result.segments if segment.ended == "preempted") == evictions


def test_without_the_quirks_of_the_reference_las_wastes_no_gpus(shared_data: Path) -> None:
    """The published code stops jobs for a job that then does not fit; planning first must not make anything worse."""
    quirks = run(pal_sia(shared_data, 1, "packed-sticky", "las"), keep_segments=False)
    planned = run(pal_sia(shared_data, 1, "packed-sticky", "las", **{"compat.keep_evictions": "false"}))
    assert planned.summary.utilization >= quirks.summary.utilization
    assert planned.summary.preemptions < quirks.summary.preemptions


@pytest.mark.parametrize("gpus", [64, 256])
@pytest.mark.parametrize("app_class", "ABCD")
def test_bins_are_the_published_ones(shared_data: Path, gpus: int, app_class: str) -> None:
    folder = shared_data / "hardware/pal_gpu_variability/realised"
    with (folder / f"gpus-{gpus}.csv").open() as stream:
        slowdowns = [float(row[f"PerfVar_class{app_class}"]) for row in csv.DictReader(stream)]
    with (folder / f"gpus-{gpus}-bins.csv").open() as stream:
        expected = [float(row[f"sf_class{app_class}"]) for row in csv.DictReader(stream)]
    bins = published_bins(slowdowns)
    assert [bins.scores[bins.bin_of[g]] for g in range(gpus)] == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("placement", "name"), [("packed-sticky", "Default-Packed-S"), ("pal", "PAL")])
def test_every_job_of_the_256_gpu_run_is_as_published(
    shared_data: Path, reference: Path, placement: str, name: str
) -> None:
    result = run(synergy_scenario(PalData(shared_data), placement, "fifo", 10.0), keep_segments=False)
    path = reference / f"pal/syn256-standin-load10.0-Fifo-{name}-2000-3000.csv"
    with path.open(newline="") as stream:
        expected = {row["job_id"]: (float(row["start_s"]), float(row["finish_s"])) for row in csv.DictReader(stream)}
    assert len(expected) == 1001
    assert times(result) == expected
