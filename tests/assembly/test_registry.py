"""Policies and placements by name: which family a name means, and what is loaded for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from trine.assembly import registry
from trine.assembly.settings import resolve
from trine.core.errors import InputError, TrineError
from trine.placement.wrapper import Sticky
from trine.policy.shares.problem import Problem
from trine.sim.scenario import Scenario, run

RUN_AND_LIST_MODULES = """
import sys
from trine.sim.scenario import Scenario, run
run(Scenario("4x8", {policy!r}, workload="helios", values={{"workload.jobs": 5}}))
print(*(name for name in sys.modules if name.startswith("trine.policy.shares.")))
"""


def loaded_share_modules(policy: str) -> list[str]:
    """Modules of share policies in a new process after a small run."""
    command = [sys.executable, "-c", RUN_AND_LIST_MODULES.format(policy=policy)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_a_run_that_orders_jobs_loads_no_share_policy() -> None:
    assert loaded_share_modules("fifo") == []
    assert "trine.policy.shares.max_min_fairness" in loaded_share_modules("max-min-fairness")


def test_a_name_in_both_families_means_the_order_unless_a_key_belongs_to_the_shares() -> None:
    assert not registry.find_policy("fifo").computes_shares
    assert registry.find_policy("fifo", {"aware"}).computes_shares
    assert resolve("fifo", "packed", {}).round_params is None
    assert resolve("fifo", "packed", {"aware": True}).round_params is not None


def test_an_unknown_policy_is_refused_with_the_names_of_both_families_once_each() -> None:
    with pytest.raises(InputError) as error:
        registry.find_policy("fifoo")
    assert error.value.expected.count(" fifo,") == 1
    assert "max-min-fairness" in error.value.expected


def test_the_suffix_wraps_any_placement() -> None:
    placement = resolve("fifo", "pal-sticky", {}).placement
    assert isinstance(placement, Sticky)
    assert placement.within.name == "pal"


SHARES = """
import numpy as np
from dataclasses import dataclass
from trine.core.params import param
from trine.policy.shares.allocation import allocation, exact
from trine.policy.shares.base import SharePolicy


@dataclass
class Even(SharePolicy):
    name = "even"
    title = "equal time on every type"

    part: float = param(1.0, "part of what there is")

    def compute(self, problem, memory):
        x = np.tile(self.part * problem.capacity / problem.gang.sum(), (len(problem), 1))
        return allocation(problem, x, exact(float(x.min())))
"""


def test_a_share_policy_in_a_file_is_simulated_in_rounds(tmp_path: Path) -> None:
    (tmp_path / "even.py").write_text(SHARES)
    path = str(tmp_path / "even.py")
    assert registry.find_policy(path).computes_shares
    assert registry.own_name(path) == "even"
    jobs = {"workload.jobs": 12, "workload.max_gpus": 1, "workload.load": 3.0, "part": 0.5, "reset_gap_s": 600.0}
    result = run(Scenario("1x4", path, "packed-sticky", workload="pai", values=jobs))
    assert result.summary.finished == 12


def test_shares_of_a_file_that_are_more_time_than_there_is_are_refused(tmp_path: Path) -> None:
    (tmp_path / "even.py").write_text(SHARES)
    problem = Problem.of({"v100": 1, "k80": 1}, [[1.0, 1.0]])
    with pytest.raises(TrineError, match="policy even: shares of job 0 add up to 2; expected at most 1"):
        registry.find_policy(str(tmp_path / "even.py")).policy_type().allocate(problem)
    values = {"workload.jobs": 12, "workload.max_gpus": 1, "workload.load": 3.0, "part": 2.0}
    with pytest.raises(TrineError, match="policy even: shares of gpu take 5 GPUs; expected at most its 4"):
        run(Scenario("1x4", str(tmp_path / "even.py"), "packed-sticky", workload="pai", values=values))
