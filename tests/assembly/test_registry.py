"""Policies and placements by name: which family a name means, and what is loaded for it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trine.assembly import registry
from trine.assembly.settings import resolve
from trine.core.errors import InputError
from trine.placement.wrapper import Sticky

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
