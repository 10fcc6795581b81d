"""Ten thousand jobs in a real browser: all of them listed, few of them elements, filtered and sorted without delay."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from tests.browser.conftest import Open, log_in
from tests.browser.test_dashboard import says
from tests.server.api.conftest import running
from tests.server.api.fake import ADMIN_TOKEN, WAITS, FakeAuth, FakeService
from tests.server.api.test_openapi import SAMPLE
from trine.server.api.limits import Limits
from trine.server.board import Board, BoardNode

JOBS, NODES = 10_000, 1_250
PATIENCE_S = 5.0
"""For what takes a tenth of a second on an idle machine."""


class Large(FakeService):
    """As many jobs and GPUs; the first GPUs are held by the first jobs."""

    def board(self) -> Board:
        board = super().board()
        board.nodes = [BoardNode(f"node{i}", f"rack{i // 32}", "a100", 8) for i in range(NODES)]
        board.gpu_jobs = [(str(gpu),) if gpu < 4_000 else () for gpu in range(NODES * 8)]
        return board


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Large:
    made = Large(tmp_path_factory.mktemp("logs"))
    for i in range(JOBS):
        waiting = i >= 4_000
        made.views[str(i)] = replace(
            SAMPLE,
            id=str(i),
            name=f"train-{i}",
            user=f"user{i % 50}",
            state="waiting" if waiting else "running",
            run_from_s=None if waiting else 10.0,
            reason=WAITS,
        )
    return made


def test_ten_thousand_jobs_and_gpus(service: Large, open_page: Open, tmp_path: Path) -> None:
    with running(service, Limits(), FakeAuth()) as server:
        page = open_page(f"{server.url}/ui", allow_failures=True)
        log_in(page, ADMIN_TOKEN)
        says(page, "main", "10,000 GPUs on 1,250 nodes")
        says(page, ".cards", "40 %")
        page.get_by_role("link", name="Queue", exact=True).click()
        says(page, ".controls", "10,000 jobs")
        says(page, ".space", "No GPU is free.")
        assert page.locator(".space .row").count() < 100, "only rows in sight are elements"
        page.locator(".long-table .body").evaluate("(body) => { body.scrollTop = body.scrollHeight; }")
        says(page, ".space", "train-9999")
        begin_s = time.monotonic()
        page.get_by_label("Filter").fill("user:user7 state:waiting")
        says(page, ".controls", "120 jobs")
        page.get_by_role("button", name="id").click()
        page.get_by_role("button", name="id").click()
        says(page, ".space .row[aria-rowindex='2']", "9957")
        assert time.monotonic() - begin_s < PATIENCE_S
