"""The live scheduler from the outside: real daemon, real processes, real signals."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest

from tests.e2e.live import EXAMPLES, daemon, entry, processes_of, until
from trine.client import Client, RefusedError
from trine.server.auth import add_user_token

LIVE = ["waiting", "held", "starting", "running", "stopping"]
TOY = str(EXAMPLES / "toy_sdk.py")


def toy(steps: int, step_s: float = 0.01, **values: object) -> dict[str, object]:
    run = [sys.executable, TOY, "--steps", str(steps), "--step-s", str(step_s)]
    return {"run": run, "workdir": str(EXAMPLES), "steps": float(steps), **values}


def log(client: Client, job_id: str) -> str:
    return "".join(client.logs(job_id))


def step_of(client: Client, job_id: str) -> float:
    progress = client.job(job_id)["progress"]
    return progress["step"] if progress else 0


@pytest.mark.slow
def test_a_hundred_short_jobs_through_the_api(tmp_path: Path) -> None:
    with daemon(tmp_path, "--gpus", "2x4", "--round", "2") as site:
        client = site.up()
        out = tmp_path / "ran"
        out.mkdir()
        mark = "'-'.join(os.environ[name] for name in ('TRINE_JOB_ID', 'TRINE_ATTEMPT', 'RANK'))"
        script = f"import os, pathlib; pathlib.Path(r'{out}', {mark}).touch()"
        specs = [{"run": [sys.executable, "-S", "-c", script], "gpus": 1 + i % 2, "ranks": "gpu"} for i in range(100)]
        ids = [job_id for at in range(0, 100, 25) for job_id in client.submit(specs[at : at + 25])]
        assert len(set(ids)) == 100
        states = {job_id: client.wait(job_id, 200)["state"] for job_id in ids}
        assert set(states.values()) == {"done"}
        ran = sorted(path.name for path in out.iterdir())
        assert len(ran) == 150, "every rank ran exactly once"
        assert site.stop() == 0


@pytest.mark.slow
def test_a_preempted_job_resumes_elsewhere_and_loses_no_step(tmp_path: Path) -> None:
    with daemon(tmp_path, "--gpus", "2x1", "--round", "1", "--policy", "srtf") as site:
        client = site.up()
        [calm, long] = client.submit([toy(300), toy(300, 0.02, priority=-1.0)])
        until(lambda: step_of(client, long) > 0, "the first steps")
        first = client.job(long)["placement"][0]["node"]
        client.wait(calm, 60)
        client.drain(first, "to make it go elsewhere")
        [urgent] = client.submit(toy(50, gpus=1, priority=1.0, topology={"required": "node"}))
        until(lambda: client.job(urgent)["state"] == "done", "the urgent job")
        client.hold(long)
        until(lambda: client.job(long)["state"] == "held", "the stop")
        client.release(long)
        ended = client.wait(long, 90)
        assert (ended["state"], ended["attempt"]) == ("done", 2)
        starts = [line["sentence"] for line in client.explain(long)["story"] if line["what"] == "started"]
        assert first in starts[0] and first not in starts[1]
        # The chain is a digest over all steps in order: a step lost or done twice would change it.
        assert _result(log(client, long)) == _result(log(client, calm))


@pytest.mark.slow
def test_a_job_of_higher_priority_takes_gpus_and_gives_them_back(tmp_path: Path) -> None:
    with daemon(tmp_path, "--gpus", "2x1", "--round", "1", "--policy", "srtf") as site:
        client = site.up()
        [long] = client.submit(toy(300, 0.02, gpus=2, priority=-1.0))
        until(lambda: step_of(client, long) > 0, "the first steps")
        [urgent] = client.submit(toy(50, gpus=2))
        assert client.wait(urgent, 60)["state"] == "done"
        assert client.job(long)["preemptions"] == 1
        ended = client.wait(long, 90)
        assert (ended["state"], ended["attempt"]) == ("done", 2)
        assert _result(log(client, long))["steps"] == 300


def _result(said: str) -> dict[str, object]:
    """The line a job of the examples ends with."""
    found: dict[str, object] = json.loads(said[said.rindex("{") :])
    return found


@pytest.mark.slow
def test_a_job_that_ignores_sigterm_and_daemonises_leaves_nothing_behind(tmp_path: Path) -> None:
    stubborn = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(600)
    os._exit(0)
print("ready", flush=True)
time.sleep(600)
"""
    with daemon(tmp_path, "--gpus", "1x1", "--round", "1") as site:
        client = site.up()
        [job_id] = client.submit({"run": [sys.executable, "-c", stubborn], "checkpoint": {"grace_s": 0.5}})
        until(lambda: "ready" in log(client, job_id), "the job to say something")
        assert len(processes_of(job_id, tmp_path)) >= 2
        client.cancel(job_id)
        assert client.wait(job_id, 30)["state"] == "cancelled"
        assert processes_of(job_id, tmp_path) == []


@pytest.mark.slow
def test_killed_daemon_finds_its_jobs_again_and_none_runs_twice(tmp_path: Path) -> None:
    with daemon(tmp_path, "--gpus", "2x2", "--round", "1") as site:
        client = site.up()
        ids = client.submit([toy(250, 0.02), toy(250, 0.02, gpus=2), toy(50), toy(40, gpus=4), toy(30)])
        until(lambda: step_of(client, ids[0]) > 0, "the first steps")
        before = {job_id: client.job(job_id)["attempt"] for job_id in ids}
        for _ in range(3):
            site.kill()
            client = site.up()
            known = client.jobs([*LIVE, "done"])
            assert sorted((job["id"] for job in known), key=int) == ids
        ended = {job_id: client.wait(job_id, 90) for job_id in ids}
        assert {job["state"] for job in ended.values()} == {"done"}
        assert all(ended[job_id]["attempt"] == max(before[job_id], 1) for job_id in ids), "no job was started again"
        assert site.stop() == 0


@pytest.mark.slow
def test_wait_and_logs_carry_a_failure(tmp_path: Path) -> None:
    with daemon(tmp_path, "--gpus", "1x1") as site:
        client = site.up()
        [job_id] = client.submit({"run": [sys.executable, "-c", "print('bye'); raise SystemExit(7)"]})
        ended = client.wait(job_id, 60)
        assert (ended["state"], ended["exit_code"]) == ("failed", 7)
        assert "bye" in log(client, job_id)
        [missing] = client.submit({"run": ["/no/such/program"]})
        ended = client.wait(missing, 60)
        assert ended["state"] == "failed"
        assert "/no/such/program" in ended["reason"]["sentence"] + log(client, missing)


@pytest.mark.training
def test_a_real_distributed_job_moves_and_ends_with_the_same_loss(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed (make training)")
    script = str(EXAMPLES / "pytorch_ddp.py")
    base = {
        "run": [sys.executable, script, "--steps", "120", "--step-s", "0.05"],
        "workdir": str(EXAMPLES),
        "gpus": 2,
        "nodes": 2,
    }
    with daemon(tmp_path, "--gpus", "4x1", "--round", "1", "--policy", "srtf") as site:
        client = site.up()
        [calm] = client.submit({**base, "name": "calm"})
        assert client.wait(calm, 180)["state"] == "done", log(client, calm)
        [moved] = client.submit({**base, "name": "moved"})
        until(lambda: step_of(client, moved) > 0, "the first steps", 120)
        first = {part["node"] for part in client.job(moved)["placement"]}
        client.hold(moved)
        until(lambda: client.job(moved)["state"] == "held", "the stop", 60)
        for node in first:
            client.drain(node, "to make it go elsewhere")
        client.release(moved)
        until(lambda: client.job(moved)["placement"], "the second start")
        assert not first & {part["node"] for part in client.job(moved)["placement"]}
        ended = client.wait(moved, 240)
        assert (ended["state"], ended["attempt"]) == ("done", 2), log(client, moved)
        assert _result(log(client, calm)) == _result(log(client, moved))


@pytest.mark.slow
def test_what_the_journal_recorded_is_decided_the_same_again(tmp_path: Path) -> None:
    import subprocess

    with daemon(tmp_path, "--gpus", "2x2", "--round", "1", "--policy", "las", "--placement", "pal") as site:
        client = site.up()
        ids = client.submit([toy(40 + 10 * i, gpus=1 + i % 3) for i in range(8)])
        for job_id in ids:
            assert client.wait(job_id, 90)["state"] == "done"
        site.stop()
        command = [sys.executable, "-m", "trine", "replay", "--state", str(tmp_path), "-o", "json"]
        told = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        assert told["difference"] is None and told["agreed"] == told["decisions"] >= 8
        assert len(told["jobs"]) == 8


@pytest.mark.slow
def test_a_root_daemon_runs_each_job_as_its_user(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only a daemon of root can start jobs as other users")
    with daemon(tmp_path / "state", "--gpus", "1x2", "--round", "1") as site:
        owner = site.up()
        for folder in (tmp_path, *tmp_path.parents):
            if folder.stat().st_uid == 0 and not folder.stat().st_mode & 0o001:
                folder.chmod(0o711)  # pytest keeps its folders to itself
        token = add_user_token(tmp_path / "state", "nobody")
        with Client(api=str(entry(tmp_path / "state")["url"]), token=token) as nobody:
            until(lambda: _accepted(nobody), "the new token to be known")
            [job_id] = nobody.submit({"run": ["/usr/bin/id", "-un"], "workdir": "/"})
            assert nobody.wait(job_id, 60)["state"] == "done", log(owner, job_id)
            assert log(nobody, job_id).strip() == "nobody"
            [mine] = owner.submit({"run": ["/usr/bin/id", "-un"], "workdir": "/"})
            owner.wait(mine, 60)
            with pytest.raises(RefusedError, match="no job"):
                nobody.cancel(mine)
            with pytest.raises(RefusedError, match="may not submit jobs of user"):
                nobody.submit({"run": ["/usr/bin/id"], "user": "root"})
            with pytest.raises(RefusedError, match=r"owner|admin"):
                nobody.drain("node0")
        with pytest.raises(RefusedError, match="knows no user"):
            owner.submit({"run": ["/usr/bin/id"], "user": "no-such-user"})


def _accepted(client: Client) -> bool:
    try:
        client.jobs()
    except RefusedError:
        return False
    return True
