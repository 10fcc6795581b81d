"""The dashboard of a real daemon in a real browser: login, every page, every button, a restart, two users."""

from __future__ import annotations

import asyncio
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Open, log_in
from tests.e2e.live import Daemon, daemon, until
from tests.server.api.conftest import running
from tests.server.api.fake import ANNA_TOKEN, BEN_TOKEN, FakeAuth, FakeService
from trine.client import Client, RefusedError
from trine.server.api.limits import Limits
from trine.server.auth import add_user_token, read_token, revoke_user_tokens
from trine.server.interface import Caller

PAGES = ["cluster", "queue", "users", "hardware", "history", "whatif"]
HOSTILE = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"


def url_of(found: Daemon) -> str:
    assert found.client is not None
    return f"{found.client.dashboard_url()}/ui"


def user_token(found: Daemon, user: str) -> str:
    """A new token, once the daemon knows it."""
    token = add_user_token(found.state, user)
    assert found.client is not None
    with Client(found.client.dashboard_url(), token) as ask:
        until(lambda: _is_let_in(ask), f"the token of {user} to be known")
    return token


def _is_let_in(client: Client) -> bool:
    try:
        return bool(client.daemon())
    except RefusedError:
        return False


def submit(found: Daemon, command: str, **values: Any) -> str:
    assert found.client is not None
    return found.client.submit({"run": ["sh", "-c", command], **values})[0]


def logged_in(found: Daemon, open_page: Open, **options: Any) -> Any:
    page = open_page(url_of(found), allow_failures=True, **options)
    log_in(page, read_token(found.state))
    return page


def says(page: Any, selector: str, text: str | re.Pattern[str]) -> None:
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_contain_text(text, timeout=30_000)


def test_a_token_becomes_a_session_that_scripts_cannot_read_and_that_ends(cluster: Daemon, open_page: Open) -> None:
    page = open_page(url_of(cluster), allow_failures=True)
    page.get_by_label("Token or code").fill("f" * 64)
    page.get_by_role("button", name="Log in").click()
    says(page, "[role=alert]", "Neither a token of this daemon nor a code")
    token = read_token(cluster.state)
    log_in(page, token)
    (cookie,) = page.context.cookies()
    assert cookie["httpOnly"] and cookie["sameSite"] == "Strict" and token not in cookie["value"]
    assert page.evaluate("document.cookie") == "" and token not in page.url
    assert token not in page.evaluate("JSON.stringify(localStorage)")
    page.reload()
    page.get_by_role("navigation").wait_for()
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Token or code").wait_for()
    page.context.add_cookies([{**cookie, "expires": -1}])
    assert page.evaluate("fetch('/v1/session').then((answer) => answer.status)") == 401


def test_a_code_logs_in_once_and_leaves_the_address(cluster: Daemon, open_page: Open) -> None:
    assert cluster.client is not None
    code = cluster.client.login_code()
    page = open_page(f"{url_of(cluster)}#code={code}")
    page.get_by_role("navigation").wait_for()
    assert code not in page.url
    second = open_page(f"{url_of(cluster)}#code={code}", allow_failures=True)
    second.get_by_label("Token or code").wait_for()


def test_a_revoked_token_ends_the_session_in_the_browser(cluster: Daemon, open_page: Open) -> None:
    page = open_page(url_of(cluster), allow_failures=True)
    log_in(page, user_token(cluster, "ada"))
    revoke_user_tokens(cluster.state, "ada")
    page.get_by_label("Token or code").wait_for(timeout=30_000)


def test_a_job_from_submission_to_its_end_with_a_restart_in_between(cluster: Daemon, open_page: Open) -> None:
    page = logged_in(cluster, open_page)
    page.get_by_role("link", name="Queue", exact=True).click()
    go = cluster.state.parent / "go"
    job = submit(cluster, f"echo begun; while [ ! -e {go} ]; do sleep 0.1; done; echo over", name="train", gpus=2)
    row = page.locator(".space .row", has_text="train")
    row.wait_for(timeout=30_000)
    says(page, ".space", "running")
    row.click()
    says(page, "h1", f"Job {job} train: running")
    says(page, "pre.log", "begun")
    cluster.kill()
    says(page, ".condition", "connection lost")
    cluster.up()
    says(page, ".condition", "live")
    go.touch()
    says(page, "h1", f"Job {job} train: done")
    says(page, "pre.log", "over")
    says(page, ".story", "submitted")


def test_a_log_goes_on_after_the_daemon_was_stopped_and_shows_bars_as_terminals_do(
    cluster: Daemon, open_page: Open
) -> None:
    page = logged_in(cluster, open_page)
    go = cluster.state.parent / "go"
    bar = r"printf 'first\n 10%% |#|\r 20%% |##|\r 30%% |###|'"
    job = submit(cluster, f"{bar}; while [ ! -e {go} ]; do sleep 0.1; done; printf '\\nover\\n'", gpus=1)
    page.goto(f"{url_of(cluster)}#/job/{job}")
    says(page, "pre.log", "30% |###|")
    assert page.locator("pre.log").inner_text() == "first\n 30% |###|"
    cluster.stop()
    says(page, ".condition", "connection lost")
    cluster.up()
    go.touch()
    says(page, "pre.log", "over")
    says(page, "main", "The job has ended.")


def test_buttons_hold_release_and_cancel(cluster: Daemon, open_page: Open) -> None:
    page = logged_in(cluster, open_page)
    job = submit(cluster, "sleep 300", gpus=1, name="victim")
    page.goto(f"{url_of(cluster)}#/job/{job}")
    says(page, "h1", "running")
    page.get_by_role("button", name="Hold").click()
    says(page, "h1", "held")
    page.get_by_role("button", name="Release").click()
    says(page, "h1", "running")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Leave it").click()
    says(page, "h1", "running")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    says(page, "h1", "cancelled")
    assert page.get_by_role("button", name="Hold").is_disabled()


def test_users_see_their_own_jobs_only(open_page: Open, tmp_path: Path) -> None:
    with running(FakeService(tmp_path), Limits(), FakeAuth()) as server:
        anna, ben = (open_page(f"{server.url}/ui#/queue", allow_failures=True) for _ in range(2))
        log_in(anna, ANNA_TOKEN)
        log_in(ben, BEN_TOKEN)
        for token, name in ((ANNA_TOKEN, "annas-secret"), (BEN_TOKEN, "bens-secret")):
            assert server.client(token).post("/v1/jobs", json={"run": "train", "name": name}).status_code == 201
        says(anna, ".space", "annas-secret")
        says(ben, ".space", "bens-secret")
        for name in PAGES:
            ben.goto(f"{server.url}/ui#/{name}")
            ben.wait_for_timeout(300)
            assert "annas-secret" not in ben.content()
        ben.goto(f"{server.url}/ui#/job/1")
        says(ben, "#why", "There is no job 1.")
        anna.goto(f"{server.url}/ui#/job/1")
        says(anna, "h1", "annas-secret")


class Pondering(FakeService):
    """Its first forecast takes as long as it is let."""

    def __init__(self, logs: Path) -> None:
        super().__init__(logs)
        self.let = threading.Event()

    async def predictions(self, caller: Caller) -> dict[str, Any]:
        await asyncio.to_thread(self.let.wait, 60)
        return await super().predictions(caller)


def test_a_job_is_shown_while_its_first_prediction_is_made(open_page: Open, tmp_path: Path) -> None:
    service = Pondering(tmp_path)
    with running(service, Limits(), FakeAuth()) as server:
        try:
            assert server.client(ANNA_TOKEN).post("/v1/jobs", json={"run": "train", "name": "train"}).status_code == 201
            page = open_page(f"{server.url}/ui#/job/1", allow_failures=True)
            log_in(page, ANNA_TOKEN)
            says(page, "h1", "Job 1 train:")
            assert "predicted start" not in page.content()
        finally:
            service.let.set()
        says(page, ".facts", "predicted start")


def test_what_jobs_and_operators_write_shows_as_text(cluster: Daemon, open_page: Open) -> None:
    assert cluster.client is not None
    page = logged_in(cluster, open_page)
    job = submit(cluster, f"printf '%s\\n\\033]0;owned\\007\\b' \"{HOSTILE}\"; sleep 300", gpus=1)
    cluster.client.drain("node1", HOSTILE)
    page.goto(f"{url_of(cluster)}#/job/{job}")
    says(page, "pre.log", "<script>")
    says(page, "pre.log", "␛]0;owned␇␈")
    page.goto(f"{url_of(cluster)}#/hardware")
    says(page, "main", "onerror=")
    assert page.locator("main img").count() == 0 and page.locator("main script").count() == 0
    assert page.title() == "Hardware · trine"


def test_every_page_works_on_a_phone_in_the_dark_and_by_keyboard(cluster: Daemon, open_page: Open) -> None:
    job = submit(cluster, "sleep 300", gpus=1, name="a-name-that-is-rather-long-for-a-phone")
    page = logged_in(cluster, open_page, color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 24, 29)"
    page.set_viewport_size({"width": 390, "height": 800})
    for name in [*PAGES, f"job/{job}"]:
        page.goto(f"{url_of(cluster)}#/{name}")
        page.locator("main h1").first.wait_for()
        page.wait_for_timeout(300)
        wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert wide <= 0, f"{name} is {wide} pixels wider than a phone"
    page.set_viewport_size({"width": 1280, "height": 800})
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("1")
    says(page, "h1", "Cluster")
    page.locator(".map canvas").focus()
    page.keyboard.press("ArrowRight")
    says(page, ".tip", "node0:0")
    page.keyboard.press("Enter")
    says(page, "h1", f"Job {job}")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("2")
    says(page, ".space", "a-name")
    page.keyboard.press("/")
    page.keyboard.type("nothing-like-this")
    says(page, "main", "0 jobs")
    page.get_by_label("Filter").fill("state:running user:")
    says(page, "main", "1 job,")
    page.locator(".long-table .body").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    says(page, "h1", f"Job {job}")


LEGENDS = {"job": "a colour per job", "user": "free", "type": "gpu", "slowdown": "no slowdowns", "state": "running"}


@pytest.mark.parametrize("colour", LEGENDS)
def test_the_map_can_be_coloured_by_all_that_is_offered(cluster: Daemon, open_page: Open, colour: str) -> None:
    submit(cluster, "sleep 300", gpus=2)
    page = logged_in(cluster, open_page)
    says(page, ".cards", "50 %")
    page.get_by_label("Colour by").select_option(colour)
    expected = {
        "job": "a colour per job",
        "user": "free",
        "type": "gpu",
        "slowdown": "no slowdowns",
        "state": "running",
    }
    says(page, ".legend", expected[colour])


def test_a_change_is_tried_and_told_before_anything_happens(cluster: Daemon, open_page: Open) -> None:
    for _ in range(3):
        submit(cluster, "sleep 300", gpus=4, max_runtime="5m")
    page = logged_in(cluster, open_page)
    page.goto(f"{url_of(cluster)}#/whatif")
    page.get_by_role("button", name="Try it").click()
    says(page, "main", "Name a change first.")
    page.get_by_label("Changes").fill("no such change")
    page.get_by_role("button", name="Try it").click()
    page.locator("[role=alert]").wait_for()
    page.get_by_label("Changes").fill("add 1x4")
    page.get_by_role("button", name="Try it").click()
    says(page, "main", re.compile(r"\d gain, \d lose"))
    says(page, "main", "add the nodes to the cluster that the daemon runs on")
    assert cluster.client is not None and len(cluster.client.nodes()) == 2
    page.get_by_label("Changes").fill("add 1x4:a100")
    page.get_by_role("button", name="Try it").click()
    says(page, "main", "Nothing was measured on a100: it is taken to be as fast as gpu.")


def test_a_change_that_was_tried_is_made(cluster: Daemon, open_page: Open) -> None:
    submit(cluster, "sleep 300", gpus=4, max_runtime="5m")
    waits = submit(cluster, "sleep 300", gpus=4, max_runtime="5m")
    page = logged_in(cluster, open_page)
    page.goto(f"{url_of(cluster)}#/whatif")
    page.get_by_label("Changes").fill(f"priority {waits} -2\nquota user:ann=16\ndrain node1")
    page.get_by_role("button", name="Try it").click()
    page.get_by_role("button", name="Make these changes").click()
    says(page, "main", f"Done: priority {waits} -2, quota user:ann=16, drain node1.")
    assert cluster.client is not None and cluster.client.nodes()[1]["state"] == "drained"
    assert cluster.client is not None and cluster.client.job(waits)["priority"] == -2
    assert [(each["name"], each["max_gpus"]) for each in cluster.client.quotas() if each["kind"] == "user"] == [
        ("ann", 16)
    ]


def test_a_cancel_that_was_tried_asks_before_it_is_made(cluster: Daemon, open_page: Open) -> None:
    job = submit(cluster, "sleep 300", gpus=4, max_runtime="5m")
    page = logged_in(cluster, open_page)
    page.goto(f"{url_of(cluster)}#/whatif")
    page.get_by_label("Changes").fill(f"cancel {job}")
    page.get_by_role("button", name="Try it").click()
    page.get_by_role("button", name="Make this change").click()
    says(page, "dialog", f"Cancel job {job} for good?")
    page.get_by_role("button", name="Leave it").click()
    page.locator("dialog").wait_for(state="detached")
    assert cluster.client is not None and cluster.client.job(job)["state"] in ("waiting", "starting", "running")
    page.get_by_role("button", name="Make this change").click()
    page.get_by_role("button", name="Cancel for good").click()
    says(page, "main", f"Done: cancel {job}.")


def test_the_priority_of_a_job_is_set_on_its_page(cluster: Daemon, open_page: Open) -> None:
    job = submit(cluster, "sleep 300", gpus=1)
    page = logged_in(cluster, open_page)
    page.goto(f"{url_of(cluster)}#/job/{job}")
    page.get_by_label("Priority").fill("3")
    page.get_by_role("button", name="Set").click()
    says(page, ".story", "priority 3 asked by")
    assert cluster.client is not None and cluster.client.job(job)["priority"] == 3


def test_a_priority_cannot_be_typed_before_the_job_is_known(cluster: Daemon, open_page: Open) -> None:
    job = submit(cluster, "sleep 300", gpus=1, priority=2)
    page = logged_in(cluster, open_page)
    page.route("**/explain", lambda route: None)  # no answer
    page.goto(f"{url_of(cluster)}#/job/{job}")
    page.locator("#priority").wait_for()
    assert page.locator("#priority").is_disabled()
    page.unroute("**/explain")
    page.reload()
    page.locator("#priority:enabled").wait_for()
    assert page.locator("#priority").input_value() == "2"


def test_how_earlier_predictions_came_out_is_told_in_words(cluster: Daemon, open_page: Open) -> None:
    score = {"starts": {"count": 8, "coverage": 0.75, "median_error_s": 90.0}, "ends": {"count": 0, "coverage": None}}
    page = logged_in(cluster, open_page)
    page.route("**/v1/predictions", lambda route: route.fulfill(json={"draws": 100, "score": score, "jobs": {}}))
    page.goto(f"{url_of(cluster)}#/whatif")
    says(page, "main", "starts: 75 % of 8 intervals held, off by 1 min 30 s.")


def test_the_queue_is_filtered_by_reason(cluster: Daemon, open_page: Open) -> None:
    assert cluster.client is not None
    submit(cluster, "sleep 300", gpus=4, name="fills-it")
    submit(cluster, "sleep 300", gpus=4, name="waits")
    held = submit(cluster, "sleep 300", gpus=1, name="kept-back")
    cluster.client.hold(held)
    page = logged_in(cluster, open_page)
    page.goto(f"{url_of(cluster)}#/queue")
    says(page, "main", "3 jobs")
    page.get_by_label("Reason").focus()
    says(page, "main", "held (1)")
    page.get_by_label("Reason").select_option("held")
    says(page, "main", "1 job,")
    says(page, ".space", "kept-back")
    page.get_by_label("Reason").select_option("")
    page.get_by_label("Filter").fill("why:free")
    says(page, "main", "1 job,")
    says(page, ".space", "waits")


def test_ranks_follow_jobs_that_come_leave_and_overtake(cluster: Daemon, open_page: Open) -> None:
    assert cluster.client is not None
    submit(cluster, "sleep 300", gpus=4, name="fills-it")
    jobs = [submit(cluster, "sleep 300", gpus=4, name=f"waits-{i}") for i in range(4)]
    page = logged_in(cluster, open_page)
    page.goto(f"{url_of(cluster)}#/queue")
    says(page, "main", "5 jobs")
    cluster.client.cancel(jobs[1])
    submit(cluster, "sleep 300", gpus=4, name="urgent", priority=5)

    def ranks() -> dict[str, str]:
        rows = page.locator(".space .row").all_inner_texts()
        return {cells[1]: cells[4] for cells in (row.split("\n") for row in rows) if len(cells) > 4}

    client = cluster.client
    until(
        lambda: all(
            ranks().get(job["name"]) == str(job["position"]) for job in client.jobs() if job["position"] is not None
        ),
        "the page to show the ranks that the daemon tells",
    )


LINKED = "racks: [{nodes: 2, gpus: 2, type: gpu}]\nlinks: {intra_node: 100 GB/s, nic: 1 GB/s}\n"


def test_links_show_their_load_while_gangs_send_over_them(tmp_path: Path, open_page: Open) -> None:
    (tmp_path / "linked.yaml").write_text(LINKED)
    with daemon(tmp_path / "state", "--gpus", str(tmp_path / "linked.yaml"), "--event-driven") as found:
        found.up()
        page = logged_in(found, open_page)
        page.goto(f"{url_of(found)}#/hardware")
        says(page, "main", "Nothing is sent over links")
        job = submit(found, "sleep 300", gpus=4, model="vgg16")
        says(page, "main", re.compile(r"NIC of \S+1\d+ %"))
        assert found.client is not None
        found.client.cancel(job)
        says(page, "main", "Nothing is sent over links")


def test_a_name_of_a_proxy_is_answered_if_the_operator_allowed_it(tmp_path: Path) -> None:
    import httpx

    options = ("--gpus", "1x1", "--allow-host", "trine.example.org", "--allow-host", "*.lab.example")
    with daemon(tmp_path / "state", *options) as found:
        found.up()
        for name, status in {
            "trine.example.org": 200,
            "trine.example.org:8443": 200,
            "gpu.lab.example": 200,
            "evil.example.org": 421,
            "deep.gpu.lab.example": 421,
            "127.0.0.1": 200,
        }.items():
            answer = httpx.get(url_of(found), headers={"Host": name}, follow_redirects=True)
            assert answer.status_code == status, name


TRAINING = """
import time
from pathlib import Path
import trine.sdk
for step in range(1, 100_000):
    trine.sdk.report(step, 100_000, checkpoint_step=step - step % 10 or None)
    print("step", step, flush=True)
    time.sleep(0.2)
"""


def test_a_job_tells_progress_speed_checkpoint_end_attempts_and_reasons(cluster: Daemon, open_page: Open) -> None:
    assert cluster.client is not None
    script = cluster.state.parent / "train.py"
    script.write_text(TRAINING)
    job = submit(cluster, f"exec {sys.executable} {script}", gpus=2, name="train", model="bert", max_runtime="10m")
    page = logged_in(cluster, open_page)
    page.goto(f"{url_of(cluster)}#/job/{job}")
    says(page, "#why", "2 GPUs")
    says(page, ".facts", re.compile(r"progressstep \d+ of 100,000"))
    says(page, ".facts", re.compile(r"speed[\d.]+ steps/s"))
    says(page, ".facts", re.compile(r"checkpointstep \d+0, .* ago"))
    says(page, ".facts", re.compile(r"predicted end\d\d:\d\d:\d\d; with 80 % probability"))
    says(page, "pre.log", "step 20")  # it follows
    cluster.client.hold(job)
    says(page, "h1", "held")
    cluster.client.release(job)
    says(page, ".story", re.compile("release asked by.*hold asked by", re.S))
    page.get_by_label(re.compile("Attempts: attempt 1")).first.wait_for()
    cluster.client.cancel(job)
    says(page, "h1", "cancelled")


def test_users_and_history_tell_what_was_promised_and_received(cluster: Daemon, open_page: Open) -> None:
    submit(cluster, "sleep 300", gpus=4, name="fills-it")
    submit(cluster, "sleep 300", gpus=2, name="waits")
    page = logged_in(cluster, open_page)
    page.goto(f"{url_of(cluster)}#/users")
    for heading in ("promised", "received", "deficit (GPU-hours)", "quota", "fair share now"):
        page.get_by_role("columnheader", name=heading).first.wait_for()
    says(page, "main", re.compile(r"default.*Users", re.S))
    page.goto(f"{url_of(cluster)}#/history")
    for title in ("Utilization", "Jobs waiting", "Wait before the first start", "Fairness", "Preemptions"):
        says(page, "main", title)


def test_gpus_that_are_drained_and_still_held_are_not_counted_twice(cluster: Daemon, open_page: Open) -> None:
    assert cluster.client is not None
    submit(cluster, "sleep 300", gpus=2, name="holds-a-node")
    page = logged_in(cluster, open_page)
    says(page, ".cards", "2GPUs free")
    held = next(job for job in cluster.client.jobs() if job["state"] == "running")
    cluster.client.drain(held["placement"][0]["node"], "fan")
    says(page, ".cards", re.compile(r"2GPUs free2GPUs out of service"))
    page.goto(f"{url_of(cluster)}#/hardware")
    says(page, "main", "drained")


def test_predictions_show_both_sides_of_their_interval_and_elements_of_arrays_their_index(
    cluster: Daemon, open_page: Open
) -> None:
    for name in ("first", "second"):
        submit(cluster, "sleep 300", gpus=4, name=name, max_runtime="2h")
    submit(cluster, "sleep 300", gpus=4, name="sweep", array="0-1", max_runtime="2h")
    page = logged_in(cluster, open_page)
    page.goto(f"{url_of(cluster)}#/queue")
    says(page, ".space", "sweep[1]")
    says(page, ".space .row[aria-rowindex='3']", re.compile(r"starts \S+ −\d\w+ \+\d\w+"))
    shown = page.locator(".space .row[aria-rowindex='3'] .cell").nth(9)
    assert shown.evaluate("(cell) => cell.scrollWidth <= cell.clientWidth"), "nothing of it is cut"
    page.locator(".space .row", has_text="sweep[1]").click()
    says(page, "h1", "sweep[1]: waiting")


def test_a_job_that_is_tried_is_shown_as_new_with_its_start(cluster: Daemon, open_page: Open) -> None:
    submit(cluster, "sleep 300", gpus=4, max_runtime="5m", name="fills-it")
    page = logged_in(cluster, open_page)
    page.goto(f"{url_of(cluster)}#/whatif")
    page.get_by_label("Changes").fill("submit 4 10m")
    page.get_by_role("button", name="Try it").click()
    row = page.locator("tbody tr").first
    row.wait_for()
    assert page.locator("thead th").all_inner_texts()[4] == "would start"
    cells = row.locator("td").all_inner_texts()
    assert cells[0] == "new" and cells[2] == "" and cells[3] and cells[4]
    assert row.locator("a").count() == 0, "there is no such job yet"
    page.get_by_label("Changes").fill("add 1x4\nsubmit 4 10m")
    page.get_by_role("button", name="Try it").click()
    page.get_by_role("cell", name="at once").wait_for()
    other = page.locator("tbody tr").nth(1)
    assert other.locator("a").count() == 1 and "fills-it" in other.inner_text()


def test_a_job_page_offers_what_can_be_done(cluster: Daemon, open_page: Open) -> None:
    assert cluster.client is not None
    submit(cluster, "sleep 300", gpus=4)
    waits = submit(cluster, "sleep 300", gpus=4)
    page = logged_in(cluster, open_page)
    page.goto(f"{url_of(cluster)}#/job/{waits}")
    says(page, "main", "waiting for")
    says(page, "main", "sleep 300")
    assert page.get_by_role("button", name="Release").is_disabled(), "it is not held"
    page.get_by_role("button", name="Hold").click()
    says(page, "h1", "held")
    assert page.get_by_role("button", name="Release").is_enabled()
    page.get_by_role("button", name="Cancel").click()
    page.locator("dialog").wait_for()
    page.goto(f"{url_of(cluster)}#/job/77")
    page.locator("dialog").wait_for(state="detached")
    says(page, "main", "there is no job '77'")
    page.get_by_role("button", name="Cancel").wait_for(state="detached")
    assert cluster.client.job(waits)["state"] == "held", "a question about a page that was left is a no"
