"""Makes the pictures of the dashboard in docs/images: daemons with jobs that do little, and recorded runs, photographed
in a headless Chromium driven by Playwright. Run by ``make pictures``; nothing is fetched."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.dashboard import host

from trine.client import Client
from trine.core.errors import TrineError

IMAGES = Path(__file__).parent / "images"
CLUSTER = Path(__file__).parent.parent / "examples" / "clusters" / "type-chip-place.yaml"
TRINE = [sys.executable, "-m", "trine"]
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 800}
GANGS = (8, 4, 2, 1, 4, 16)
TRAINING = 'for i in $(seq 1 900); do echo step $i, loss $(awk "BEGIN {print 3 / (1 + $i / 50)}"); sleep 0.3; done'


def main() -> None:
    """Make all of them."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise TrineError("docs/dashboard_pictures.py needs chromium (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        large(browser)
        with tempfile.TemporaryDirectory() as folder:
            recorded(browser, Path(folder))
            live(browser, Path(folder))
        browser.close()


def recorded(browser: Any, folder: Path) -> None:
    """Two runs of one trace on a cluster of two types, three racks and slow chips."""
    for policy in ("fifo", "las"):
        options = ["--cluster", CLUSTER, "--workload", "helios", "--policy", policy, "--out", folder / policy]
        sets = ["--set", "workload.jobs=400", "--set", "workload.load=0.9", "--set", "workload.max_gpus=16"]
        subprocess.run([*TRINE, "sim", "run", *map(str, options), *sets], check=True, capture_output=True)
    with viewing(folder / "fifo", folder / "las") as (url, code):
        page = opened(browser, f"{url}#code={code}", DESKTOP)
        page.get_by_label("Time").fill("420")
        settled(page)
        page.screenshot(path=IMAGES / "dashboard-view.png")
    with viewing(folder / "las") as (url, code):
        page = opened(browser, f"{url}#code={code}", DESKTOP)
        page.get_by_label("Time").fill("420")
        for name in ("history", "hardware"):
            page.goto(f"{url}#/{name}")
            settled(page)
            page.screenshot(path=IMAGES / f"dashboard-{name}.png")


def large(browser: Any) -> None:
    """A thousand GPUs with jobs that only pretend to run."""
    with host(1_024, 600) as found:
        page = opened(browser, f"{found.url}/ui", DESKTOP, found.token)
        time.sleep(15)  # so that there are shares to see
        for name in ("cluster", "users"):
            page.goto(f"{found.url}/ui#/{name}")
            settled(page)
            page.screenshot(path=IMAGES / f"dashboard-{name}.png")
        phone = opened(browser, f"{found.url}/ui", PHONE, found.token, color_scheme="dark")
        settled(phone)
        phone.screenshot(path=IMAGES / "dashboard-phone.png")


def live(browser: Any, folder: Path) -> None:
    """A daemon with a job that writes lines, and is held and released once."""
    with daemon(folder / "state") as client:
        job = client.submit({"run": ["sh", "-c", TRAINING], "gpus": 4, "name": "resnet50"})[0]
        page = opened(browser, f"{client.dashboard_url()}/ui#code={client.login_code()}", DESKTOP)
        time.sleep(6)
        client.hold(job)
        time.sleep(4)
        client.release(job)
        time.sleep(8)
        page.goto(f"{client.dashboard_url()}/ui#/job/{job}")
        predicted(page, ".facts", "predicted end")
        settled(page)
        page.screenshot(path=IMAGES / "dashboard-job.png", full_page=True)
        for i in range(24):
            limit = {"max_runtime": f"{1 + i % 5}h"} if i % 4 else {}
            client.submit({"run": ["sleep", "600"], "gpus": GANGS[i % len(GANGS)], "name": f"train-{i}", **limit})
        page.goto(f"{client.dashboard_url()}/ui#/queue")
        predicted(page, ".space", r"starts \d")
        settled(page)
        page.screenshot(path=IMAGES / "dashboard-queue.png")


def opened(browser: Any, url: str, viewport: dict[str, int], token: str = "", **options: Any) -> Any:
    page = browser.new_context(viewport=viewport, **options).new_page()
    page.goto(url)
    if token:
        page.get_by_label("Token or code").fill(token)
        page.get_by_role("button", name="Log in").click()
    page.locator(".cards b").first.wait_for()
    return page


def predicted(page: Any, selector: str, pattern: str) -> None:
    """The first forecast is there."""
    page.locator(selector).get_by_text(re.compile(pattern)).first.wait_for(timeout=180_000)


def settled(page: Any) -> None:
    """All that is asked for is there and drawn."""
    page.wait_for_timeout(2_500)


@contextlib.contextmanager
def viewing(*folders: Path) -> Iterator[tuple[str, str]]:
    command = [*TRINE, "view", *map(str, folders), "--print"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        url, told = process.stdout.readline().strip(), process.stdout.readline()
        found = re.search(r"code ([A-Z0-9-]+),", told)
        if found is None:
            raise TrineError("trine view did not start")
        yield url, found.group(1)
    finally:
        process.terminate()
        process.wait(30)


@contextlib.contextmanager
def daemon(state: Path) -> Iterator[Client]:
    options = ["--state", state, "--gpus", CLUSTER, "--port", "0", "--quiet", "--event-driven"]
    process = subprocess.Popen([*TRINE, "up", *map(str, options)], stderr=subprocess.DEVNULL)
    try:
        deadline_s = time.monotonic() + 60
        while not (state / "api.json").exists():
            if process.poll() is not None or time.monotonic() > deadline_s:
                raise TrineError("the daemon did not start")
            time.sleep(0.05)
        with Client(state=state) as client:
            yield client
            for job in client.jobs():
                client.cancel(job["id"])
            for job in client.jobs():
                client.wait(job["id"], 60)
    finally:
        process.terminate()
        process.wait(30)


if __name__ == "__main__":
    try:
        main()
    except TrineError as error:
        sys.exit(str(error))
