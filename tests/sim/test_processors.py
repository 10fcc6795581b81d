"""A run is the same on every processor and in every process: the linear algebra library has other kernels on each
processor, and each process hashes strings in its own way; neither may show."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from trine.assembly.registry import ordering_policies, share_policies

KERNELS = ("Haswell", "Nehalem", "Prescott")
"""Every x86-64 processor of the last ten years runs these three: they differ in how they add up."""
PROGRAM = """
import hashlib, json, sys, tempfile
from dataclasses import replace
from threadpoolctl import threadpool_info
from trine.assembly.registry import find_policy, ordering_policies, share_policies
from trine.inputs.throughputs import load_throughputs, table_csv
from trine.sim.scenario import Scenario, run

# Jobs by the hour for twelve GPUs: enough that all of them queue.
def digest(policy, throughputs="gavel-simulation", **values):
    single = policy in ("allox", "gandiva")
    scenario = Scenario(
        "v100=4x1,p100=4x1,k80=4x1", policy, "packed-sticky", workload="gavel-continuous-single" if single
        else "gavel-continuous-multiple", throughputs=throughputs, seed=1, prices="v100=2.5,p100=1,k80=0.5",
        values={"round_s": 360, "workload.jobs": 24, "workload.jobs_per_h": 6.0, "workload.max_gpus": 4, **values},
    )
    return hashlib.sha256(repr(run(scenario).jobs).encode()).hexdigest()

found = {name: digest(name) for name in [*ordering_policies(), *share_policies()]}
for name in share_policies():
    if "aware" in find_policy(name, {"aware"}).params:
        found[name + ", not aware"] = digest(name, aware=False)
    if name == "fifo":
        found["fifo, shares"] = digest(name, aware=True)
# Any two of equal gangs keep a part of their speed, up to 0.9 of it, by how their names begin.
table, pairs = load_throughputs("gavel-simulation"), {}
for (one, gang), rates in table.rates.items():
    for (other, equal), others in table.rates.items():
        if gang == equal and one <= other:
            kept = 0.5 + 0.1 * ((ord(one[0]) + ord(other[0])) % 5)
            pairs[one, other, gang] = {name: (rates[name] * kept, others[name] * kept) for name in rates}
with tempfile.NamedTemporaryFile("w", suffix=".csv") as file:
    file.write(table_csv(replace(table, pairs=pairs, spread=None)))
    file.flush()
    found["max-min-fairness, pairs"] = digest("max-min-fairness", file.name, space_sharing=True)
# Without OpenBLAS, whose kernels can be chosen, only the hashes differ.
kernel = next((lib["architecture"] for lib in threadpool_info() if lib["internal_api"] == "openblas"), "none")
json.dump({"kernel": kernel, "found": found}, sys.stdout)
"""


def digests(kernel: str, hash_seed: int) -> tuple[str, dict[str, str]]:
    """Under one kernel: what the library says it uses, and a checksum of the records of all jobs by policy."""
    given = os.environ | {"OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": str(hash_seed)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=given, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    return answer["kernel"], answer["found"]


@pytest.mark.slow
def test_every_policy_gives_the_same_jobs_under_every_kernel_and_hash_of_strings() -> None:
    runs = [digests(kernel, hash_seed) for hash_seed, kernel in enumerate(KERNELS, 1)]
    kernels = {kernel for kernel, _ in runs}
    assert kernels == {"none"} or len(kernels) == len(KERNELS), "the variable chose no other kernel"
    first = runs[0][1]
    assert len(first) >= len(ordering_policies()) + len(share_policies())
    for kernel, found in runs[1:]:
        assert [name for name in first if found[name] != first[name]] == [], f"{kernel} differs from {runs[0][0]}"
