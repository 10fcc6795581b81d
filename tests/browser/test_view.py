"""``trine view`` in a real browser: the slider, two runs side by side, hostile names from a trace."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.browser.conftest import Open
from tests.browser.test_dashboard import says

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
        page = open_page(url)
        page.locator(".pane").nth(1).wait_for()
        assert [each.split(":")[0] for each in page.locator(".pane h1").all_inner_texts()] == ["fifo", "srtf"]
        slider = page.get_by_label("Time")
        slider.fill("300")
        says(page, ".pane:nth-child(1) .cards", re.compile(r"^[1-9]\d* %.*[1-9]\d*jobs waiting"))
        slider.fill("1000")
        says(page, ".pane:nth-child(1) .cards", "0.0 %")
        page.get_by_role("button", name="Play").click()
        says(page, ".time", "Play")
        for name in ("queue", "users", "hardware", "history", "job/5"):
            page.goto(f"{url.partition('#')[0]}#/{name}")
            page.locator(".pane").nth(1).locator("h1").wait_for()
            page.wait_for_timeout(400)
        says(page, ".pane:nth-child(2) .story", "submitted")
        assert page.get_by_role("link", name="What if").count() == 0


def test_names_of_a_trace_show_as_text(runs: tuple[Path, Path], open_page: Open) -> None:
    with viewing(runs[0]) as url:
        page = open_page(url)
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
