"""What ``trine sim`` says beside its figures: no winner without a difference, what is free, what is overwritten."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trine.cli.main import app
from trine.cli.tables import blocks, print_table
from trine.core.errors import InputError, TrineError
from trine.report.compare import label

POLICY = """
from dataclasses import dataclass
from typing import ClassVar

from trine.policy.base import KeyPolicy


@dataclass
class Mine(KeyPolicy):
    name: ClassVar[str] = "mine"
    title: ClassVar[str] = "largest gang first"

    def key(self, view):
        return -view.gpus.astype(float)
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Jobs of one GPU, one after the other."""
    rows = "".join(f"j{i},{1000 * i},1,600\n" for i in range(8))
    path = tmp_path / "jobs.csv"
    path.write_text(f"job_id,submit_s,gpus,duration_s\n{rows}")
    return path


@pytest.fixture
def crowd(tmp_path: Path) -> Path:
    """Gangs that span nodes and stop each other."""
    rows = "".join(f"j{i},{300 * i},{1 + 3 * (i % 2)},{900 + 400 * (i % 5)}\n" for i in range(20))
    path = tmp_path / "crowd.csv"
    path.write_text(f"job_id,submit_s,gpus,duration_s\n{rows}")
    return path


def sim(*args: object) -> Result:
    done = CliRunner().invoke(app, ["sim", *map(str, args)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done


def test_no_winner_is_named_where_gpus_were_never_short(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = sim("compare", "--trace", trace, "--cluster", "4x4", "--policies", "fifo,las,srtf", "--out", out)
    said = "No difference: GPUs were never short (4 % of their time was used); the 3 combinations give the same results"
    assert said in done.stdout
    assert f"<h1>{said}</h1>" in (out / "report.html").read_text().replace("&nbsp;", " ")
    assert json.loads((out / "compare.json").read_text())["headline"] == said


def test_a_difference_has_a_winner(crowd: Path) -> None:
    done = sim("compare", "--trace", crowd, "--cluster", "2x2", "--policies", "fifo,srtf")
    said = re.search(r"^srtf has the shortest mean completion time, (\S+) (\S+): .* below fifo$", done.stdout, re.M)
    assert said is not None
    assert f"JCT mean ({said[2]})" in done.stdout, "the unit of the table"
    assert re.search(rf"^ *srtf .* {re.escape(said[1])} ", done.stdout, re.M), "and the figure that is there"


def test_equal_results_on_a_full_cluster_have_no_reason_named(crowd: Path) -> None:
    options = ("--placements", "packed-sticky,packed", "--policies", "fifo", "--workers", "1")
    done = sim("compare", "--trace", crowd, "--cluster", "1x4", *options)
    assert "No difference: the 2 combinations give the same results" in done.stdout


def test_policies_of_ones_own_are_called_by_their_name(crowd: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(POLICY)
    policies = f"fifo,{tmp_path / 'mine.py'}"
    out = tmp_path / "out"
    options = ("--policies", policies, "--workers", "1", "--out", out)
    done = sim("compare", "--trace", crowd, "--cluster", "2x2", *options)
    assert re.search(r"^ ?mine +packed-sticky", done.stdout, re.M)
    head = re.search(r"<h1>(.*?)</h1>", (out / "report.html").read_text())
    assert head is not None
    assert str(tmp_path) not in head.group(1)


def test_what_costs_nothing_is_said(crowd: Path) -> None:
    free = sim("run", "--trace", crowd, "--cluster", "2x2", "--policy", "srtf")
    assert "note: Stops are free: restore_s is 0" in free.stderr
    assert "note: Spreading is free: locality_penalty is 1" in free.stderr
    options = ("--locality-penalty", "1.4", "--set", "restore_s=30")
    charged = sim("run", "--trace", crowd, "--cluster", "2x2", "--policy", "srtf", *options)
    assert "free" not in charged.stderr


def test_types_that_are_alike_for_want_of_rates_are_said_to_be(trace: Path) -> None:
    two_types = sim("run", "--trace", trace, "--cluster", "v100=1x2,k80=1x2")
    assert "note: GPU types are alike: without throughputs every job is as fast on v100 as on k80." in two_types.stderr
    assert "alike" not in sim("run", "--trace", trace, "--cluster", "2x2").stderr
    table = ("--throughputs", "gavel-simulation")  # the jobs name no model
    assert "GPU types are alike" in sim("run", "--trace", trace, "--cluster", "v100=1x2,k80=1x2", *table).stderr


def test_jobs_that_the_table_does_not_tell_apart_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text("job_id,submit_s,gpus,duration_s,model\na,0,1,60,LM (batch size 40)\nb,0,1,60,\nc,0,1,60,\n")
    done = sim("run", "--trace", path, "--cluster", "v100=1x2,k80=1x2", "--throughputs", "gavel-simulation")
    assert "note: 2 of 3 jobs name no model of the throughput table" in done.stderr


def test_what_costs_nothing_is_said_once_for_all_seeds() -> None:
    workload = ("--workload", "philly", "--set", "workload.jobs=60", "--set", "workload.load=1.5", "--cluster", "2x8")
    done = sim("compare", *workload, "--policies", "las,srtf", "--seeds", "0..2", "--workers", "1")
    assert done.stderr.count("Stops are free") == 1


def test_a_comparison_with_many_notes_still_says_that_it_replaces(tmp_path: Path) -> None:
    path = tmp_path / "philly.csv"
    rows = [f"2017-10-09 07:0{i % 3}:00,{900 + i},{1 + 7 * (i % 2)},1,{'ab'[i % 2]}" for i in range(12)]
    path.write_text("\n".join(["timestamp,duration,num_gpus,gpu_time,cluster", *rows, rows[0]]))
    options = ("--cluster", "2x4", "--policies", "fifo,srtf", "--set", "trace.group=b", "--workers", "1")
    run = ("compare", "--trace", path, *options, "--seeds", "0..1", "--out", tmp_path / "out")
    sim(*run)
    assert "are replaced" in sim(*run).stderr


def test_seeds_that_change_nothing_have_no_interval(crowd: Path) -> None:
    options = ("--policies", "fifo,srtf", "--seeds", "0..2", "--workers", "1")
    done = sim("compare", "--trace", crowd, "--cluster", "2x2", *options)
    assert "[" not in done.stdout


def test_the_wait_of_eligible_jobs_is_told_only_of_jobs_that_depend_on_others(crowd: Path) -> None:
    assert "eligible" not in sim("run", "--trace", crowd, "--cluster", "2x2", "--policy", "fifo").stdout


def test_a_mistake_in_a_policy_file_is_one_sentence_with_its_line(crowd: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(POLICY.replace("view.gpus", "view.gpu_count"))
    line = path.read_text().splitlines().index("        return -view.gpu_count.astype(float)") + 1
    found = re.escape(f"{path}:{line}: AttributeError: a view of the jobs has no 'gpu_count'")
    for workers in ("1", "2"):
        options = ("--policies", f"fifo,{path}", "--seeds", "0,1", "--workers", workers)
        with pytest.raises(TrineError, match=found):
            sim("compare", "--trace", crowd, "--cluster", "2x2", *options)


def test_a_policy_class_without_a_name_is_told_to_have_one(crowd: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(POLICY.replace('    name: ClassVar[str] = "mine"\n', ""))
    with pytest.raises(InputError, match='the class Mine has no name; expected a line such as name = "mine" in it'):
        sim("run", "--trace", crowd, "--cluster", "2x2", "--policy", path)


def test_an_unknown_setting_names_near_ones_and_not_all_of_them(crowd: Path) -> None:
    with pytest.raises(InputError, match=r"unknown key 'group' \(did you mean 'trace.group'\?\)") as caught:
        sim("run", "--trace", crowd, "--cluster", "2x2", "--set", "group=a")
    assert len(str(caught.value)) < 300


def test_a_repetition_replaces_and_says_so_but_nothing_else_is_overwritten(trace: Path, tmp_path: Path) -> None:
    files = ("--trace", trace, "--cluster", "2x2", "--out", tmp_path / "out")
    run = ("run", *files, "--placement", "packed-sticky", "--policy", "fifo")
    assert "replaced" not in sim(*run).stderr
    before = (tmp_path / "out" / "report.html").read_bytes()
    assert f"(fifo with packed-sticky, seed 0, {trace} on 2x2) are replaced" in sim(*run).stderr
    assert (tmp_path / "out" / "report.html").read_bytes() == before
    with pytest.raises(InputError, match=r"results of another run \(fifo with packed-sticky, seed 0, .*--overwrite"):
        sim("run", *files, "--policy", "las")
    assert (tmp_path / "out" / "report.html").read_bytes() == before
    sim("run", *files, "--policy", "las", "--overwrite")
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["policy"] == "las"


@pytest.mark.parametrize("verb", ["run", "compare"])
def test_results_of_other_jobs_or_another_cluster_are_not_replaced(
    verb: str, trace: Path, crowd: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    more = ("--workers", "1") if verb == "compare" else ()
    sim(verb, "--trace", trace, "--cluster", "2x2", "--out", out, *more)
    before = (out / "report.html").read_bytes()
    for other in (("--trace", crowd, "--cluster", "2x2"), ("--trace", trace, "--cluster", "4x2")):
        with pytest.raises(InputError, match=r"results of another run \(.* on 2x2\).*--overwrite"):
            sim(verb, *other, "--out", out, *more)
    with pytest.raises(InputError, match=r"results of another run \(.* on 2x2\).*--overwrite"):
        sim(verb, "--trace", trace, "--cluster", "2x2", "--scale-load", "2", "--out", out, *more)
    assert (out / "report.html").read_bytes() == before
    assert "are replaced" in sim(verb, "--trace", crowd, "--cluster", "2x2", "--out", out, "--overwrite", *more).stderr


def test_the_command_on_the_page_leaves_out_where_it_was_written(trace: Path, tmp_path: Path) -> None:
    options = ("--set", "restore_s=30", "--seed", "3", "--event-driven")
    for name in ("a", "b"):
        sim("run", "--trace", trace, "--cluster", "2x2", *options, "--out", tmp_path / name)
    page = (tmp_path / "a" / "report.html").read_text()
    command = f"sim run --trace {trace} --cluster 2x2 --event-driven --seed 3 --set restore_s=30<"
    assert command in page
    assert page == (tmp_path / "b" / "report.html").read_text()


def test_one_number_of_seeds_is_said_to_be_one_seed(trace: Path) -> None:
    run = ("compare", "--trace", trace, "--cluster", "2x2", "--workers", "1")
    assert "--seeds 5 is the one seed 5; 5 seeds are --seeds 0..4" in sim(*run, "--seeds", "5").stderr
    assert "is the one seed" not in sim(*run, "--seeds", "0..1").stderr


def test_a_table_too_wide_for_the_terminal_goes_on_below() -> None:
    rows = [("policy", "placement", "a", "b", "c"), ("fifo", "packed", "1 [2, 3]", "4 [5, 6]", "7 [8, 9]")]
    parts = blocks(rows, 2, 42)
    assert [part[0] for part in parts] == [["policy", "placement", "a", "b"], ["policy", "placement", "c"]]
    assert blocks(rows, 2, 1000) == [[list(row) for row in rows]]


def test_no_part_of_a_table_is_cut(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("policy", "placement", "a", "b", "c"), ("fifo", "packed", "1 [2, 3] *", "4 [5, 6]", "7 [8, 9] *")]
    monkeypatch.setenv("FORCE_COLOR", "1")
    for room in range(33, 60):
        monkeypatch.setenv("COLUMNS", str(room))
        print_table(rows)
        text = capsys.readouterr().out
        assert "…" not in text
        assert text.count("] *") == 2


def test_the_summary_names_files_shortly_and_says_when_is_decided(trace: Path, tmp_path: Path) -> None:
    """A job that comes just after the beginning of a round waits for the next: one has to know how long that is."""
    (tmp_path / "mine.py").write_text(POLICY)
    run = ("run", "--trace", trace, "--cluster", "2x2", "--policy", tmp_path / "mine.py")
    shown = sim(*run).stdout
    assert "policy       mine with packed-sticky\n" in shown
    assert "decided      in rounds of 300 s, " in shown
    assert "decided      at arrivals and completions, " in sim(*run, "--event-driven").stdout


def test_files_go_by_their_names() -> None:
    assert [label(name) for name in ("fifo", "./mine.py", "/a/lowest.py-sticky", "pal-sticky")] == [
        "fifo",
        "mine",
        "lowest-sticky",
        "pal-sticky",
    ]
