"""``trine view`` in a real browser: the slider, two runs side by side, hostile names from a trace."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.browser.conftest import Open
from tests.browser.test_dashboard import says
from tests.e2e.live import until
from trine.core.errors import InputError
from trine.report.running_record import RunningRunReader, found_record

HOSTILE = "<img src=x onerror=document.title='owned'>"
TRACE = "job_id,submit_s,duration_s,gpus,model,user\n" + "".join(
    f"{i},{i * 100},{3600 + i},{1 + i % 4},{HOSTILE if i == 3 else 'bert'},{'ada' if i % 2 else HOSTILE}\n"
    for i in range(40)
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    home = tmp_path_factory.mktemp("view")
    (home / "trace.csv").write_text(TRACE)
    for policy in ("fifo", "srtf"):
        options = ["--trace", home / "trace.csv", "--cluster", "4x4", "--policy", policy, "--out", home / policy]
        subprocess.run(
            [sys.executable, "-m", "trine", "sim", "run", *map(str, options)], check=True, capture_output=True
        )
    return home / "fifo", home / "srtf"


@contextmanager
def viewing(*folders: Path) -> Iterator[str]:
    """The address with a code that logs in."""
    command = [sys.executable, "-m", "trine", "view", *map(str, folders), "--print"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        url, told = process.stdout.readline().strip(), process.stdout.readline()
        code = re.search(r"code ([A-Z0-9-]+),", told)
        assert code is not None
        yield f"{url}#code={code.group(1)}"
    finally:
        process.terminate()
        assert process.wait(30) == 0
        assert process.stdout is not None
        process.stdout.close()


def test_two_runs_side_by_side_at_the_time_of_the_slider(runs: tuple[Path, Path], open_page: Open) -> None:
    with viewing(*runs) as url:
        page = open_page(url, allow_failures=True)
        page.locator(".pane").nth(1).wait_for()
        says(page, ".pane:nth-child(1) .run", "fifo: ")
        says(page, ".pane:nth-child(2) .run", "srtf: ")
        slider = page.get_by_label("Time", exact=True)
        slider.fill("300")
        says(page, ".pane:nth-child(1) .cards", re.compile(r"^[1-9]\d* %.*[1-9]\d*jobs waiting"))
        slider.fill("1000")
        says(page, ".pane:nth-child(1) .cards", "0.0 %")
        page.get_by_role("button", name="Play").click()
        says(page, ".time", "Pause")  # at its end it begins once more
        assert float(slider.input_value()) < 500
        page.get_by_role("button", name="Pause").click()
        slider.fill("0")
        page.goto(f"{url.partition('#')[0]}#/job/5")
        says(page, ".pane:nth-child(2)", "Job 5: not submitted")
        slider.fill("1000")
        for name in ("queue", "users", "hardware", "history", "job/5"):
            page.goto(f"{url.partition('#')[0]}#/{name}")
            page.locator(".pane").nth(1).locator("h1").wait_for()
            says(page, ".pane:nth-child(2) .run", "srtf: ")  # which of the two it is
            page.wait_for_timeout(400)
        says(page, ".pane:nth-child(2) .story", "submitted")
        assert page.get_by_role("link", name="What if").count() == 0
        page.reload()  # the page is there before the run is
        says(page, ".pane:nth-child(2)", "Job 5: not submitted")
        assert page.get_by_role("button", name="Cancel").count() == 0 and page.locator("pre.log").count() == 0


def test_side_by_side_the_queue_says_why_jobs_wait_and_nothing_is_cut_off(
    runs: tuple[Path, Path], open_page: Open
) -> None:
    with viewing(*runs) as url:
        page = open_page(url, allow_failures=True)
        page.locator(".pane").nth(1).wait_for()
        page.get_by_label("Time").fill("300")
        page.goto(f"{url.partition('#')[0]}#/queue")
        tables = page.locator(".long-table")
        says(page, ".pane:nth-child(2) .space", "GPU")
        for pane in range(2):
            header = tables.nth(pane).locator(".head .cell:visible")
            assert header.last.inner_text() == "why"
            edge = tables.nth(pane).bounding_box()
            last = header.last.bounding_box()
            assert edge and last and last["x"] + last["width"] <= edge["x"] + edge["width"] + 1


def test_names_of_a_trace_show_as_text(runs: tuple[Path, Path], open_page: Open) -> None:
    with viewing(runs[0]) as url:
        page = open_page(url, allow_failures=True)
        page.get_by_label("Time").fill("200")
        page.goto(f"{url.partition('#')[0]}#/users")
        says(page, "main", HOSTILE)
        page.goto(f"{url.partition('#')[0]}#/job/3")
        says(page, "main", HOSTILE)
        assert page.locator("main img").count() == 0 and "owned" not in page.title()


def test_without_the_code_nothing_is_shown(runs: tuple[Path, Path], open_page: Open) -> None:
    with viewing(runs[0]) as url:
        page = open_page(url.partition("#")[0], allow_failures=True)
        page.get_by_label("Token or code").wait_for()
        assert page.evaluate("fetch('/v1/runs/0/board').then((answer) => answer.status)") == 401


PACED = '''
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from trine.policy.fifo import Fifo


@dataclass
class Paced(Fifo):
    """First in, first out; slow, and after a while it stands still until it is told to go on."""

    name: ClassVar[str] = "paced"
    title: ClassVar[str] = "stands still until told"

    def rank(self, view):
        until = time.monotonic() + (120 if view.now > 2000 else 0.2)
        while time.monotonic() < until and not Path(__file__).with_name("go").exists():
            time.sleep(0.02)
        return super().rank(view)
'''


def test_a_run_is_followed_while_it_goes_on_and_shown_as_it_ended(tmp_path: Path, open_page: Open) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "paced.py").write_text(PACED)
    out = tmp_path / "out"
    options = ["--trace", tmp_path / "trace.csv", "--cluster", "4x4", "--policy", tmp_path / "paced.py", "--out", out]
    command = [sys.executable, "-m", "trine", "sim", "run", "--set", "round_s=20", *map(str, options)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as simulation:
        try:
            until(lambda: is_readable(out), "the simulation to say how far it is")
            with viewing(out) as url:
                page = open_page(url, allow_failures=True)
                says(page, ".condition", "running")
                says(page, ".time", re.compile(r"Play(\d+) min of \1 min"))  # it shows the present
                says(page, ".cards", re.compile(r"[1-9]\d*jobs with GPUs"))
                assert not out.exists(), "results appear when they are complete"
                page.goto(f"{url.partition('#')[0]}#/history")
                page.get_by_label(re.compile(r"^Utilization.*last [1-9]")).wait_for()
                (tmp_path / "go").touch()
                says(page, ".condition", "recorded")
                page.get_by_label(re.compile(r"^Utilization.*last 0 %")).wait_for()
                page.goto(f"{url.partition('#')[0]}#/cluster")
                says(page, ".cards", "0.0 %")
                page.goto(f"{url.partition('#')[0]}#/queue")
                page.get_by_label("Show").select_option("ended")
                says(page, "main", "40 jobs")
        finally:
            (tmp_path / "go").touch()
            assert simulation.wait(60) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "jobs.csv",
        "report.html",
        "summary.json",
        "timeline.parquet",
    ]
    assert found_record(out) is None


def is_readable(out: Path) -> bool:
    path = found_record(out)
    with suppress(InputError):
        return path is not None and len(RunningRunReader(path, "").read().jobs) > 8
    return False
