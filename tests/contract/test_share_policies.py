"""Contract of every share policy in the round mechanism, present and future: with placements that keep jobs and those
that place anew, on one GPU type and on several, with and without published quirks. All are found by name.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_every_combination import assert_sound
from trine.assembly.settings import resolve
from trine.core.errors import InputError
from trine.core.job import Job
from trine.core.params import params_of
from trine.core.plugins import discover
from trine.core.result import RunResult
from trine.engine import rounds
from trine.parity.flags import Compat
from trine.policy.base import Policy
from trine.policy.shares.base import SharePolicy
from trine.policy.shares.rounds.mechanism import ShareRounds
from trine.policy.shares.rounds.round_params import RoundParams
from trine.policy.view import View
from trine.sim.scenario import Scenario, run
from trine.trace import load, write_trace

POLICIES = sorted(discover("trine.policy.shares", SharePolicy))
AMBIGUOUS = sorted(set(POLICIES) & set(discover("trine.policy", Policy)))
CLUSTERS = {
    "mixed": "shape: fast=2x4,slow=3x2\nprices_per_gpu_hour: {fast: 2.0, slow: 0.5}\n",
    "one-type": "shape: fast=3x4\nprices_per_gpu_hour: {fast: 2.0}\n",
}


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twenty jobs of one to six GPUs, some for one type only, some with deadlines, groups and weights."""
    rng = random.Random(5)
    jobs = [
        Job(
            f"job-{i}",
            submit_s=rng.randrange(2000),
            gpus=rng.choice((1, 1, 1, 2, 2, 3, 4, 6)),
            steps=rng.randrange(50, 2000),
            model=rng.choice(("bert", "vgg19")),
            group=rng.choice(("research", "web", "")),
            gpu_types=rng.choice(((), (), ("fast",))),
            weight=rng.choice((1.0, 1.0, 5.0)),
        )
        for i in range(20)
    ]
    path = tmp_path_factory.mktemp("contract") / "jobs.csv"
    write_trace(sorted(jobs, key=lambda j: j.submit_s), path)
    return path


def small_run(trace: Path, policy: str, placement: str, cluster: str, **values: Any) -> RunResult:
    place = trace.parent / f"{cluster}.yaml"
    place.write_text(CLUSTERS[cluster])
    told = {"validate": True, "round_s": 120, "reset_gap_s": 300, "restore_s": 10, "locality_penalty": 1.3} | values
    if policy in AMBIGUOUS:
        told = {"aware": True} | told
    return run(Scenario(str(place), policy, placement, str(trace), seed=3, values=told))


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("placement", ["packed", "packed-sticky", "pal", "random-sticky"])
@pytest.mark.parametrize("policy", POLICIES)
def test_policy_and_placement(policy: str, placement: str, cluster: str, trace: Path) -> None:
    result = small_run(trace, policy, placement, cluster)
    assert_sound(result, load(trace).jobs, policy, placement)
    again = small_run(trace, policy, placement, cluster)
    assert (again.jobs, again.segments) == (result.jobs, result.segments)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_a_policy_says_has_changed_is_all_that_has(
    policy: str, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine looks only at jobs the policy names, the policy at those the engine names: the same run as if both
    looked at everybody."""
    told = small_run(trace, policy, "packed-sticky", "mixed")
    monkeypatch.setattr(rounds, "changed_jobs", lambda *_: None)
    monkeypatch.setattr(View, "news", property(lambda _: None, lambda *_: None), raising=False)
    looked = small_run(trace, policy, "packed-sticky", "mixed")
    assert (told.jobs, told.segments) == (looked.jobs, looked.segments)


@pytest.mark.parametrize("policy", POLICIES)
def test_as_published_every_job_ends(policy: str, trace: Path) -> None:
    quirks = {f"compat.{name}": True for name in Compat.names() if name not in ("keep_evictions", "wall_attained")}
    result = small_run(trace, policy, "packed-sticky", "mixed", **quirks)
    assert [job.job_id for job in result.jobs] == [job.id for job in load(trace).jobs]
    assert all(job.finish_s > job.start_s >= job.submit_s for job in result.jobs)


@pytest.mark.parametrize("policy", POLICIES)
def test_without_rounds_every_job_ends(policy: str, trace: Path) -> None:
    """A policy may leave jobs without any share for good; then the run says so."""
    try:
        result = small_run(trace, policy, "packed-sticky", "mixed", ideal=True)
    except InputError as error:
        assert "no share" in str(error)
    else:
        assert all(job.finish_s > job.start_s >= job.submit_s for job in result.jobs)


@pytest.mark.parametrize("policy", POLICIES)
def test_between_rounds_free_gpus_are_given_out(policy: str, trace: Path) -> None:
    result = small_run(trace, policy, "packed-sticky", "mixed", fill=True)
    assert result.summary.finished == 20


@pytest.mark.parametrize("policy", POLICIES)
def test_its_parameters_and_those_of_the_rounds_can_be_set(policy: str) -> None:
    told = {"aware": True} if policy in AMBIGUOUS else {}
    made = resolve(policy, "packed", told | {"reset_gap_s": "600", "type_order": "a,b"}).policy
    assert isinstance(made, ShareRounds)
    assert made.name == policy
    assert (made.params.reset_gap_s, made.params.type_order) == (600.0, ("a", "b"))
    own = params_of(discover("trine.policy.shares", SharePolicy)[policy])
    assert not set(own) & set(params_of(RoundParams)), "a parameter would go to two owners"
    with pytest.raises(InputError, match="did you mean 'reset_gap_s'"):
        resolve(policy, "packed", told | {"reset_gaps": "600"})


def test_a_name_that_two_policies_have_means_the_order_unless_shares_are_asked_for() -> None:
    assert AMBIGUOUS == ["fifo"]
    assert not isinstance(resolve("fifo", "packed", {}).policy, ShareRounds)
    for word in ("aware", "space_sharing", "fifo.aware"):
        assert isinstance(resolve("fifo", "packed", {word: "true"}).policy, ShareRounds)
    assert isinstance(resolve("fifo", "packed", {"form": "lp"}).policy, ShareRounds)


def test_a_misspelt_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'max-min-fairness'"):
        resolve("max-min-fairnes", "packed", {})
