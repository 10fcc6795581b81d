"""Where job time went, as the pages show it: means by class of jobs that add up, in one unit, parts only if any."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from tests.report.plausible import plausible_run
from tests.report.test_page import figures_of
from trine.core.result import JobRecord, JobTime
from trine.report import breakdown
from trine.report.compare import Comparison
from trine.report.compare_page import compare_page
from trine.report.run_page import run_page


def job(name: str, gpus: int, model: str, time: JobTime | None) -> JobRecord:
    total = sum(time) if time else 1.0
    return JobRecord(name, 0.0, 0.0, total, total, 0.0, gpus, model, "u", 0, 0, "node", 1.0, time=time)


JOBS = [
    job("a", 1, "bert", JobTime(600.0, 3000.0, 0.0, 300.0, 0.0, 0.0, 0.0, 0.0)),
    job("b", 1, "gpt2", JobTime(0.0, 1000.0, 0.0, -100.0, 0.0, 0.0, 0.0, 0.0)),
    job("c", 8, "gpt2", JobTime(7200.0, 3600.0, 0.0, 0.0, 1800.0, 0.0, 60.0, 0.0)),
    job("unknown", 8, "gpt2", None),
]


def test_means_add_up_to_the_mean_completion_time() -> None:
    mean = breakdown.mean_time(JOBS)
    assert mean is not None
    assert sum(mean) == pytest.approx(sum(j.jct_s for j in JOBS[:3]) / 3)


def test_classes_are_sizes_and_models() -> None:
    assert [(name, mean.wait_s) for name, mean in breakdown.by_size(JOBS)] == [("1", 300.0), ("8", 7200.0)]
    assert [name for name, _ in breakdown.by_model(JOBS)] == ["gpt2", "bert"], "the most time first"
    assert breakdown.by_model(JOBS[1:3]) == [], "one model says no more than all jobs"


def test_the_bars_are_the_parts_in_one_unit() -> None:
    figure = breakdown.figure(breakdown.by_size(JOBS), "GPUs per job")
    bars = {trace["name"]: trace["x"] for trace in figure["data"]}
    assert list(bars) == ["waiting", "ideal run time", "slow chips", "network", "restarts"], "no part that nobody has"
    total = [sum(values) for values in zip(*bars.values(), strict=True)]
    assert total == pytest.approx([2400.0 / 3600, 12660.0 / 3600], abs=1e-5)
    assert figure["layout"]["barmode"] == "relative", "time gained stands left of zero"


def test_the_title_names_what_took_most() -> None:
    mean = breakdown.mean_time(JOBS)
    assert mean is not None
    assert breakdown.title(mean) == "44 % of job time is ideal run time; the largest part of the rest: waiting, 45 %"
    assert "nothing was added" in breakdown.title(JobTime(0.0, 10.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))


def test_pages_show_it_for_a_run_and_for_a_comparison() -> None:
    run = plausible_run(jobs=6)
    timed = replace(run, jobs=[replace(j, time=JOBS[0].time) for j in run.jobs])
    page = run_page(timed)
    assert {"job-time", "job-time-models"} <= figures_of(page).keys()
    table = re.search(r"<td>all jobs</td>(.*?)</tr>", page)
    assert table is not None
    assert re.findall(r">([\d.]+)<", table.group(1)) == ["0.17", "0.83", "0.08", "1.08"]
    compared = compare_page(Comparison.of([timed, replace(timed, summary=replace(timed.summary, policy="las"))]))
    assert figures_of(compared)["job-time"]["data"][0]["y"] == ["fifo", "las"]


def test_what_is_nothing_but_a_rounding_error_is_not_below_zero() -> None:
    noise = [job("a", 1, "bert", JobTime(600.0, 3000.0, 0.0, -1e-9, 0.0, 0.0, 0.0, 0.0)), JOBS[0]]
    assert "-0.00" not in breakdown.table([("one", noise[0].time), ("two", noise[1].time)], "jobs")  # type: ignore[list-item]
