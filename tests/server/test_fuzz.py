"""No job, user, policy file, placement file or report can end the daemon or keep it from starting.

Walks of random inputs, each told by its number (``python -m tests.server.fuzz`` runs as many as one likes), and what
such walks have found, one small test each."""

from __future__ import annotations

import json
import math
from pathlib import Path
from random import Random

import pytest

from tests.server.fuzz import HOSTILE, PLACEMENTS, POLICIES, inputs_of, read_jobs, read_report, run_walk
from tests.server.fuzz_inputs import PLACEMENT_FAULTS, POLICY_FAULTS, Inputs, hostile_placement, hostile_policy
from tests.server.site import OWNER, Site, run_site, spec
from tests.server.test_scheduler import states, submit, view
from trine.core.errors import InputError
from trine.executor.base import Handle, LaunchFailed, NodeDown
from trine.inputs.job_file import read_job_file


@pytest.mark.parametrize("number", range(3))
def test_a_job_file_is_accepted_or_refused_in_a_sentence(number: int, tmp_path: Path) -> None:
    inputs = Inputs(Random(f"files/{number}"))
    assert sum(len(read_jobs(inputs, tmp_path)) for _ in range(400)) > 40, "many of them are sound"


def test_a_progress_report_is_taken_or_passed_over(tmp_path: Path) -> None:
    inputs = Inputs(Random("reports"))
    taken = [read_report(inputs, tmp_path, Handle("1", 1)) for _ in range(1_000)]
    assert 200 < sum(report is not None for report in taken) < 800


@pytest.mark.parametrize("policy", POLICIES)
def test_random_inputs_end_no_daemon(policy: str) -> None:
    number = POLICIES.index(policy)
    assert inputs_of(run_walk(number, policy, PLACEMENTS[number % len(PLACEMENTS)], steps=40)) >= 40


@pytest.mark.parametrize("number", range(4))
def test_random_inputs_and_hostile_plug_ins_end_no_daemon(number: int) -> None:
    policy, placement = ((HOSTILE, "packed"), ("las", HOSTILE), (HOSTILE, "pal-sticky"), (HOSTILE, HOSTILE))[number]
    run_walk(number, policy, placement, steps=40)


@pytest.mark.parametrize("fault", sorted(POLICY_FAULTS))
def test_whatever_a_policy_file_does_jobs_run(fault: str, tmp_path: Path) -> None:
    policy = hostile_policy(Random(f"policy/{fault}"), tmp_path, fault)
    run_site(Site(tmp_path, policy=policy, event_driven="wakes" in fault), _plain_jobs_run)


@pytest.mark.parametrize("fault", sorted(PLACEMENT_FAULTS))
def test_whatever_a_placement_file_does_jobs_run(fault: str, tmp_path: Path) -> None:
    placement = hostile_placement(Random(f"placement/{fault}"), tmp_path, fault)
    run_site(Site(tmp_path, placement=placement), _plain_jobs_run)


async def _plain_jobs_run(site: Site) -> None:
    """Also after a restart; a plug-in that fails now and then may cost a job a release."""
    for _ in range(2):
        (job,) = await submit(site, 1)
        for _ in range(10):
            if states(site)[job] == "running":
                break
            assert site.daemon is not None
            if states(site)[job] == "set aside":
                await site.daemon.release(job, OWNER)
            await site.tick(after_s=60)
        assert states(site)[job] == "running"
        await site.crash()
        await site.up()
        await site.quiet()


# -- found by such walks -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("written", ["1__0", "1_", "1_.5", "1._5"])
def test_numbers_with_stray_underscores_are_refused_in_a_sentence(written: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(f"run: work\nsteps: {written}\n")
    with pytest.raises(InputError, match="steps"):
        read_job_file(file)


def test_a_policy_file_that_calls_exit_does_not_end_the_daemon(tmp_path: Path) -> None:
    policy = tmp_path / "leaves.py"
    text = Path(hostile_policy(Random(1), tmp_path, "key raises")).read_text()
    policy.write_text(text[: text.rindex("    def key")] + "    def key(self, view):\n        raise SystemExit(3)\n")

    async def script(site: Site) -> None:
        await submit(site, 1)
        assert states(site) == {"1": "running"}
        assert site.daemon is not None and site.daemon.controller.state.fallback is not None

    run_site(Site(tmp_path, policy=str(policy)), script)


def test_a_policy_file_that_is_broken_while_the_daemon_runs_gives_way_to_fifo(tmp_path: Path) -> None:
    policy = Path(hostile_policy(Random(1), tmp_path, "wakes never"))

    async def script(site: Site) -> None:
        await submit(site, 1)
        policy.write_text("this is not Python")
        assert site.daemon is not None
        site.daemon.controller.rebuild(site.daemon.now())
        await submit(site, 1)
        assert states(site) == {"1": "running", "2": "running"}
        assert any("fails for all jobs" in told for told in site.daemon.daemon().problems)

    run_site(Site(tmp_path, policy=str(policy)), script)


def test_a_job_that_must_pause_is_not_started_by_the_move_it_was_told_of(tmp_path: Path) -> None:
    """It was told to move, and its old attempt turned out never to have begun."""

    async def script(site: Site) -> None:
        site.world.obedient = False
        (job,) = await submit(site, 1)
        daemon, node = site.daemon, site.world.running()[job].lease.placement[0][0]
        assert daemon is not None
        daemon._heard(NodeDown(node, site.now, "gone"))
        await site.tick(after_s=60)
        assert states(site)[job] == "stopping"
        attempt = site.world.running()[job]
        attempt.end = LaunchFailed(attempt.lease.handle, site.now, "no memory", passing=True)  # type: ignore[assignment]
        site.world.tell(attempt.end)  # type: ignore[arg-type]
        await site.quiet()
        assert states(site)[job] == "waiting" and not site.world.running()
        assert view(site, job).reason.code == "paused"
        await site.tick(after_s=60)
        assert states(site)[job] == "running"

    run_site(Site(tmp_path, gpus="2x1", placement="packed"), script)


def test_event_driven_rounds_rest_while_all_jobs_are_held(tmp_path: Path) -> None:
    """A share policy would wake for a time that is over, again and again: fifty records a second."""

    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        (job,) = await submit(site, 1)
        await daemon.hold(job, OWNER)
        await site.quiet()
        await site.tick(after_s=1e7)
        assert states(site)[job] == "held"
        assert daemon.controller.wakes_s == math.inf

    run_site(Site(tmp_path, policy="makespan", event_driven=True), script)


def test_text_that_is_no_utf8_is_shown_and_not_an_error(tmp_path: Path) -> None:
    async def script(site: Site) -> None:
        daemon = site.daemon
        assert daemon is not None
        (job,) = await submit(site, 1)
        site.world.tell(NodeDown("node1", site.now, "cannot open '/x\udcff'"))
        attempt = site.world.running()[job]
        attempt.end = LaunchFailed(attempt.lease.handle, site.now, "no '\udcff'")  # type: ignore[assignment]
        site.world.tell(attempt.end)  # type: ignore[arg-type]
        await site.quiet()
        told = [view(site, job).reason.sentence, *(node.reason for node in daemon.nodes())]
        assert json.dumps(told, ensure_ascii=False).encode(), "UTF-8 can have it"
        assert "no '?'" in told[0]

    run_site(Site(tmp_path), script)


def test_gpus_that_a_placement_took_from_numpy_are_written_down(tmp_path: Path) -> None:
    placement = hostile_placement(Random(1), tmp_path, "numpy")

    async def script(site: Site) -> None:
        assert site.daemon is not None
        await site.daemon.submit([spec(2)], OWNER)
        await site.quiet()
        assert states(site) == {"1": "running"} and site.daemon.controller.state.fallback is None

    run_site(Site(tmp_path, placement=placement), script)


def test_a_policy_file_that_ranks_a_job_twice_loses_no_gpu(tmp_path: Path) -> None:
    policy = tmp_path / "twice.py"
    text = Path(hostile_policy(Random(1), tmp_path, "rank twice")).read_text()
    rank = "    def rank(self, view):\n        return Ranking(np.repeat(np.arange(len(view)), 2))\n"
    policy.write_text(text[: text.rindex("    def rank")] + rank)

    async def script(site: Site) -> None:
        for _ in range(3):
            await submit(site, 1)
            await site.tick(after_s=60)
        assert set(states(site).values()) == {"running"}
        assert site.daemon is not None
        assert any("once at most" in told for told in site.daemon.daemon().problems)

    run_site(Site(tmp_path, policy=str(policy), placement="packed"), script)
