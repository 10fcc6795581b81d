"""The same run in two processes that hash strings differently gives the same jobs, under every share policy."""

from __future__ import annotations

import os
import subprocess
import sys

PROGRAM = """
from trine.core.plugins import discover
from trine.policy.shares.base import SharePolicy
from trine.sim.scenario import Scenario, run
values = {"round_s": 360, "workload.jobs": 18, "workload.jobs_per_h": 4}
for policy in sorted(discover("trine.policy.shares", SharePolicy)):
    told = values | ({"aware": True} if policy == "fifo" else {})
    cluster, prices = "v100=2x1,p100=2x1,k80=2x1", "gavel-spot"
    scenario = Scenario(cluster, policy, workload="gavel-continuous-single", throughputs="gavel-simulation",
                        prices=prices, values=told)
    print(policy, [(job.job_id, job.finish_s, job.preemptions, job.migrations) for job in run(scenario).jobs])
"""


def output(seed: str) -> list[str]:
    told = os.environ | {"PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=told, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_results_do_not_depend_on_the_hashes_of_strings() -> None:
    one, other = output("1"), output("2")
    assert len(one) >= 12
    for mine, theirs in zip(one, other, strict=True):
        assert mine == theirs
