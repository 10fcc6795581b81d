"""The page of a run: complete, self-contained, safe against names from the trace, small enough for large runs."""

from __future__ import annotations

import json
import math
import re
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.report.plausible import plausible_run
from trine.core.result import RunResult
from trine.report.page import section
from trine.report.run_page import run_page

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def figures_of(page: str) -> dict[str, Any]:
    found = re.findall(r'<script type="application/json" id="([\w-]+)-data">(.*?)</script>', page, re.S)
    return {name: json.loads(text) for name, text in found}


def own_part(page: str) -> str:
    """The page without plotly.js, which is a text of its own."""
    return page[: page.index("<script>\n")]


def test_every_plot_of_the_contract_is_there_with_axis_titles() -> None:
    figures = figures_of(run_page(plausible_run()))
    assert set(figures) == {"jct-cdf", "wait-cdf", "bounded-slowdown-cdf", "load", "map", "slowdown"}
    for figure in figures.values():
        axes = [v for k, v in figure["layout"].items() if k[1:].startswith("axis")]
        assert len(axes) >= 2
        assert all(axis["title"]["text"] for axis in axes)


def test_columns_of_the_worst_jobs_have_one_unit_and_say_something() -> None:
    result = plausible_run()
    nameless = replace(result, jobs=[replace(job, user="") for job in result.jobs])
    table = own_part(run_page(nameless)).split("The worst job, ")[1].split("</table>")[0]
    titles = re.findall("<th.*?>(.*?)</th>", table)
    assert "user" not in titles and "model" in titles
    column = titles.index("completion (h)")
    cells = [re.findall("<td.*?>(.*?)</td>", row)[column] for row in table.split("<tr>")[2:]]
    assert len(cells) == 20 and all(float(cell.replace(",", "")) > 0 for cell in cells)


def test_no_line_begins_with_the_unit_of_a_number() -> None:
    assert section("6.1 h: 5 % below, 13.0 [3.9, 43.0] d, 2 jobs") == (
        "<section><h2>6.1&nbsp;h: 5&nbsp;% below, 13.0 [3.9, 43.0]&nbsp;d, 2 jobs</h2></section>"
    )


def test_nothing_is_fetched_and_nothing_can_be_sent() -> None:
    page = run_page(plausible_run())
    assert not re.findall(r"<(?:script|link|img|iframe)[^>]*\b(?:src|href)=", own_part(page))
    assert "default-src 'none'" in page
    assert "showSendToCloud: false" in page
    assert page.count("plotly.js v") == 1


def test_names_from_the_trace_cannot_become_markup() -> None:
    result = plausible_run(jobs=5)
    result = replace(
        result,
        jobs=[replace(j, job_id=EVIL + j.job_id, user=EVIL, model=EVIL) for j in result.jobs],
        segments=[replace(s, job_id=EVIL + s.job_id) for s in result.segments],
        settings={EVIL: EVIL},
        notes=[EVIL],
        summary=replace(result.summary, policy=EVIL),
    )
    page = run_page(result)
    assert "<script>alert" not in page
    assert "<img" not in own_part(page)
    assert figures_of(page)["map"]["jobmap"]["table"]["jobs"][0].startswith("&lt;/script&gt;")


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (plausible_run(jobs=0), "No job finished"),
        (plausible_run(jobs=1), "The one finished job took"),
        (replace(plausible_run(), segments=[]), "kept no timeline"),
        (plausible_run(), "Half of the jobs finish within"),
    ],
)
def test_the_page_says_what_there_is_to_say(result: RunResult, sentence: str) -> None:
    page = run_page(result)
    assert sentence in page
    assert "nan" not in own_part(page).lower().split("<style>")[0]
    assert "NaN" not in own_part(page)


def test_a_run_in_which_nothing_finished_shows_no_times() -> None:
    result = plausible_run(jobs=0)
    zeros = replace(result.summary, jobs=7, jct_mean_s=0.0, wait_mean_s=0.0, makespan_s=0.0)
    page = run_page(replace(result, summary=zeros))
    assert "0 s" not in own_part(page).split("</style>")[1]
    assert "7 jobs did not finish" in page


def test_values_that_are_no_numbers_do_not_break_the_figures() -> None:
    result = plausible_run(jobs=4)
    result = replace(
        result,
        jobs=[replace(j, slowdown=math.nan) for j in result.jobs],
        segments=[replace(s, slowdown=math.inf) for s in result.segments],
    )
    assert figures_of(run_page(result))["map"]["jobmap"]["table"]["slowdown"] == [None] * len(result.segments)


def test_a_small_report_is_little_more_than_plotly() -> None:
    from plotly.offline import get_plotlyjs

    assert len(run_page(plausible_run()).encode()) < len(get_plotlyjs().encode()) + 300_000


@pytest.mark.slow
@pytest.mark.parametrize(("nodes", "said"), [(1280, "too many for a row each"), (32, "Sampled at")])
def test_huge_runs_stay_small_and_quick_and_say_what_they_left_out(nodes: int, said: str) -> None:
    result = plausible_run(jobs=88_000, nodes=nodes, gpus_per_node=8)
    assert len(result.segments) > 100_000
    began = time.process_time()
    page = run_page(result)
    assert time.process_time() - began < 20
    assert len(page.encode()) < 15_000_000
    assert said in page


def test_hovering_a_box_names_its_quantiles_for_what_they_are() -> None:
    boxes, texts = figures_of(run_page(plausible_run()))["slowdown"]["data"]
    assert boxes["hoverinfo"] == "skip", "plotly would call the whiskers min and max"
    assert len(texts["text"]) == len(boxes["x"])
    assert all("5 % to 95 %" in t and "median" in t for t in texts["text"])
