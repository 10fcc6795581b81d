"""``trine predict`` and ``trine whatif`` as a user types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.live.command import trine
from tests.client.fake_daemon import FakeDaemon


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    monkeypatch.setenv("TRINE_STATE", str(state))


def test_predict_shows_median_interval_reason_and_the_score(daemon: FakeDaemon) -> None:
    daemon.add(), daemon.add()
    done = trine("predict")
    header, line, _ = done.out.splitlines()
    assert header.split() == ["id", "start", "end", "reason"]
    assert "-10m +2h" in line and "waits for job 17 to end" in line
    assert "100 futures; starts: 75% of 8 intervals held, off by 1m30s" in done.err
    assert list(json.loads(trine("predict", "2", "-o", "json").out)["jobs"]) == ["2"]
    wrong = trine("predict", "9")
    assert wrong.code == 2 and "expected the id of a job" in wrong.err


def test_queue_and_show_have_the_interval_where_there_is_one(daemon: FakeDaemon) -> None:
    daemon.add()
    daemon.update(
        "1", expected_start_s=1.7e9, start_interval_s=[1.7e9 - 600, 1.7e9 + 7200], expected_end_s=1.7e9 + 9000
    )
    header, line = trine("queue").out.splitlines()
    assert " start " in header and " end " in header and "-10m +2h" in line
    shown = trine("show", "1").out
    assert "expected start" in shown and "(80 %: " in shown and "expected end" in shown


def test_whatif_says_who_gains_and_applies_what_a_daemon_can(daemon: FakeDaemon) -> None:
    daemon.add(), daemon.add()
    done = trine("whatif", "policy las")
    assert "12m earlier [1h earlier, same]" in done.out and "2 jobs gain, 0 lose, 0 stay" in done.out
    assert "trine: Nothing was measured on a100." in done.err
    assert trine("whatif", "hold 1", "--apply").code == 0
    assert daemon.jobs["1"]["state"] == "held"
    done = trine("whatif", "priority 2 5", "quota user:ann=16", "--apply")
    assert (daemon.jobs["2"]["priority"], daemon.quotas) == (5.0, {"user:ann": 16})
    assert "trine: done: priority 2 5" in done.err and "trine: done: quota user:ann=16" in done.err
    assert trine("whatif", "drain n0", "--apply").code == 0 and daemon.nodes[0]["state"] == "drained"
    for wrong in (["policy las", "--apply"], ["lose node0", "--apply"], ["frobnicate"]):
        refused = trine("whatif", *wrong)
        assert refused.code == 2 and "expected" in refused.err


def test_a_submission_that_was_tried_is_made_with_its_command(daemon: FakeDaemon) -> None:
    done = trine("whatif", "submit 2 1h", "--apply", "--", "python", "train.py", "--epochs", "3")
    assert done.code == 0 and "trine: done: submit 2 1h: job 1, ended after 1h at the latest" in done.err
    spec = daemon.specs[max(daemon.specs, key=int)]
    assert spec["run"] == ["python", "train.py", "--epochs", "3"] and spec["gpus"] == {"count": 2}
    assert spec["max_runtime"] == 3600 and spec["workdir"] == str(Path.cwd()) and "PATH" in spec["env"]
    assert trine("whatif", "submit 2", "--apply", "--", "true").code == 0
    assert "max_runtime" not in daemon.specs[max(daemon.specs, key=int)]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["submit 2 3600", "--apply"], "-- CMD"),
        (["submit 2 3600", "--", "true"], "--apply"),
        (["hold 1", "--apply", "--", "true"], "'submit GPUS [TIME]'"),
        (["submit 2 3600", "policy las", "--apply", "--", "true"], "--policy"),
        (["submit 2 3600", "--apply", "--"], "a command"),
    ],
)
def test_a_command_belongs_to_a_submission_that_is_applied(words: list[str], said: str, daemon: FakeDaemon) -> None:
    daemon.add()
    refused = trine("whatif", *words)
    assert refused.code == 2 and said in refused.err
    assert daemon.jobs["1"]["state"] != "held" and len(daemon.jobs) == 1, "nothing was done"


def test_a_job_that_is_tried_is_new_and_its_start_is_shown(daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    def at(seconds: float) -> dict[str, float]:
        return dict.fromkeys(("low", "median", "high"), 1.7e9 + seconds)

    runs = {"start_s": at(-50), "end_s": at(600)}
    released = {"before": None, "after": {"start_s": at(700), "end_s": at(800)}, "change_s": None}
    at_once = {"before": None, "after": {"start_s": at(0), "end_s": at(800)}, "change_s": None}
    jobs = {"7": {"before": runs, "after": runs, "change_s": None}, "8": released, "9": at_once}
    found = {"made_at_s": 1.7e9, "draws": 9, "gain": 0, "lose": 1, "same": 1, "mean_change_s": None, "jobs": jobs}
    monkeypatch.setattr(FakeDaemon, "whatif", lambda *_: found)
    header, *rows, total = trine("whatif", "release 8", "submit 2").out.splitlines()
    assert "would start" in header and total.startswith("0 jobs gain, 1 loses, 1 stays; ")
    assert [row.split()[0] for row in rows] == ["7", "8", "new"]
    assert [row.count(":") for row in rows] == [4, 4, 2], "7 ends twice, 8 starts and ends, 9 ends"
    assert ["at once" in row for row in rows] == [False, False, True]
