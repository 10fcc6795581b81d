"""Predictions of a daemon's live state, made by the forecaster in its own process."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.server.site import Site
from trine.core.errors import InputError
from trine.inputs.job_spec import JobSpec
from trine.planning.changes import Moment, changed
from trine.planning.live_present import live_present, live_state
from trine.policy.trine import Trine
from trine.server import predictions
from trine.server.build import engine_job
from trine.server.interface import Caller, Refused
from trine.server.live_job import LiveJob
from trine.server.predictions import Scores

TIMES = {"low": 90.0, "median": 100.0, "high": 110.0}
ANN, BOB, ROOT = Caller("ann"), Caller("bob"), Caller("root", admin=True)
OWN_POLICY = """
from trine.policy.base import KeyPolicy

class Last(KeyPolicy):
    name = "last"
    title = "the youngest first"

    def key(self, view):
        return -view.submit_s
"""


def _spec(user: str = "ann", gpus: int = 1, **more: Any) -> JobSpec:
    return JobSpec.model_validate({"run": ["true"], "gpus": gpus, **more})


def _with_site(home: Path, check: Any, **options: Any) -> None:
    async def run() -> None:
        site = Site(home, gpus="1x4", **options)
        daemon = await site.up()
        try:
            await check(site, daemon)
        finally:
            await site.crash()

    asyncio.run(run())


async def _three_jobs(daemon: Any) -> None:
    await daemon.submit([_spec(gpus=4, max_runtime=600)], ANN)
    await daemon.submit([_spec(gpus=4, max_runtime=600)], ANN)
    await daemon.submit([_spec(gpus=2, max_runtime=600)], BOB)
    await asyncio.sleep(0.1)


def test_a_daemon_says_when_waiting_jobs_start_and_what_they_wait_for(tmp_path: Path) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await _three_jobs(daemon)
        found = await daemon.predictions(ROOT)
        assert found["draws"] >= 10 and found["score"] is None
        one, two, three = (found["jobs"][job_id] for job_id in "123")
        assert one["start_s"] is None and one["end_s"]["high"] <= site.now + 601
        assert two["start_s"]["low"] <= two["start_s"]["median"] <= two["start_s"]["high"] <= site.now + 601
        assert two["reason"] == "waits for job 1 to end"
        assert three["start_s"]["median"] >= two["start_s"]["median"]
        json.dumps(found)
        view = daemon.job("2", ANN)
        assert view.expected_start_s == two["start_s"]["median"]
        assert b"trine_forecast_draws" in daemon.metrics()

    _with_site(tmp_path, check)


def test_users_see_predictions_of_their_own_jobs_only(tmp_path: Path) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await _three_jobs(daemon)
        assert set((await daemon.predictions(ANN))["jobs"]) == {"1", "2"}
        assert set((await daemon.predictions(BOB))["jobs"]) == {"3"}
        assert set((await daemon.whatif(["hold 3"], BOB))["jobs"]) == {"3"}

    _with_site(tmp_path, check)


def test_what_if_says_who_gains_and_changes_nothing(tmp_path: Path) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await _three_jobs(daemon)
        found = await daemon.whatif(["add 1x4"], ROOT)
        assert found["jobs"]["2"]["change_s"]["median"] < 0 and found["gain"] >= 1 and found["lose"] == 0
        held = await daemon.whatif(["hold 2"], ROOT)
        assert held["jobs"]["2"]["after"] is None and held["jobs"]["3"]["change_s"]["median"] <= 0
        more = await daemon.whatif(["submit 4 300", "priority 3 5"], ROOT)
        assert "4" in more["jobs"] and more["jobs"]["4"]["before"] is None
        own = await daemon.whatif(["submit 4 300", "quota user:ann=0"], ANN)
        assert list(more["jobs"])[-1] == "4", "where the command line finds it"
        assert own["jobs"]["4"]["after"]["end_s"] is None, "it is a job of the user who asks, with that user's quota"
        assert daemon.job("2", ANN).state == "waiting" and len(daemon.nodes()) == 1
        with pytest.raises(Refused, match="expected"):
            await daemon.whatif(["policy nosuch"], ROOT)
        request = daemon.forecasts._request()()
        for wrong in (
            "frobnicate 3",
            "add 2",
            "cancel 77",
            "lose node9",
            "priority 2",
            "submit x",
            "quota ann=2",
            "hold 2 3",
            "priority 2 nan",
            "",
        ):
            with pytest.raises(InputError, match="expected"):
                changed(live_state(request), [wrong], Moment(request.now_s))

    _with_site(tmp_path, check)


def test_a_user_has_few_what_ifs_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forecasts, and what others ask, wait for them."""

    async def check(site: Site, daemon: Any) -> None:
        await _three_jobs(daemon)
        monkeypatch.setattr(predictions, "_MOST_ASKED", 2)
        asked = [asyncio.create_task(daemon.whatif(["add 1x4"], ANN)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Refused, match="2 what-ifs of ann are being computed"):
            await daemon.whatif(["add 1x4"], ANN)
        assert (await daemon.whatif(["add 1x4"], BOB))["draws"] >= 10
        assert all(found["gain"] >= 1 for found in await asyncio.gather(*asked))
        assert (await daemon.whatif(["add 1x4"], ANN))["draws"] >= 10 and not daemon.forecasts._asked

    _with_site(tmp_path, check)


def test_a_host_that_can_start_no_process_is_a_refusal_and_not_the_end_of_predictions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def none(*_: Any, **__: Any) -> Any:
        raise OSError(24, "Too many open files")

    async def check(site: Site, daemon: Any) -> None:
        await _three_jobs(daemon)
        with monkeypatch.context() as host, pytest.raises(Refused, match="Too many open files"):
            host.setattr(asyncio, "create_subprocess_exec", none)
            await daemon.predictions(ROOT)
        assert (await daemon.predictions(ROOT))["draws"] >= 10

    _with_site(tmp_path, check)


def test_a_daemon_that_ends_refuses_those_who_wait_for_a_forecast(tmp_path: Path) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await _three_jobs(daemon)
        asked = asyncio.create_task(daemon.predictions(ROOT))
        while daemon.forecasts._process is None:
            await asyncio.sleep(0.001)
        daemon.forecasts.close()
        with pytest.raises(Refused, match="the daemon is shutting down"):
            await asked
        with pytest.raises(Refused, match="the daemon is shutting down"):
            await daemon.whatif(["policy las"], ROOT)

    _with_site(tmp_path, check)


def test_nobody_learns_of_jobs_of_others_by_predictions(tmp_path: Path) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await daemon.submit([_spec(gpus=4, max_runtime=600)], ANN)
        await daemon.submit([_spec(gpus=4, max_runtime=600)], BOB)
        await asyncio.sleep(0.1)
        for_bob, for_root = (await daemon.predictions(BOB))["jobs"]["2"], (await daemon.predictions(ROOT))["jobs"]["2"]
        assert (for_root["reason"], for_root["blocker"]) == ("waits for job 1 to end", "1")
        assert (for_bob["reason"], for_bob["blocker"]) == ("waits for another user's job to end", None)
        assert daemon.job("2", BOB).predicted_reason == for_bob["reason"]
        assert daemon.job("2", ROOT).predicted_reason == "waits for job 1 to end"
        said = []
        for change in ("hold 1", "cancel 77"):  # a job of another user, and none at all
            with pytest.raises(Refused) as refused:
                await daemon.whatif([change], BOB)
            said.append(str(refused.value).replace("'1'", "X").replace("'77'", "X"))
        assert said[0] == said[1]

    _with_site(tmp_path, check)


def test_only_the_owner_has_code_of_a_file_executed(tmp_path: Path) -> None:
    """A file runs with the rights of the daemon, which users do not have."""
    trap = tmp_path / "trap.py"
    trap.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')\n" + OWN_POLICY)

    async def check(site: Site, daemon: Any) -> None:
        await _three_jobs(daemon)
        for change in (f"policy {trap}", f"placement {trap}-sticky"):
            with pytest.raises(Refused, match="only the owner of the daemon"):
                await daemon.whatif([change], BOB)
        assert not (tmp_path / "executed").exists()
        assert (await daemon.whatif([f"policy {trap}"], ROOT))["jobs"].keys() == {"1", "2", "3"}
        trap.write_text(OWN_POLICY.replace("view.submit_s", "view.submitted"))
        with pytest.raises(Refused, match=r"trap.py:\d+: AttributeError: a view of the jobs has no 'submitted'"):
            await daemon.whatif([f"policy {trap}"], ROOT)

    _with_site(tmp_path, check)


def test_a_job_that_waits_for_another_is_predicted_from_its_end_on(tmp_path: Path) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await daemon.submit([_spec(gpus=4, max_runtime=600)], ANN)
        await daemon.submit([_spec(gpus=1, after=["1"], max_runtime=60)], ANN)
        await daemon.submit([_spec(gpus=1, after=["1", "any:2"], max_runtime=60)], ANN)
        await asyncio.sleep(0.1)
        found = (await daemon.predictions(ANN))["jobs"]
        one, two, three = (found[job_id] for job_id in "123")
        for name in ("low", "median", "high"):
            assert two["start_s"][name] == pytest.approx(one["end_s"][name], abs=1.0)
            assert three["start_s"][name] >= two["start_s"][name]
        assert three["start_s"]["median"] == pytest.approx(two["end_s"]["median"], abs=60.0)
        assert (two["reason"], two["blocker"]) == ("waits for job 1 to end", "1")
        assert (three["reason"], three["blocker"]) == ("waits for job 1 and 1 more to end", "1")

    _with_site(tmp_path, check)


def test_elements_of_a_limited_array_are_predicted_one_after_the_other(tmp_path: Path) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await daemon.submit([_spec(gpus=1, array="0-4%2", max_runtime=600)], ANN)
        await asyncio.sleep(0.1)
        found = (await daemon.predictions(ANN))["jobs"]
        assert len(found) == 5
        starts = [found[job_id]["start_s"] for job_id in sorted(found)]
        assert starts[:2] == [None, None] and None not in starts[2:]
        medians = [each["median"] for each in starts[2:]]
        assert medians == sorted(medians) and medians[0] < medians[-1]
        assert found[max(found)]["reason"] == "waits for others of its array to end"

    _with_site(tmp_path, check)


def test_jobs_that_cannot_be_predicted_say_why(tmp_path: Path) -> None:
    """One that waits for a failure, for a held job, or for one of those."""

    async def check(site: Site, daemon: Any) -> None:
        await daemon.submit([_spec(gpus=4, max_runtime=600)], ANN)
        await daemon.submit([_spec(gpus=1, max_runtime=600)], ANN)
        await daemon.hold("2", ANN)
        for after in ("failed:1", "2", "3"):
            await daemon.submit([_spec(gpus=1, after=[after])], ANN)
        await asyncio.sleep(0.1)
        found = (await daemon.predictions(ANN))["jobs"]
        assert [found[job_id]["start_s"] for job_id in "2345"] == [None] * 4
        assert found["3"]["reason"] == "waits for job 1 to fail; predicted once that is in sight"
        assert found["4"]["reason"] == "waits for job 2 to end; predicted once that is in sight"
        assert found["5"]["reason"] == "waits for job 3 to end; predicted once that is in sight"

    _with_site(tmp_path, check)


def test_the_score_survives_a_restart_and_says_when_it_is_too_thin(tmp_path: Path) -> None:
    path, jobs = tmp_path / "predictions.json", {}
    scores = Scores(path)
    times = {"low": 90.0, "median": 100.0, "high": 110.0}
    made = {"made_at_s": 0.0, "draws": 10, "jobs": {"7": {"start_s": times, "end_s": None, "reason": ""}}}
    jobs["7"] = LiveJob("7", "ann", "default", 1.0, _spec(), 0.0)
    assert scores.calibrated(made, "fifo", jobs)["calibrated"] is False  # nothing has happened yet
    scores.note(made)
    scores.keep()()
    again = Scores(path)
    jobs["7"].started_s = 105.0
    again.settle(jobs)
    assert again.as_json() == {"starts": again.starts.summary(), "ends": again.ends.summary()}
    assert again.starts.coverage == 1.0
    assert [each.score is not None for each in again.calibrations["fifo"].noted] == [True]
    path.write_text("{half")
    assert Scores(path).as_json() is None


def test_a_job_that_came_since_is_predicted_when_asked_for(tmp_path: Path) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await _three_jobs(daemon)
        await daemon.predictions(ROOT)
        site.now += 60.0
        [late] = await daemon.submit([_spec(gpus=1, max_runtime=60)], BOB)
        async with asyncio.timeout(180):  # the forecaster is last in line for the processor
            while late not in (await daemon.predictions(ROOT))["jobs"]:  # as it was, where a forecast takes long
                await asyncio.sleep(0.05)

    _with_site(tmp_path, check)


def test_an_end_that_did_not_come_is_not_said_any_more(tmp_path: Path) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await daemon.submit([_spec(gpus=4, max_runtime=600)], ANN)
        await asyncio.sleep(0.1)
        await daemon.predictions(ROOT)
        assert daemon.job("1", ANN).expected_end_s is not None
        site.now += 700.0
        assert daemon.job("1", ANN).expected_end_s is None

    _with_site(tmp_path, check)


def test_a_job_that_reported_its_length_and_speed_is_still_known_while_it_waits_again(tmp_path: Path) -> None:
    async def check(_site: Site, daemon: Any) -> None:
        stopped = LiveJob("1", "ann", "default", 1.0, _spec(gpus=4), 0.0, total=3000.0, last_rate=10.0)
        known = engine_job(stopped, daemon.controller.deciding.perf)
        assert not known.open_ended and known.steps * (known.step_s or 0.0) == pytest.approx(300.0)

    _with_site(tmp_path, check)


def test_the_forecaster_counts_an_ended_job_once(tmp_path: Path) -> None:
    """The policy has a record of its own of the work that jobs took: it is not told of them once more."""

    async def check(site: Site, daemon: Any) -> None:
        for _ in range(3):
            [job_id] = await daemon.submit([_spec(gpus=1)], ANN)
            await site.quiet()
            site.now += 500.0
            site.world.end(job_id)
            await site.quiet()
        await daemon.submit([_spec(gpus=1)], ANN)
        await site.quiet()
        request = daemon.forecasts._request()()
        present = live_present(request, live_state(request), request.model)
        assert len(request.ended) == 3
        for engine in (present.engine, daemon.controller.deciding):
            assert isinstance(engine.policy, Trine) and engine.policy._work.count == 3

    _with_site(tmp_path, check, policy="trine", placement="trine", event_driven=True)


def _forecaster(monkeypatch: pytest.MonkeyPatch, home: Path, code: str) -> None:
    """The forecaster is a program that does this."""
    (home / "broken_forecaster.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(home))
    monkeypatch.setattr(predictions, "FORECASTER", "broken_forecaster")


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.kill(os.getpid(), 9)", "the forecaster failed: signal 9 ended it"),
        ("import sys; sys.exit(3)", "the forecaster failed: it ended with status 3"),
        ("raise RuntimeError('boom')", "the forecaster failed: RuntimeError: boom"),
        ("print('{half')", "the forecaster failed: its answer is no JSON"),
        ("import time; time.sleep(600)", "no forecast within 1 s"),
    ],
)
def test_a_forecaster_that_breaks_is_a_sentence_and_costs_no_more_than_that(
    code: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await _three_jobs(daemon)
        with monkeypatch.context() as broken:
            _forecaster(broken, tmp_path, code)
            broken.setattr(predictions, "_PATIENCE_S", 1.0)
            with pytest.raises(Refused, match=said):
                await daemon.whatif(["add 1x4"], ROOT)
            assert b"trine_forecast_failing 0" in daemon.metrics(), "a question that has no answer is no alarm"
            with pytest.raises(Refused, match=said):
                await daemon.predictions(ROOT)
            assert b"trine_forecast_failing 1" in daemon.metrics()
            await site.tick(60.0)
        assert (await daemon.predictions(ROOT))["draws"] >= 10
        assert b"trine_forecast_failing 0" in daemon.metrics()

    _with_site(tmp_path, check)


def test_after_a_forecaster_that_hung_none_is_begun_for_nine_times_as_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await _three_jobs(daemon)
        _forecaster(monkeypatch, tmp_path, "import time; time.sleep(600)")
        monkeypatch.setattr(predictions, "_PATIENCE_S", 1.0)
        monkeypatch.setattr(predictions, "_SOON_S", 0.5)
        with pytest.raises(Refused, match="no forecast within 1 s"):
            await daemon.predictions(ROOT)
        assert daemon.forecasts._rest_s >= 9.0
        monkeypatch.setattr(predictions, "_PATIENCE_S", 600.0)
        async with asyncio.timeout(30):
            with pytest.raises(Refused, match="no forecast within 1 s"):
                await daemon.predictions(ROOT)

    _with_site(tmp_path, check)


def test_a_bug_in_the_score_does_not_end_forecasts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await _three_jobs(daemon)
        with monkeypatch.context() as broken:
            broken.setattr(daemon.forecasts.scores, "note", lambda made: 1 / 0)
            task = asyncio.create_task(daemon.forecasts.run(every_s=0.01))
            async with asyncio.timeout(60):
                while not daemon.forecasts.problem:
                    await asyncio.sleep(0.01)
        daemon.forecasts._rest_s = 0.0
        assert not task.done() and "ZeroDivisionError" in daemon.forecasts.problem
        async with asyncio.timeout(60):
            while daemon.forecasts.last is None:
                await asyncio.sleep(0.01)
        task.cancel()

    _with_site(tmp_path, check)


def test_the_score_may_change_while_it_is_written(tmp_path: Path) -> None:
    """It is written beside the event loop, which goes on with requests that settle it."""
    path, jobs = tmp_path / "predictions.json", {"7": LiveJob("7", "ann", "default", 1.0, _spec(), 0.0)}
    scores = Scores(path)
    made = {"made_at_s": 0.0, "draws": 10, "jobs": {"7": {"start_s": TIMES, "end_s": None, "reason": ""}}}
    scores.note(scores.calibrated(made, "fifo", jobs))
    write = scores.keep()
    jobs["7"].started_s = 105.0
    scores.settle(jobs)
    write()
    assert Scores(path)._open == {("7", "start_s"): TIMES}, "as it was when it was asked for"
    assert Scores(path).calibrations["fifo"].noted[0].score is None


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("open", [["7", "start_s", {}]]),
        ("open", [["7", "frobnicate", TIMES]]),
        ("open", [["7", "start_s", TIMES | {"low": "x"}]]),
        ("open", 5),
        ("starts", {"held": [True], "errors_s": [float("nan")]}),
        ("starts", []),
        ("calibrations", []),
        ("calibrations", {"fifo": {"noted": [["7", "start", 0, 1.0, 2.0, 0.0, None, None]], "levels": {}}}),
        ("calibrations", {"fifo": {"noted": [["7", "start", 0, 1.0, 2.0, 1.0, None, "x"]], "levels": {}}}),
        ("calibrations", {"fifo": {"noted": [["7", "start", 0, float("inf"), 2.0, 1.0, None, 1.0]], "levels": {}}}),
        ("calibrations", {"fifo": {"noted": [["7", "start"]], "levels": {}}}),
        ("calibrations", {"fifo": {"noted": [], "levels": {"start/0": [0.1]}}}),
    ],
)
def test_a_score_that_makes_no_sense_is_begun_anew(part: str, value: Any, tmp_path: Path) -> None:
    path = tmp_path / "predictions.json"
    whole = {"starts": {"held": [], "errors_s": []}, "ends": {"held": [], "errors_s": []}, "open": []}
    path.write_text(json.dumps({**whole, "calibrations": {}, part: value}))
    scores, jobs = Scores(path), {"7": LiveJob("7", "ann", "default", 1.0, _spec(), 0.0, started_s=105.0)}
    scores.settle(jobs)
    assert scores.as_json() is None and not scores.calibrations and not scores._open


def test_a_job_that_is_held_says_nothing_of_predictions_made_before() -> None:
    """Else every hour of it would count as an hour by which starts are later than predicted."""
    scores, jobs = Scores(), {"7": LiveJob("7", "ann", "default", 1.0, _spec(), 0.0)}
    made = {"made_at_s": 0.0, "draws": 10, "jobs": {"7": {"start_s": TIMES, "end_s": None}}}
    scores.note(scores.calibrated(made, "fifo", jobs))
    jobs["7"].state = "held"
    scores.settle(jobs)
    assert not scores._open and not scores.calibrations["fifo"].noted
    jobs["7"].state, jobs["7"].started_s = "running", 9e5
    scores.settle(jobs)
    assert scores.as_json() is None


def test_no_job_is_shown_to_end_before_it_starts() -> None:
    """Starts turned out later than drawn, ends of those that wait did not: each is put right by its own score."""
    scores = Scores()
    early, late = ({"low": at, "median": at * 1.1, "high": at * 1.2} for at in (1e3, 2e3))
    for number in range(40):
        job_id, now_s = str(number), 1e5 * number
        job = LiveJob(job_id, "ann", "default", 1.0, _spec(), now_s)
        said = [{name: now_s + at for name, at in times.items()} for times in (early, late)]
        made = {"made_at_s": now_s, "draws": 10, "jobs": {job_id: {"start_s": said[0], "end_s": said[1]}}}
        shown = scores.calibrated(made, "fifo", {job_id: job})["jobs"][job_id]
        assert all(shown["start_s"][name] <= shown["end_s"][name] for name in TIMES), number
        job.started_s, job.finished_s, job.state = now_s + 20_000.0, now_s + 2e3, "done"
        scores.settle({job_id: job})


def test_no_job_is_shown_to_run_beyond_its_time_limit() -> None:
    """Ends turned out later than drawn, so that intervals are made longer: but not by what the limit does not allow."""
    scores, drawn = Scores(), {"low": 100.0, "median": 200.0, "high": 300.0}
    shown = {}
    for number in range(40):
        job_id, now_s = str(number), 1e5 * number
        job = LiveJob(job_id, "ann", "default", 1.0, _spec(max_runtime=1000), now_s, started_s=now_s, state="running")
        job.run_from_s, job.attained_s = now_s, 400.0
        made = {"start_s": None, "end_s": {name: now_s + at for name, at in drawn.items()}}
        shown = scores.calibrated({"made_at_s": now_s, "draws": 10, "jobs": {job_id: made}}, "fifo", {job_id: job})
        latest_s = max(shown["jobs"][job_id]["end_s"].values()) - now_s
        job.finished_s, job.state = now_s + 2e4, "done"
        scores.settle({job_id: job})
        assert latest_s <= 600.0, number
    assert latest_s == 600.0, "made longer, up to the limit"


def test_what_was_noted_is_forgotten_with_its_jobs(tmp_path: Path) -> None:
    """A daemon that runs for months has millions of jobs."""
    scores = Scores()
    for number in range(50):
        job_id = str(number)
        made = {"made_at_s": 1e3 * number, "draws": 10, "jobs": {job_id: {"start_s": TIMES, "end_s": TIMES}}}
        scores.calibrated(made, "fifo", {job_id: LiveJob(job_id, "ann", "default", 1.0, _spec(), 0.0)})
    assert {job_id for job_id, *_ in scores.calibrations["fifo"]._last} == {"49"}


def test_a_full_disk_costs_the_score_and_no_prediction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, text: str) -> None:
        raise OSError(28, "No space left on device")

    async def check(site: Site, daemon: Any) -> None:
        await _three_jobs(daemon)
        daemon.forecasts.keep_score_at(tmp_path / "predictions.json")
        with monkeypatch.context() as disk:
            disk.setattr(predictions, "write_private", full)
            assert (await daemon.predictions(ROOT))["draws"] >= 10
        assert not (tmp_path / "predictions.json").exists()
        await daemon.forecasts.make()
        assert Scores(tmp_path / "predictions.json")._open

    _with_site(tmp_path, check)


def test_queue_show_and_predict_agree_and_say_nothing_that_cannot_come_true_any_more(tmp_path: Path) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await daemon.submit([_spec(gpus=4, steps=1000, max_runtime=6000)], ANN)
        for _ in range(2):
            await daemon.submit([_spec(gpus=4, max_runtime=600)], ANN)
        await site.quiet()
        await daemon.predictions(ROOT)
        site.now += 30.0
        site.world.work("1", 100, 1000, 10.0)  # its end by its speed alone is another than the forecast has
        await site.tick()
        found = (await daemon.predictions(ROOT))["jobs"]
        for job_id in "123":
            view, said = daemon.job(job_id, ANN), found[job_id]
            assert view.expected_end_s == said["end_s"]["median"]
            assert view.end_interval_s == (said["end_s"]["low"], said["end_s"]["high"])
            assert view.expected_start_s == (said["start_s"] and said["start_s"]["median"])
        await daemon.hold("2", ANN)
        await daemon.cancel("3", ANN)
        held, view = (await daemon.predictions(ROOT))["jobs"], daemon.job("2", ANN)
        assert (held["2"]["start_s"], held["2"]["end_s"], view.expected_start_s, view.expected_end_s) == (None,) * 4
        assert held["2"]["reason"] == "is held: does not start before it is released"
        assert set(held) == {"1", "2"}

    _with_site(tmp_path, check)


def test_what_a_job_reported_since_the_last_round_is_used(tmp_path: Path) -> None:
    """A round may be a minute away; until then its length and speed are on no record."""

    async def check(site: Site, daemon: Any) -> None:
        await daemon.submit([_spec(gpus=4, steps=1000)], ANN)
        await site.quiet()
        site.now += 10.0
        site.world.now = site.now
        site.world.work("1", 100, rate=10.0)
        await site.quiet()
        assert not daemon.controller.state.jobs["1"].heard_s, "not on record yet"
        found = (await daemon.predictions(ROOT))["jobs"]["1"]
        assert found["reason"] == "its length and speed are known"
        assert found["end_s"]["median"] == pytest.approx(site.now + 90.0, abs=5.0)
        heard = daemon.leases.news(daemon.controller.state)
        assert [(each.job, each.step) for each in heard] == [("1", 100)], "the next round still puts it on record"

    _with_site(tmp_path, check)


@pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="the kernel has no such file")
def test_the_forecaster_takes_half_of_the_memory_at_most() -> None:
    """And is the first to go where there is none left."""
    eats = "from trine.planning import worker; n = worker._limit_memory(); "
    asked = "import resource; print(n, resource.getrlimit(resource.RLIMIT_DATA)[0]); "
    adjusted = "print(open('/proc/self/oom_score_adj').read()); bytearray(2 * n)"
    done = subprocess.run([sys.executable, "-c", eats + asked + adjusted], capture_output=True, text=True, check=False)
    limit, first = done.stdout.splitlines()[:2]
    assert len(set(limit.split())) == 1 and first == "1000"
    assert "MemoryError" in done.stderr


def test_what_was_said_of_a_job_before_it_was_held_started_or_ended_is_not_repeated(tmp_path: Path) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await _three_jobs(daemon)
        said = (await daemon.predictions(ROOT))["jobs"]
        assert said["2"]["start_s"] and said["3"]["start_s"]
        await daemon.hold("3", BOB)
        await daemon.cancel("1", ANN)
        await site.quiet()
        assert daemon.job("2", ANN).started_s is not None
        daemon.forecasts.cpu_s = 1000.0  # no other forecast is made now
        now = (await daemon.predictions(ROOT))["jobs"]
        assert "1" not in now
        assert now["2"]["start_s"] is None and now["2"]["end_s"] == said["2"]["end_s"]
        assert now["3"] == {
            **{"start_s": None, "end_s": None, "blocker": None},
            "reason": "is held: does not start before it is released",
        }
        view = daemon.job("3", BOB)
        assert (view.expected_start_s, view.expected_end_s) == (None, None)

    _with_site(tmp_path, check)


def test_a_pause_after_a_failure_is_named(tmp_path: Path) -> None:
    async def check(site: Site, daemon: Any) -> None:
        await daemon.submit([_spec(gpus=4, retries=2)], ANN)
        await site.quiet()
        site.now += 1.0
        site.world.end("1", kind="failed")
        await site.quiet()
        assert daemon.job("1", ANN).reason.code == "paused"
        found = (await daemon.predictions(ROOT))["jobs"]["1"]
        assert found["reason"] == "pauses before its next start; predicted once the pause is over"

    _with_site(tmp_path, check)


def test_a_change_that_is_wrong_says_how_it_is_written(tmp_path: Path) -> None:
    async def check(_site: Site, daemon: Any) -> None:
        request = daemon.forecasts._request()()
        for wrong, said in {
            "submit 2 soon": r"'submit 2 soon'; expected submit GPUS \[TIME\], such as submit 8 1h",
            "policy nosuch": "^what-if: unknown policy 'nosuch'",
        }.items():
            with pytest.raises(InputError, match=said):
                changed(live_state(request), [wrong], Moment(request.now_s))

    _with_site(tmp_path, check)
