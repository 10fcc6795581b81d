"""Comparisons: intervals, pairing, marks for the best, the files and the page."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.report.plausible import plausible_run
from tests.report.test_page import EVIL, figures_of, own_part
from trine.core.errors import InputError
from trine.report.compare import (
    METRICS,
    Comparison,
    ComparisonRow,
    comparison_table,
    estimate,
    headline,
    paired_difference,
)
from trine.report.compare_page import compare_page
from trine.report.files import write_comparison

POLICIES = (("fifo", "packed", 1.0), ("las", "packed", 1.1), ("srtf", "pal", 1.3))


def comparison_of(seeds: int = 3, policies: tuple[tuple[str, str, float], ...] = POLICIES) -> Comparison:
    return Comparison.of(
        plausible_run(jobs=40, seed=s, policy=p, placement=q, speed=v) for p, q, v in policies for s in range(seeds)
    )


def rows_with(values: dict[tuple[str, int], float]) -> Comparison:
    base = plausible_run(jobs=1).summary.results()
    rows = [ComparisonRow(p, "packed", seed, {**base, "jct_mean_s": v}) for (p, seed), v in values.items()]
    return Comparison(rows)


def test_the_interval_is_that_of_student() -> None:
    # t(0.975, 2 degrees) = 4.30265; deviation of 1, 2, 3 is 1.
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half == pytest.approx(4.302653 / 3**0.5, rel=1e-6)


def test_one_seed_has_no_interval() -> None:
    assert estimate([5.0]).half is None
    assert estimate([5.0]).low is None


def test_differences_are_paired_by_seed_not_by_order() -> None:
    comparison = rows_with({("a", 0): 10, ("a", 1): 20, ("b", 1): 18, ("b", 0): 8})
    difference = paired_difference(comparison, ("b", "packed"), METRICS[0])
    assert difference is not None
    assert (difference.mean, difference.half) == (-2.0, 0.0)


@pytest.mark.parametrize(("noise", "chance"), [(0.0, False), (50.0, True)])
def test_the_headline_says_when_a_difference_may_be_chance(noise: float, chance: bool) -> None:
    values = {("a", s): 100.0 + s for s in range(3)} | {("b", s): 90.0 + s + noise * (s - 1) for s in range(3)}
    page = compare_page(rows_with(values))
    assert "b has the shortest mean completion time" in page
    assert ("which may be chance" in page) is chance


def test_headline_and_table_have_the_same_figure_in_the_same_unit() -> None:
    """The middle of the column is hours; that of the best alone would be minutes."""
    values = {("a", s): 400_000.0 + s for s in range(3)} | {("b", s): 7_000.0 + s for s in range(3)}
    values |= {("c", s): 2_500.0 + s for s in range(3)}
    header, *lines = comparison_table(rows_with(values))
    at = next(i for i, title in enumerate(header) if title.startswith("JCT mean"))
    unit, figure = header[at].partition("(")[2].rstrip(")"), lines[2][at].partition(" [")[0]
    assert f"c has the shortest mean completion time, {figure} {unit}: " in headline(rows_with(values))
    assert f"c has the shortest mean completion time, {figure} {unit}: " in compare_page(rows_with(values))


def test_other_seeds_cannot_be_paired() -> None:
    comparison = rows_with({("a", 0): 10, ("a", 1): 20, ("b", 0): 8, ("b", 2): 9})
    assert paired_difference(comparison, ("b", "packed"), METRICS[0]) is None
    assert "cannot be paired" in compare_page(comparison)


def test_the_table_marks_the_best_of_each_column() -> None:
    header, *lines = comparison_table(comparison_of())
    jct = next(i for i, title in enumerate(header) if title.startswith("JCT mean ("))
    assert [line[:3] for line in lines] == [("fifo", "packed", "3"), ("las", "packed", "3"), ("srtf", "pal", "3")]
    assert [line[jct].endswith(" *") for line in lines] == [False, False, True]
    assert all(re.fullmatch(r"[\d.]+ \[[\d.]+, [\d.]+\]( \*)?", line[jct]) for line in lines), "one unit, in the header"
    assert not any(line[header.index("utilization (%)")].endswith("*") for line in lines), "equal values have no best"


def test_a_run_in_which_nothing_finished_is_never_the_best() -> None:
    comparison = rows_with({("works", 0): 10.0, ("worse", 0): 20.0, ("stuck", 0): 0.0})
    stuck = comparison.rows[2]
    rows = [*comparison.rows[:2], replace(stuck, results={**stuck.results, "finished": 0, "jobs": 5})]
    header, *lines = comparison_table(replace(comparison, rows=rows))
    assert [line[header.index("JCT mean (s)")] for line in lines] == ["10 *", "20", "–"]
    assert "Not all jobs finished with stuck/packed" in compare_page(replace(comparison, rows=rows))


def test_the_files_of_a_comparison(tmp_path: Path) -> None:
    comparison = comparison_of()
    write_comparison(comparison, tmp_path / "out")
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"compare.json", "compare.csv", "report.html"}
    found = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert found["baseline"] == {"policy": "fifo", "placement": "packed"}
    assert len(found["runs"]) == 9
    difference = found["differences"][1]["jct_mean_s"]
    jct = {(r["policy"], r["seed"]): r["jct_mean_s"] for r in found["runs"]}
    assert difference["mean"] == pytest.approx(sum(jct["srtf", s] - jct["fifo", s] for s in range(3)) / 3)
    assert difference["low"] < difference["mean"] < difference["high"]
    with (tmp_path / "out" / "compare.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(r["policy"], r["placement"], r["seed"]) for r in rows][:2] == [
        ("fifo", "packed", "0"),
        ("fifo", "packed", "1"),
    ]
    assert float(rows[0]["jct_mean_s"]) == pytest.approx(comparison.rows[0].results["jct_mean_s"], abs=1e-6)


def test_the_same_comparison_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_comparison(comparison_of(), tmp_path / name)
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()


def test_no_rows_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no runs"):
        write_comparison(Comparison([]), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_the_page_has_every_plot_and_a_view_per_policy() -> None:
    page = compare_page(comparison_of())
    dots = {f"dots-{k}" for k in ("jct_mean_s", "jct_p99_s", "makespan_s", "wait_mean_s", "utilization")}
    views = {f"{what}-v{i}" for what in ("load", "map") for i in range(3)}
    assert dots | views | {"jct-cdf", "wait-cdf", "slowdown", "difference-jct_mean_s"} <= set(figures_of(page))
    assert "srtf/pal has the shortest mean completion time" in page


def test_a_plot_of_one_row_has_room_for_the_title_beside_it() -> None:
    found = figures_of(compare_page(comparison_of(policies=POLICIES[:2])))
    one, two = found["difference-jct_mean_s"], found["dots-jct_mean_s"]
    assert (len(one["data"]), len(two["data"])) == (2, 4)
    assert one["layout"]["height"] >= two["layout"]["height"]
    assert [trace["cliponaxis"] for trace in two["data"][1::2]] == [False, False], "a dot at zero is cut in half"


def test_one_seed_is_said_to_have_no_interval() -> None:
    page = compare_page(comparison_of(seeds=1))
    assert "one seed only: there is no interval" in page
    assert "95 %" not in own_part(page).split("Results")[1].split("</section>")[0]


def test_one_trace_is_not_said_to_need_more_seeds() -> None:
    page = own_part(compare_page(replace(comparison_of(seeds=1), settings={"trace": "jobs.csv"})))
    assert "on one trace: there is no interval" in page
    assert "one seed only" not in page


def test_dots_at_zero_stand_off_the_names_and_axes_say_no_more_than_they_must() -> None:
    found = figures_of(compare_page(comparison_of()))
    wait = found["dots-wait_mean_s"]["layout"]["xaxis"]
    assert wait["range"][0] < 0 < wait["range"][1]
    assert found["dots-preemptions"]["layout"]["xaxis"]["title"]["text"] == "Preemptions (less is better)"
    worst = found["dots-rho_max"]["layout"]["xaxis"]["title"]["text"]
    assert worst.startswith("Worst finish-time fairness (rho; ") and worst.count("(") == 1


def test_rows_are_named_for_what_tells_them_apart() -> None:
    def rows_of(policies: tuple[tuple[str, str, float], ...]) -> str:
        found = figures_of(compare_page(comparison_of(policies=policies)))
        return str(found["dots-jct_mean_s"]["layout"]["yaxis"]["title"]["text"])

    assert rows_of(POLICIES[:2]) == "Policy"
    assert rows_of(POLICIES) == "Policy, placement"
    assert rows_of((("fifo", "packed", 1.0), ("fifo", "pal", 1.1))) == "Placement"


def test_equal_medians_are_one_figure() -> None:
    alike = (("fifo", "packed", 1.0), ("las", "packed", 1.0))
    page = own_part(compare_page(comparison_of(policies=alike))).replace("&nbsp;", " ")
    titles = re.findall(r"<h2>(Job completion time: .*?)</h2>", page)
    assert len(titles) == 1 and titles[0].endswith(" at the median of each")


def test_without_whole_runs_there_are_still_the_numbers() -> None:
    figures = figures_of(compare_page(replace(comparison_of(), runs={})))
    assert "dots-jct_mean_s" in figures
    assert not any(name.startswith(("map", "load", "jct-cdf")) for name in figures)


def test_many_policies_do_not_make_a_huge_file() -> None:
    many = tuple((f"policy{i}", "packed", 1 + i / 50) for i in range(24))
    page = compare_page(comparison_of(seeds=1, policies=many))
    assert len(page.encode()) < 15_000_000
    assert "of 24 combinations are shown" in page


def test_names_cannot_become_markup() -> None:
    page = compare_page(comparison_of(policies=((EVIL, "packed", 1.0), ("b", EVIL, 1.2))))
    assert "<script>alert" not in page
    assert "<img" not in own_part(page)
