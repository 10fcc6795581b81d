"""How the pages behave in the hands of people: many tabs, keyboard, finger, odd addresses, hostile names, colours."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.browser.conftest import Open, log_in
from tests.browser.test_dashboard import HOSTILE, PAGES, says
from tests.server.api.conftest import Running, running
from tests.server.api.fake import ADMIN_TOKEN, WAITS, FakeAuth, FakeService
from tests.server.api.test_openapi import SAMPLE
from trine.server.api.limits import Limits
from trine.server.board import Board, BoardNode
from trine.server.interface import Caller, ShareView

UNSEEN = "\u202e\u2066\u061c\u2028\u200b\u0007\u009b"
"""Marks that turn the direction of writing, end lines, take no room, and what terminals obey."""


class Shown(FakeService):
    """A job of each of eleven users on a GPU of its own, one that waits, and a profile of slow chips."""

    odd = ""
    """Put into every text that comes from outside."""

    def __init__(self, logs: Path) -> None:
        super().__init__(logs)
        for i in range(1, 13):
            self.views[str(i)] = replace(
                SAMPLE,
                id=str(i),
                name=f"train-{i}{self.odd}",
                user=f"user{i}{self.odd}",
                model=f"bert{self.odd}",
                state="waiting" if i == 12 else "running",
                gpus=1,
                run_from_s=None if i == 12 else 10.0,
                started_s=None if i == 12 else 10.0,
                finished_s=None,
                reason=replace(WAITS, sentence=f"No GPU is free.{self.odd}"),
            )

    def board(self) -> Board:
        board, odd = super().board(), self.odd
        types = ("p100", "t4", "v100", "a10")
        board.nodes = [BoardNode(f"node{i}{odd}", f"rack{i // 2}{odd}", f"{types[i]}{odd}", 4) for i in range(4)]
        board.nodes[3] = replace(board.nodes[3], state="drained", reason=f"fan{odd}")
        board.gpu_jobs = [(str(gpu + 1),) if gpu < 11 else () for gpu in range(16)]
        board.slowdowns = {name: [1.0 + gpu / 16 for gpu in range(16)] for name in (f"A{odd}", f"B{odd}")}
        board.out = dict.fromkeys(range(12, 16), f"fan{odd}")
        board.flags = {3: [f"It is slow.{odd}"]}
        board.about = {"live": True, "policy": f"las{odd}", "placement": "packed", "problems": [f"Disk full.{odd}"]}
        return board

    def shares(self, caller: Caller) -> list[ShareView]:
        users = sorted(job.user for job in self.views.values())
        return [ShareView("user", user, 1.0, 0, 1, 1.0, 0.5, 0.25, float(len(user))) for user in users]


class Odd(Shown):
    odd = HOSTILE + UNSEEN


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Running]:
    with running(Shown(tmp_path), Limits(), FakeAuth()) as found:
        yield found


def opened(server: Running, open_page: Open, page_name: str, **options: Any) -> Any:
    page = open_page(f"{server.url}/ui#/{page_name}", allow_failures=True, **options)
    log_in(page, ADMIN_TOKEN)
    page.locator("main h1").first.wait_for()
    return page


def set_hidden(page: Any, hidden: bool) -> None:
    """As when another tab is chosen, or this one again."""
    page.evaluate(
        """(hidden) => {
            Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def test_a_tab_that_is_hidden_keeps_no_connection_from_the_next_and_catches_up(
    server: Running, open_page: Open
) -> None:
    first = opened(server, open_page, "job/12")  # events and a log
    for _ in range(8):  # a browser has six connections to one address
        set_hidden(first.context.pages[-1], True)
        page = first.context.new_page()
        page.goto(f"{server.url}/ui#/job/12")
        says(page, "h1", "Job 12")
    server.client(ADMIN_TOKEN).post("/v1/jobs", json={"run": "train", "name": "newcomer"})
    first.goto(f"{server.url}/ui#/queue")
    says(first, "main", "12 jobs")
    set_hidden(first, False)
    says(first, "main", "13 jobs")
    says(first, ".condition", "live")


def test_the_link_to_the_content_leaves_the_page_as_it_is(server: Running, open_page: Open) -> None:
    page = opened(server, open_page, "queue")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    says(page, "h1", "Queue")
    assert page.evaluate("document.activeElement.id") == "content"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "search"


def test_the_focus_stays_where_it_was_and_is_not_lost_with_a_page(server: Running, open_page: Open) -> None:
    page = opened(server, open_page, "cluster")
    page.get_by_role("link", name="Queue", exact=True).focus()
    page.keyboard.press("Enter")
    says(page, "h1", "Queue")
    assert page.evaluate("document.activeElement.textContent") == "Queue"
    page.locator(".long-table .body").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    says(page, "h1", "Job 1 ")
    assert page.evaluate("document.activeElement.id") == "content"
    page.goto(f"{server.url}/ui#/hardware")
    choice = page.get_by_label("Application class")
    choice.focus()
    choice.select_option("B")
    assert page.evaluate("document.activeElement.value") == "B"


def test_keys_do_not_leave_a_page_behind_a_question(server: Running, open_page: Open) -> None:
    page = opened(server, open_page, "job/12")
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.locator("dialog").wait_for()
    page.keyboard.press("1")
    assert page.url.endswith("#/job/12")
    page.keyboard.press("Escape")
    page.locator("dialog").wait_for(state="detached")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("1")
    says(page, "h1", "Cluster")


@pytest.mark.parametrize("name", ["constructor", "%E0%A4%A", "job/%"])
def test_an_address_that_nothing_of_ours_made_shows_a_page(server: Running, open_page: Open, name: str) -> None:
    page = opened(server, open_page, "queue")
    page.goto(f"{server.url}/ui#/{name}")
    says(page, "h1", "Job %" if "job" in name else "Cluster")


@pytest.mark.parametrize("job", ["99", "no such job!"])
def test_nothing_can_be_asked_of_a_job_that_does_not_exist(server: Running, open_page: Open, job: str) -> None:
    page = opened(server, open_page, f"job/{job}")
    says(page, "#why", "no job 99" if job == "99" else "job_id:")
    assert not page.locator("main button").count()


def test_a_job_that_waits_for_gpus_cannot_be_released(server: Running, open_page: Open) -> None:
    page = opened(server, open_page, "job/12")
    says(page, "h1", "waiting")
    assert page.get_by_role("button", name="Release").is_disabled()
    says(page, ".facts", "waiting for")
    page.get_by_role("button", name="Hold").click()
    says(page, "h1", "held")
    page.get_by_role("button", name="Release").click()
    says(page, "h1", "waiting")
    says(page, "main", "Nothing is written yet.")


def test_a_session_ends_in_this_browser_also_if_the_daemon_cannot_be_asked(server: Running, open_page: Open) -> None:
    page = opened(server, open_page, "cluster")
    page.route("**/ui/logout", lambda route: route.abort())
    page.get_by_role("button", name="Log out").click()
    page.get_by_label("Token or code").wait_for()
    assert page.evaluate("localStorage.length") == 0


def test_users_are_in_the_order_of_people_and_sorted_by_what_they_lack(server: Running, open_page: Open) -> None:
    page = opened(server, open_page, "users")
    names = page.locator("section:visible tbody tr td:first-child")
    names.nth(11).wait_for()
    assert names.all_inner_texts() == [f"user{i}" for i in range(1, 13)]
    page.get_by_role("button", name="deficit").last.click()
    says(page, "section:visible tbody tr:first-child", "user10")
    says(page, "section:visible th[aria-sort=descending]", "deficit")


def test_a_phone_tells_in_the_queue_why_jobs_wait(server: Running, open_page: Open) -> None:
    page = opened(server, open_page, "queue")
    page.set_viewport_size({"width": 390, "height": 800})
    row = page.locator(".space .row", has_text="train-12")
    row.get_by_text("No GPU is free.").wait_for()
    box, next_row = row.bounding_box(), page.locator(".space .row", has_text="train-11").bounding_box()
    assert box and next_row and box["height"] <= abs(box["y"] - next_row["y"]), "rows do not cover each other"
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.locator(".long-table .body").focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    says(page, "h1", "Job 12 ")


def test_a_finger_sees_what_a_gpu_is_before_it_opens_the_job(server: Running, open_page: Open) -> None:
    page = opened(server, open_page, "cluster", has_touch=True)
    says(page, ".cards", "11jobs with GPUs")
    box = page.locator(".map canvas").bounding_box()
    assert box is not None
    at = (box["x"] + 8, box["y"] + 40)
    page.touchscreen.tap(*at)
    says(page, ".tip", "job 1 train-1")
    says(page, "h1", "Cluster")
    page.touchscreen.tap(*at)
    says(page, "h1", "Job 1 ")


def test_texts_from_outside_are_shown_and_do_nothing(tmp_path: Path, open_page: Open) -> None:
    with running(Odd(tmp_path), Limits(), FakeAuth()) as server:
        page = opened(server, open_page, "cluster")
        says(page, ".notice", "Disk full.<img")
        page.locator(".map canvas").focus()
        page.keyboard.press("ArrowRight")
        says(page, ".tip", "user1<img")
        for name in [*PAGES, "job/1"]:
            page.goto(f"{server.url}/ui#/{name}")
            says(page, "main", "<img" if name != "whatif" else "What if")
            page.wait_for_timeout(300)
            shown = page.evaluate("document.body.textContent + document.title")
            assert not [hex(ord(sign)) for sign in UNSEEN if sign in shown], name
            assert page.locator("main img").count() == 0 and page.locator("main script").count() == 0


def test_users_and_types_have_colours_that_differ(server: Running, open_page: Open) -> None:
    page = opened(server, open_page, "cluster")
    legend = "[...document.querySelectorAll('.legend span')]"
    swatches = f"{legend}.map((e) => [e.textContent, e.firstChild.style.background])"
    for by, names, others in (("type", 4, ""), ("user", 8, "3 other users")):
        page.get_by_label("Colour by").select_option(by)
        says(page, ".legend", others or "v100")
        colours = [colour for text, colour in page.evaluate(swatches) if colour and "other" not in text]
        assert len(set(colours)) == len(colours) == names


def test_a_name_keeps_its_colour_while_it_is_there(server: Running, open_page: Open) -> None:
    page = opened(server, open_page, "cluster")
    before, after = page.evaluate(
        """async () => {
            const { DistinctColours } = await import("/ui/colours.js"), colours = new DistinctColours();
            const names = [...Array(12).keys()].map((i) => `user${i}`);
            const all = () => names.map((name) => colours.of(name));
            colours.assign(names);
            const before = all();
            colours.assign([...names].reverse().filter((name) => name !== "user3"));
            return [before, all()];
        }"""
    )
    assert len(set(before[:8])) == 8 and len(set(before[8:])) == 1
    assert [*before[:3], *before[4:8]] == [*after[:3], *after[4:8]]
    assert after[11] == before[3], "what became free goes to the first that had none"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_chip_stands_off_the_paper(server: Running, open_page: Open, theme: str) -> None:
    page = opened(server, open_page, "cluster", color_scheme=theme)
    contrasts = page.evaluate(
        """async () => {
            const { scaleBegin, scaleColour } = await import("/ui/colours.js");
            const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
            const light = (c) => c.match(/\\d+/g).slice(0, 3).map((v) => linear(v / 255))
                .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
            const paper = light(getComputedStyle(document.body).backgroundColor);
            return [0.05, 0.1, 0.2, 0.4].map((part) => light(scaleColour(part, scaleBegin())))
                .map((colour) => (Math.max(colour, paper) + 0.05) / (Math.min(colour, paper) + 0.05));
        }"""
    )
    assert min(contrasts) > 2.9


def test_a_job_that_has_started_meanwhile_is_not_said_to_start(server: Running, open_page: Open) -> None:
    page = opened(server, open_page, "queue")  # the predictions of the fake are of starts, of all jobs
    says(page, ".space .row:has-text('train-12')", "starts ")
    assert "starts " not in page.locator(".space .row", has_text="train-11").inner_text()
    page.goto(f"{server.url}/ui#/job/11")
    says(page, "h1", "running")
    assert "predicted start" not in page.locator(".facts").inner_text()
