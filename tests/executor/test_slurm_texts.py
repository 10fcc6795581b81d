"""What Slurm writes and what it is told, without a Slurm: nodes, GPUs, racks, allocations, submissions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.executor.attempt.spec import LaunchRefused
from trine.executor.base import Handle
from trine.executor.slurm.attempt import handle_of
from trine.executor.slurm.inventory import (
    Occupancy,
    SlurmNode,
    described_nodes,
    expand_hosts,
    gpu_types,
    parse_nodes,
    types_by_index,
)
from trine.executor.slurm.pilot import granted_gpus
from trine.executor.slurm.submission import (
    Resources,
    batch_script,
    comment,
    components,
    sbatch_arguments,
    step_arguments,
)

_LINE = (
    "NodeName=node1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=1 CPUEfctv=64 CPUTot=64 CPULoad=2.50 "
    "AvailableFeatures=(null) Gres={gres} GresDrain=N/A GresUsed={used} NodeAddr=10.0.0.7 NodeHostName=vm "
    "OS=Linux 6.1 #1 SMP @0  RealMemory=64000 AllocMem=0 State={state} Partitions=main  CfgTRES=cpu=64,mem=62.50G "
    "ExtSensorsTemp=n/s{reason}"
)
_TYPED = "gpu:v100_0:1(S:0),gpu:v100_1:1(S:0)"
_USED = "gpu:v100_0:0(IDX:N/A),gpu:v100_1:1(IDX:1)"


def line(gres: str = _TYPED, used: str = _USED, state: str = "MIXED", reason: str = "") -> str:
    return _LINE.format(gres=gres, used=used, state=state, reason=reason)


def node(name: str = "n0", gres: tuple[str, ...] = ("v100_0", "v100_1"), used: tuple[int, ...] = ()) -> SlurmNode:
    return SlurmNode(name, name, "v100", gres, 2, 64, 64_000, True, True, "", frozenset(used))


@pytest.mark.parametrize(
    ("hosts", "names"),
    [
        ("node1", ["node1"]),
        ("node[1-3,07],gate", ["node1", "node2", "node3", "node07", "gate"]),
        ("a[08-10]b", ["a08b", "a09b", "a10b"]),
        ("r[0-1]n[2-3]", ["r0n2", "r0n3", "r1n2", "r1n3"]),
        ("", []),
        ("(null)", []),
    ],
)
def test_lists_of_hosts_are_written_out(hosts: str, names: list[str]) -> None:
    assert expand_hosts(hosts) == names


def test_types_that_end_with_the_index_name_single_gpus() -> None:
    assert types_by_index(["g1", "g0"]) == ("g0", "g1")
    assert types_by_index(["v100_0", "v100_1", "v100_2"]) == ("v100_0", "v100_1", "v100_2")
    assert (
        types_by_index(["a100_1", "a100_2"]) == types_by_index(["a0", "b1"]) == types_by_index(["h200", "h200"]) == ()
    )
    assert gpu_types("gpu:v100:4(S:0-1),shard:8,gpu:2") == [("v100", 4), ("", 2)]


def test_a_node_is_read_with_its_gpus_and_who_uses_them() -> None:
    (found,) = parse_nodes(line())
    assert (found.name, found.address, found.gpu_type, found.gpus) == ("node1", "10.0.0.7", "v100", 2)
    assert (found.gres, found.used) == (("v100_0", "v100_1"), frozenset({1}))
    assert (found.cpus, found.memory_mib, found.up, found.open) == (64, 64_000, True, True)


@pytest.mark.parametrize(
    ("state", "reason", "up", "opened", "why"),
    [
        ("IDLE+DRAIN", " Reason=fan is loud = very [root@2026-11-17T22:00:00]", True, False, "fan is loud = very"),
        ("DOWN*", " Reason=Not responding [slurm@2026-11-17T22:00:00]", False, True, "Not responding"),
        ("IDLE*", "", False, True, "Slurm says IDLE*"),
        ("MIXED+DRAIN", " Reason=Duplicate jobid [slurm@2026-11-17T22:00:00]", True, False, "Duplicate jobid"),
        ("IDLE+CLOUD+POWERED_DOWN", "", False, True, "Slurm says IDLE+CLOUD+POWERED_DOWN"),
        ("IDLE", " Reason=old news [root@2026-11-17T22:00:00]", True, True, ""),
    ],
)
def test_whether_a_node_takes_jobs_and_why_not(state: str, reason: str, up: bool, opened: bool, why: str) -> None:
    (found,) = parse_nodes(line(state=state, reason=reason))
    assert (found.up, found.open, found.reason) == (up, opened, why)
    info = found.info()
    assert (info.up, info.schedulable, info.reason) == (up, up and opened, why)


@pytest.mark.parametrize(
    ("gres", "model"),
    [("gpu:v100:1", "v100"), ("gpu:v100_0:1", "v100"), ("gpu:g0:1", "gpu"), ("gpu:h100:1", "h100"), ("gpu:1", "gpu")],
)
def test_the_type_of_a_single_gpu_is_read_off_its_gres(gres: str, model: str) -> None:
    (found,) = parse_nodes(line(gres=gres, used=""))
    assert (found.gpu_type, found.gpus) == (model, 1)


def test_without_a_type_per_gpu_only_whole_nodes_are_told_apart() -> None:
    (found,) = parse_nodes(line(gres="gpu:a100:4", used="gpu:a100:2(IDX:0-1)"))
    assert (found.gres, found.gpu_type, found.gpus) == ((), "a100", 4)
    assert found.used == frozenset(range(4)), "a job of somebody holds a part of it"
    assert parse_nodes(line(gres="(null)", used="")) == [], "no GPUs, no node of ours"


def test_a_node_of_two_gpu_types_is_bad_input() -> None:
    with pytest.raises(InputError, match=r"node node1 has GPUs of types a100, v100; expected nodes with GPUs of one"):
        parse_nodes(line(gres="gpu:a100:2,gpu:v100:2"))


def test_a_cluster_file_chooses_nodes_and_must_agree_with_slurm() -> None:
    found = [node("n0"), node("n1")]
    (chosen,) = described_nodes(found, Cluster((Node("n1", 2, "h100", "r7"),)))
    assert (chosen.name, chosen.gpu_type, chosen.rack) == ("n1", "h100", "r7")
    with pytest.raises(InputError, match="unknown node of the Slurm partition 'n2'"):
        described_nodes(found, Cluster((Node("n2", 2, "v100"),)))
    with pytest.raises(InputError, match="node n0 has 2 GPUs in Slurm; expected 2 GPUs, not 4"):
        described_nodes(found, Cluster((Node("n0", 4, "v100"),)))


def test_gpus_of_others_are_withheld_when_seen_twice_and_ours_never() -> None:
    occupancy, ours = Occupancy(), Handle("7", 1)
    occupancy.note(ours, [("n0", 0)])

    def withheld(*nodes: SlurmNode, held: set[Handle]) -> list[list[int]]:
        infos = occupancy.infos(nodes, held)
        return [[gpu.index for gpu in info.gpus if gpu.withheld] for info in infos]

    busy = node(used=(0, 1))
    assert withheld(busy, held={ours}) == [[]], "it may have changed hands between the two questions"
    assert withheld(busy, held={ours}) == [[1]]
    assert withheld(busy, held=set()) == [[1]]
    assert withheld(busy, held=set()) == [[0, 1]], "Slurm holds for somebody what is ours no longer"
    assert withheld(node(), held=set()) == [[]]


def test_the_rest_of_a_whole_node_is_withheld_while_a_job_of_ours_has_it() -> None:
    occupancy, ours = Occupancy(), Handle("7", 1)
    occupancy.note(ours, [("n0", 0)])
    whole = node(gres=(), used=(0, 1))
    for _ in range(2):
        (info,) = occupancy.infos([whole], {ours})
    assert [bool(gpu.withheld) for gpu in info.gpus] == [False, True]
    assert "as a whole" in info.gpus[1].withheld


def test_nodes_on_which_a_job_takes_the_same_are_one_component() -> None:
    nodes = {name: node(name) for name in ("n0", "n1", "n2")}
    alike = components((("n0", (1,)), ("n1", (1,))), nodes, Resources())
    assert [(part.nodes, part.gres, part.cpus, part.memory_mib) for part in alike] == [
        (("n0", "n1"), "gpu:v100_1:1", 32, 32_000)
    ]
    parts = components((("n0", (1,)), ("n1", (1, 0)), ("n2", (1,))), nodes, Resources(cpus_per_gpu=3))
    assert [(part.nodes, part.gres, part.cpus) for part in parts] == [
        (("n0", "n2"), "gpu:v100_1:1", 3),
        (("n1",), "gpu:v100_0:1,gpu:v100_1:1", 6),
    ]
    arguments = sbatch_arguments(parts, Resources("main", "physics", ("--qos=high",)), "ab", Handle("7", 2))
    first, second = arguments[: arguments.index(":")], arguments[arguments.index(":") + 1 :]
    for half in (first, second):
        assert {"--partition=main", "--account=physics", "--qos=high", "--no-requeue"} <= set(half)
        assert "--comment=trine:ab/7/2" in half
    assert "--nodelist=n0,n2" in first and "--nodelist=n1" in second
    assert step_arguments(parts)[-1] == "--het-group=0,1"
    assert "--ntasks=2" in step_arguments(alike)


def test_gpus_that_slurm_has_no_longer_are_refused_for_now() -> None:
    for nodes in ({}, {"n0": replace(node(), gpus=1)}):
        with pytest.raises(LaunchRefused, match="Slurm has no GPU 1 on n0 any more") as refused:
            components((("n0", (1,)),), nodes, Resources())
        assert refused.value.passing


def test_a_whole_node_is_asked_for_where_gpus_cannot_be_named() -> None:
    (part,) = components((("n0", (1,)),), {"n0": node(gres=())}, Resources())
    assert (part.gres, part.cpus, part.whole) == ("gpu:2", 64, True)
    assert {"--exclusive", "--mem=0"} <= set(sbatch_arguments([part], Resources(), "ab", Handle("7", 2)))


def test_an_attempt_is_known_by_its_comment_and_others_are_not() -> None:
    mine = comment("ab", Handle("a/b", 3))
    assert handle_of(mine, "trine:ab/") == Handle("a/b", 3)
    assert handle_of(mine, "trine:cd/") is None
    assert handle_of("trine:ab/7", "trine:ab/") is None and handle_of("", "trine:ab/") is None


def test_nothing_in_a_path_is_read_by_the_shell() -> None:
    script = batch_script("/x/$(id) 'y'", "/x/log", ["python", "a b"])
    assert script.startswith("#!/bin/sh\n") and "test -d '/x/$(id) '\"'\"'y'\"'\"'' ||" in script
    assert "exec python 'a b' >>/x/log" in script


def test_an_allocation_lists_the_gpus_that_are_part_of_it() -> None:
    told = (
        "JobId=1 JobState=RUNNING NodeList=node[1-3] JOB_GRES=gpu:v100:5   Nodes=node[1-2] CPU_IDs=0-1 Mem=0 "
        "GRES=gpu:v100:2(IDX:0,3)   Nodes=node3 CPU_IDs=0 Mem=0 GRES=gpu:v100_1:1(IDX:1) MinCPUsNode=1"
    )
    assert granted_gpus(told) == {"node1": (0, 3), "node2": (0, 3), "node3": (1,)}
