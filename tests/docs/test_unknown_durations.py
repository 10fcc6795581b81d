"""The table of what policies do when durations are unknown names every policy, and says rightly which use durations."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.docs.pages import ROOT
from tests.policy.shares.problems import random_problem
from tests.policy.views import Seen, view
from trine.assembly.registry import ordering_policies, share_policies
from trine.policy.base import KeyPolicy
from trine.policy.shares.base import Memory

SECTION = (ROOT / "docs/policies.md").read_text().split("## When durations are unknown\n")[1].split("\n## ")[0]


def documented() -> dict[str, str]:
    """By name, with ``(shares)`` where an ordering policy has the same: what the second column says."""
    found: dict[str, str] = {}
    for names, uses in re.findall(r"^\| (`.+?) \| (yes|no|for deadlines) \|", SECTION, re.M):
        found |= dict.fromkeys(re.findall(r"`[\w-]+`(?: \(shares\))?", names), uses)
    return {name.replace("`", ""): uses for name, uses in found.items()}


def share_name(name: str) -> str:
    return f"{name} (shares)" if name in ordering_policies() else name


def test_every_policy_is_named_once() -> None:
    assert set(documented()) == {*ordering_policies(), *map(share_name, share_policies())}


@pytest.mark.parametrize("name", [n for n, cls in ordering_policies().items() if issubclass(cls, KeyPolicy)])
def test_an_order_depends_on_durations_only_where_the_table_says_so(name: str) -> None:
    """The same jobs, one of them taken to need an hour or a minute more."""
    keys = []
    for ideal_s in (3600.0, 3660.0):
        policy: Any = ordering_policies()[name]()
        jobs = [Seen("a", ideal_s, ran_s=100.0), Seen("b", 5000.0, 2, submit_s=5.0, running_since_s=50.0)]
        keys.append(np.concatenate([np.atleast_1d(part) for part in np.atleast_2d(policy.key(view(400.0, jobs)))]))
    assert np.array_equal(keys[0], keys[1]) == (documented()[name] == "no")


@pytest.mark.parametrize("name", sorted(share_policies()))
def test_shares_depend_on_durations_only_where_the_table_says_so(name: str) -> None:
    drawn = random_problem(3, 12, gang=1)
    found = []
    for factor in (np.ones(12), np.geomspace(1.0, 1e4, 12)):
        policy: Any = share_policies()[name]()
        problem = replace(drawn, steps_left=drawn.steps_left * factor, deadline_s=np.full(12, np.inf))
        found.append(policy.compute(problem, Memory()).shares)
    assert np.array_equal(found[0], found[1]) == (documented()[share_name(name)] != "yes")
