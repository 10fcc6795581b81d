"""Shares and history: what is promised, what is received, who sees it, and that it outlives the daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.server.site import Site, run_site, spec
from trine.server.access import Access, Queue
from trine.server.interface import Caller, NotFound
from trine.server.usage import USAGE_FILE, Sample, UsageHistory, fair_shares

ADMIN = Caller("root", admin=True)


@pytest.mark.parametrize(
    ("asked", "weights", "expected"),
    [
        ({"a": 10.0, "b": 10.0}, {}, {"a": 4.0, "b": 4.0}),
        ({"a": 1.0, "b": 10.0}, {}, {"a": 1.0, "b": 7.0}),
        ({"a": 10.0, "b": 10.0}, {"a": 3.0}, {"a": 6.0, "b": 2.0}),
        ({"a": 2.0, "b": 1.0}, {}, {"a": 2.0, "b": 1.0}),
        ({}, {}, {}),
        ({"a": 5.0}, {"a": 0.0}, {"a": 0.0}),
    ],
)
def test_fair_shares_are_weighted_max_min(
    asked: dict[str, float], weights: dict[str, float], expected: dict[str, float]
) -> None:
    assert fair_shares(asked, weights, 8) == pytest.approx(expected)


def hour_of(held: int, asked: int, fair: float) -> list[Sample]:
    part = {"ada": (held, asked, fair)}
    return [Sample(60.0 * minute, 8, held, 0, asked - held, part, {"default": part["ada"]}) for minute in range(61)]


def test_a_deficit_is_what_is_missing_of_the_promise(tmp_path: Path) -> None:
    past = UsageHistory()
    *before, now = hour_of(held=2, asked=8, fair=4.0)
    for each in before:
        past.add(each)
    access = Access(queues={"default": Queue("default", weight=2.0, max_gpus=6)})
    queue, user = past.shares(now, access, ADMIN)
    assert (queue.kind, queue.weight, queue.max_gpus) == ("queue", 2.0, 6)
    assert user.promised == pytest.approx(0.5) and user.received == pytest.approx(0.25)
    assert user.deficit_gpu_h == pytest.approx(2.0) and user.waiting_gpus == 6


def test_users_see_themselves_only() -> None:
    now = Sample(0.0, 8, 2, 0, 0, {"ada": (1, 1, 1.0), "ben": (1, 1, 1.0)})
    names = [share.name for share in UsageHistory().shares(now, Access(), Caller("ben")) if share.kind == "user"]
    assert names == ["ben"]


def test_time_without_a_daemon_is_promised_to_nobody() -> None:
    past = UsageHistory()
    one, *_, last = hour_of(held=0, asked=8, fair=8.0)
    past.add(one)
    (_, user) = past.shares(last, Access(), ADMIN)
    assert user.promised == 0.0


def test_samples_outlive_the_daemon_and_a_damaged_line(tmp_path: Path) -> None:
    file = tmp_path / USAGE_FILE
    past = UsageHistory(file)
    past.rewrite()
    for each in hour_of(1, 2, 2.0):
        past.add(each)
    assert file.stat().st_mode & 0o077 == 0
    with file.open("a") as stream:
        stream.write('{"at_s": 1')
    again = UsageHistory(file)
    assert len(again.samples) == 61
    view = again.view([], again.samples[-1])
    assert view.columns["GPUs held"] == [1.0] * 62 and view.hours == []


def test_a_daemon_tells_users_reasons_speeds_and_waits_of_their_own_jobs_only(tmp_path: Path) -> None:
    ann, bob = Caller("ann"), Caller("bob")

    async def check(site: Site) -> None:
        daemon = await site.up()
        first, second = [(await daemon.submit([spec(user=caller.user)], caller))[0] for caller in (ann, bob)]
        await site.quiet()
        assert set(daemon.reasons([first, second], ann)) == {first}
        assert set(daemon.reasons([first, second], ADMIN)) == {first, second}
        assert [sum(hour.started for hour in daemon.usage(caller).hours) for caller in (ann, bob, ADMIN)] == [1, 1, 2]
        assert daemon.speed(first, ann).attained_s >= 0
        with pytest.raises(NotFound):
            daemon.speed(second, ann)

    run_site(Site(tmp_path), check)
