"""A run is the same on every processor and in every process: numpy, its linear algebra library and the C library have
other kernels on each processor, and each process hashes strings in its own way; none of it may show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.sim.every_policy import every_run
from trine.assembly.registry import ordering_policies, share_policies

KERNELS = ("Haswell", "Nehalem", "Prescott", "SkylakeX")
"""Every x86-64 processor of the last ten years runs the first three, those with AVX-512 the last: they differ in how
they add up."""
OLD_PROCESSOR = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V3 X86_V4 AVX512_ICL AVX512_SPR",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4,-AVX512F",
}
"""With Prescott also numpy's own loops and the C library's ``exp`` and ``pow`` are those of a processor without AVX."""


def kernels() -> list[str]:
    flags = Path("/proc/cpuinfo")
    wide = flags.exists() and "avx512f" in flags.read_text()
    return [name for name in KERNELS if wide or name != "SkylakeX"]


def checksums(kernel: str, hash_seed: int) -> tuple[str, dict[str, str]]:
    """Under one kernel: what the library says it uses, and a checksum of the records of all jobs by run."""
    given = os.environ | {"OPENBLAS_CORETYPE": kernel, "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": str(hash_seed)}
    given |= OLD_PROCESSOR if kernel == "Prescott" else {}
    command = [sys.executable, "-m", "tests.sim.every_policy"]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, env=given, cwd=root, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answer = json.loads(done.stdout)
    return answer["kernel"], answer["found"]


@pytest.mark.slow
def test_every_policy_gives_the_same_jobs_under_every_kernel_and_hash_of_strings() -> None:
    wanted = kernels()
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(checksums, wanted, range(1, len(wanted) + 1)))
    used = {kernel for kernel, _ in runs}
    assert used == {"none"} or len(used) == len(wanted), "the variable chose no other kernel"
    first = runs[0][1]
    for kernel, found in runs[1:]:
        assert [name for name in first if found[name] != first[name]] == [], f"{kernel} differs from {runs[0][0]}"


def test_every_policy_is_among_the_runs_alone_with_pairs_and_as_published() -> None:
    """A policy that is added is compared too, and pairs do share GPUs in the runs that are named for them."""
    named = set(every_run())
    assert {f"{name}: three differences" for name in ordering_policies()} <= named
    assert {f"{name} (shares): as published" for name in share_policies()} <= named
    with_pairs = {name for name in named if name.endswith("pairs, as published")}
    assert len(with_pairs) >= 6
