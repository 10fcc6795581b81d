"""Two real jobs on one virtual GPU: both run at the same time, both end, and a dead daemon changes nothing of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.live.command import trine
from tests.e2e.live import daemon, processes_of, until
from tests.e2e.test_live import LIVE, _result, log, toy

STEP_S = 0.02
TABLE = f"""model,gpus,gpu_type,steps_per_s,other,other_steps_per_s
lstm,1,gpu,{1 / STEP_S},,
resnet,1,gpu,{1 / STEP_S},,
lone,1,gpu,{1 / STEP_S},,
lstm,1,gpu,{0.9 / STEP_S},resnet,{0.9 / STEP_S}
"""
SHARES = ("--policy", "max-min-fairness", "--set", "space_sharing=true")


def options(folder: Path, *more: str) -> tuple[str, ...]:
    table = folder / "throughputs.csv"
    table.write_text(TABLE)
    return ("--gpus", "1x1", "--round", "30", "--throughputs", str(table), *more)


def visible(job_id: str, state: Path) -> set[bytes]:
    """What the processes of a job were told of their GPUs."""
    words = [Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") for pid in processes_of(job_id, state)]
    return {word for part in words for word in part if word.startswith(b"CUDA_VISIBLE_DEVICES=")}


@pytest.mark.slow
@pytest.mark.parametrize("policy", [SHARES, ("--policy", "gandiva")], ids=["max-min", "gandiva"])
def test_two_jobs_share_a_gpu_and_a_third_waits(policy: tuple[str, ...], tmp_path: Path) -> None:
    state = tmp_path / "state"
    with daemon(state, *options(tmp_path, *policy)) as site:
        client = site.up()
        one, other = client.submit([toy(300, STEP_S, model="lstm"), toy(200, STEP_S, model="resnet")])
        until(lambda: {client.job(job_id)["state"] for job_id in (one, other)} == {"running"}, "both to run")
        [third] = client.submit(toy(20, STEP_S, model="lone"))
        assert [client.job(job_id)["state"] for job_id in (one, other, third)] == ["running", "running", "waiting"]
        assert visible(one, state) == visible(other, state) == {b"CUDA_VISIBLE_DEVICES=0"}
        assert client.job(one)["shares_with"] == other and client.job(other)["shares_with"] == one
        gpu = client.nodes()[0]["gpus"][0]
        assert {gpu["job"], gpu["second_job"]} == {one, other}
        assert f"node0:0 with {other}" in trine("queue", "--state", state).out
        assert f"shares its GPU with job {other}" in trine("explain", one, "--state", state).out
        assert f"{one}+{other}" in trine("nodes", "--state", state).out
        ended = {job_id: client.wait(job_id, 90) for job_id in (one, other, third)}
        assert {job["state"] for job in ended.values()} == {"done"}
        assert {job["attempt"] for job in ended.values()} == {1}
        assert (ended[third]["started_s"] or 0.0) >= max(ended[i]["finished_s"] or 0.0 for i in (one, other))


@pytest.mark.slow
def test_a_pair_outlives_its_daemon_and_loses_no_step(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with daemon(state, *options(tmp_path, *SHARES)) as site:
        client = site.up()
        one, other = client.submit([toy(900, STEP_S, model="lstm"), toy(900, STEP_S, model="resnet")])
        until(lambda: {client.job(job_id)["state"] for job_id in (one, other)} == {"running"}, "both to run")
        before = {job_id: processes_of(job_id, state) for job_id in (one, other)}
        site.kill()
        client = site.up()
        assert [client.job(job_id)["shares_with"] for job_id in (one, other)] == [other, one]
        assert {job_id: processes_of(job_id, state) for job_id in (one, other)} == before, "they did not notice"
        [third] = client.submit(toy(10, STEP_S, model="resnet"))
        assert client.job(third)["state"] == "waiting"
        ended = [client.wait(job_id, 90) for job_id in (one, other, third)]
        assert [(job["state"], job["attempt"]) for job in ended] == [("done", 1)] * 3
        # Both made the same steps in the same order: the check sum over them is that of an undisturbed run.
        assert _result(log(client, one)) == _result(log(client, other))
        assert _result(log(client, one))["steps"] == 900
        assert client.jobs(LIVE) == []
        site.stop()
        told = json.loads(
            trine("replay", "--state", state, "--throughputs", tmp_path / "throughputs.csv", "-o", "json").out
        )
        assert told["difference"] is None and told["agreed"] == told["decisions"] == 3
