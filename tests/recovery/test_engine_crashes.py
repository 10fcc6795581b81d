"""The daemon dies at every record of a scenario whose jobs run on a real cluster, and is started again: every job ends
once and well, no attempt runs twice, nothing is left behind there."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from tests.executor.driving import TRAINER, Engine, job_log, until
from tests.executor.kubernetes_driving import KubernetesDriving
from tests.executor.slurm_driving import SlurmDriving
from tests.server.site import OWNER, MortalStore, Site, spec
from trine.inputs.job_spec import JobSpec
from trine.server.clock import JournalClock

_DEADLINE_S = 60.0
ENGINES = [
    pytest.param(SlurmDriving(), id="slurm", marks=pytest.mark.slurm),
    pytest.param(KubernetesDriving(), id="kubernetes", marks=pytest.mark.kubernetes),
]


def job(home: Path, gpus: int, nodes: int, steps: int, **values: object) -> JobSpec:
    """The cheap trainer, one rank per GPU."""
    run, env = list(TRAINER), {"STEPS": str(steps), "STEP_S": "0.02"}
    checkpoint = {"dir": str(home.parent / f"{home.name}-checkpoints-{gpus}"), "grace_s": 10.0}
    return spec(gpus, run=run, env=env, nodes=nodes, ranks="gpu", checkpoint=checkpoint, **values)


async def until_done(site: Site, count: int) -> None:
    """Rounds until all jobs have ended."""
    deadline = time.monotonic() + _DEADLINE_S
    while True:
        assert site.daemon is not None and time.monotonic() < deadline, "the jobs do not end"
        state = site.daemon.controller.state
        if len(state.jobs) == count and not state.live:
            return
        site.daemon._round()
        await asyncio.sleep(0.1)


async def scenario(site: Site) -> None:
    """A gang on all nodes, which makes room for a job that goes first, and ends when that has ended."""
    assert site.daemon is not None
    await site.daemon.submit([job(site.home, 8, 4, 40)], OWNER, "first")
    deadline = time.monotonic() + _DEADLINE_S
    while site.daemon.controller.state.jobs["1"].state != "running":
        assert time.monotonic() < deadline, "the gang does not start"
        await asyncio.sleep(0.05)
    await site.daemon.submit([job(site.home, 2, 1, 5, priority=3.0)], OWNER, "second")
    await until_done(site, 2)


async def one_life(home: Path, driving: Engine, dies_at: int | None, after_commit: bool) -> int:
    """How many records it wrote until it died, or to the end."""
    site = Site(home, gpus="v100=4x2", policy="srtf", time=JournalClock())
    store = MortalStore.open(home / "journal.db")
    await site.up(driving.open(home), store)
    store.dies_at, store.after_commit = dies_at, after_commit
    assert site.daemon is not None
    work, writer = asyncio.ensure_future(scenario(site)), site.daemon._tasks[0]
    await asyncio.wait([work, writer], return_when=asyncio.FIRST_COMPLETED)
    if dies_at is None:
        await work
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)
    written = store.seq
    await site.crash()
    daemon = await site.up(driving.open(home))
    try:
        await daemon.submit([job(home, 8, 4, 40)], OWNER, "first")
        await daemon.submit([job(home, 2, 1, 5, priority=3.0)], OWNER, "second")
        await until_done(site, 2)
        assert [found.state for found in daemon.controller.state.jobs.values()] == ["done", "done"]
    finally:
        await site.crash()
    return written


def check_attempts(home: Path, driving: Engine) -> None:
    for job_id in ("1", "2"):
        lines = [json.loads(line) for line in job_log(home, job_id, 0).splitlines() if line.startswith("{")]
        attempts = [line["attempt"] for line in lines if "start" in line]
        assert len(set(attempts)) == len(attempts), "an attempt ran twice"
        assert [line for line in lines if "done" in line][1:] == [], "the job was done twice"
    assert driving.leftovers(home) == []


@pytest.mark.parametrize("half", [0, 1])
@pytest.mark.parametrize("driving", ENGINES)
def test_killed_at_every_record_with_jobs_running(
    driving: SlurmDriving | KubernetesDriving, request: pytest.FixtureRequest, tmp_path: Path, half: int
) -> None:
    """Every other record, in two halves that can run side by side; half of them die before it is on disk."""
    driving.prepare(request)

    def live(name: str, dies_at: int | None, after_commit: bool) -> int:
        home = tmp_path / name
        home.mkdir()
        written = asyncio.run(one_life(home, driving, dies_at, after_commit))
        check_attempts(home, driving)
        until(lambda: not driving.left_behind(), "nothing left in the cluster")
        return written

    records = live("undisturbed", None, False)
    assert records >= 8
    for position in range(2 + half, records + 1, 2):
        live(str(position), position, after_commit=position % 4 < 2)
