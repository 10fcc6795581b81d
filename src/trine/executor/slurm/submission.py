"""From a placement to a request to Slurm: one batch job per lease, a heterogeneous one where nodes differ in what the
job takes there, and the step that starts one part per node. Pure: nothing is run here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trine.executor.attempt.spec import LaunchRefused, boot
from trine.executor.base import Handle, Placement
from trine.executor.slurm.inventory import SlurmNode

NOT_VISIBLE_RC = 97
"""The batch script found no directory of the attempt on its node."""


@dataclass(frozen=True, slots=True)
class Resources:
    """What trine asks Slurm for besides nodes and GPUs; ``None``: the share of the node that its GPUs are."""

    partition: str = ""
    account: str = ""
    options: tuple[str, ...] = ()
    cpus_per_gpu: int | None = None
    memory_per_gpu_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Component:
    """Nodes on which a job takes the same: one part of a heterogeneous job, or all of a plain one."""

    nodes: tuple[str, ...]
    gres: str
    cpus: int
    memory_mib: int
    """0: all that the node has."""
    whole: bool


def comment(state_id: str, handle: Handle) -> str:
    """What tells a Slurm job as an attempt of ours, also after a restart of either side."""
    return f"trine:{state_id}/{handle.job_id}/{handle.epoch}"


def job_name(state_id: str) -> str:
    """All jobs of one state directory have it, so that one question answers for all of them."""
    return f"trine-{state_id}"


def components(placement: Placement, nodes: Mapping[str, SlurmNode], wanted: Resources) -> list[Component]:
    """What to ask for, in the order of the placement. ``LaunchRefused`` if Slurm does not have it."""
    found: dict[tuple[str, int, int, bool], list[str]] = {}
    for name, gpus in placement:
        node = nodes.get(name)
        if node is None or max(gpus) >= node.gpus:
            raise LaunchRefused(f"Slurm has no GPU {max(gpus)} on {name} any more", passing=True)
        found.setdefault(_request(node, gpus, wanted), []).append(name)
    return [Component(tuple(names), *request) for request, names in found.items()]


def _request(node: SlurmNode, gpus: Sequence[int], wanted: Resources) -> tuple[str, int, int, bool]:
    if not node.gres:
        return f"gpu:{node.gpus}", node.cpus, 0, True
    cpus = node.cpus // node.gpus if wanted.cpus_per_gpu is None else wanted.cpus_per_gpu
    memory = node.memory_mib // node.gpus if wanted.memory_per_gpu_mib is None else wanted.memory_per_gpu_mib
    gres = ",".join(f"gpu:{node.gres[gpu]}:1" for gpu in sorted(gpus))
    return gres, max(cpus * len(gpus), 1), memory * len(gpus), False


def sbatch_arguments(parts: Sequence[Component], wanted: Resources, state_id: str, handle: Handle) -> list[str]:
    """Everything but the script."""
    arguments = ["--output=/dev/null", "--error=/dev/null", "--input=/dev/null", "--chdir=/", "--export=ALL"]
    for i, part in enumerate(parts):
        arguments += [":"] if i else []
        arguments += _component_arguments(part, wanted)
        arguments += [f"--job-name={job_name(state_id)}", f"--comment={comment(state_id, handle)}", "--no-requeue"]
    return arguments


def _component_arguments(part: Component, wanted: Resources) -> list[str]:
    count = len(part.nodes)
    return [
        *([f"--partition={wanted.partition}"] if wanted.partition else []),
        *([f"--account={wanted.account}"] if wanted.account else []),
        *wanted.options,
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(part.nodes)}",
        f"--gres={part.gres}",
        f"--cpus-per-task={part.cpus}",
        f"--mem={part.memory_mib}M" if part.memory_mib else "--mem=0",
        *(["--exclusive"] if part.whole else []),
    ]


def step_arguments(parts: Sequence[Component]) -> list[str]:
    """``srun`` inside such a job: one task on every node of it. Parts end with 0 unless they are killed, and then the
    others end, too.

    The number of cores is said again: since 22.05 a step does not take it over from its job."""
    common = ["--kill-on-bad-exit=1", "--wait=0", "--mpi=none", "--cpu-bind=none", "--export=ALL", "--input=none"]
    if len(parts) == 1:
        count = len(parts[0].nodes)
        sizes = [f"--nodes={count}", f"--ntasks={count}", "--ntasks-per-node=1", f"--cpus-per-task={parts[0].cpus}"]
        return ["srun", *common, *sizes]
    return ["srun", *common, "--het-group=" + ",".join(map(str, range(len(parts))))]


def overlap_arguments(allocation: str, nodes: Sequence[str], name: str) -> list[str]:
    """``srun`` into an allocation that the user has already: the step takes no resources away from other steps."""
    return [
        *("srun", f"--jobid={allocation}", "--overlap", f"--job-name={name}", "--kill-on-bad-exit=1", "--wait=0"),
        *("--mpi=none", "--cpu-bind=none", "--export=ALL", "--input=none", f"--nodes={len(nodes)}"),
        *(f"--ntasks={len(nodes)}", "--ntasks-per-node=1", f"--nodelist={','.join(nodes)}"),
    ]


def leader_command(python: str, run_dir: str, step: Sequence[str]) -> list[str]:
    """Leads the attempt in ``run_dir``: one step of Slurm starts its parts, on every node the one of that node."""
    part = boot("trine.executor.attempt.part", python, run_dir, "--node-from", "SLURMD_NODENAME")
    return boot("trine.executor.attempt.leader", python, run_dir, "--", *step, *part)


def batch_script(run_dir: str, log: str, leader: Sequence[str]) -> str:
    """Runs the leader on the first node of the job, if the directory of the attempt is visible there."""
    log_path, quoted = shlex.quote(log), shlex.quote(run_dir)
    return "\n".join(
        [
            "#!/bin/sh",
            f"test -d {quoted} || exit {NOT_VISIBLE_RC}",
            f"exec {shlex.join(leader)} >>{log_path} 2>&1",
            "",
        ]
    )
