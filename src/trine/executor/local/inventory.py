"""Which nodes and GPUs there are: this machine as the NVIDIA driver lists it, or virtual nodes on it.

No driver means no GPUs, never an error, and a question that the driver cannot answer is left open."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Mapping, Sequence

from trine.core.cluster import Cluster, Node
from trine.core.errors import InputError
from trine.executor.base import NodeGpu, NodeInfo
from trine.profile.nvml import open_nvml

MAX_VIRTUAL_GPUS = 1_000_000
_CHOICE = "indices or UUIDs of GPUs that the driver lists, separated by commas; or unset it to use all"
EXAMPLES = "'4x2' (nodes x GPUs per node) or 'v100=2x2,k80=1x4'"

_PART = re.compile(r"(?:([A-Za-z0-9][\w.+-]*)=)?([0-9]{1,7})[xX]([0-9]{1,7})")
_MODEL = re.compile(r"\b([A-Z]{1,3} ?\d{1,4}(?:s|gb)?)\b", re.IGNORECASE)
_BRANDS = re.compile(r"\b(nvidia|tesla|quadro|geforce|graphics|device)\b", re.IGNORECASE)


def discover(name: str = "", environ: Mapping[str, str] = os.environ) -> list[NodeInfo]:
    """This machine with its GPUs as one node; no node at all where there is no GPU.

    As for every CUDA program, ``CUDA_VISIBLE_DEVICES`` says which GPUs are meant. They keep the driver's indices.
    """
    gpus = chosen_gpus(driver_gpus(), environ.get("CUDA_VISIBLE_DEVICES"))
    if not gpus:
        return []
    name = name or socket.gethostname().partition(".")[0]
    return [NodeInfo(name, gpus, cpu_count(), memory_bytes(), {"rack": "rack0"})]


def virtual_nodes(spec: str, where: str = "--gpus") -> list[NodeInfo]:
    """Nodes that exist by name only, all on this machine: ``4x2``, ``v100=2x2,k80=1x4``."""
    return nodes_of(parse_virtual(spec, where))


def parse_virtual(spec: str, where: str = "--gpus") -> Cluster:
    """The cluster that ``spec`` describes; nodes are called node0, node1 ..."""
    parts = [_parse_part(part, where) for part in spec.strip().split(",")]
    kinds = [kind for kind, _, _ in parts]
    if len(set(kinds)) < len(kinds) or ("" in kinds and len(kinds) > 1):
        raise InputError(where, f"found {spec!r}", "every part with a GPU type of its own, as in 'v100=2x2,k80=1x4'")
    if (total := sum(nodes * gpus for _, nodes, gpus in parts)) > MAX_VIRTUAL_GPUS:
        raise InputError(where, f"{total:,} GPUs", f"at most {MAX_VIRTUAL_GPUS:,} GPUs in all")
    shapes = [(kind, gpus) for kind, nodes, gpus in parts for _ in range(nodes)]
    return Cluster(tuple(Node(f"node{i}", gpus, kind or "gpu") for i, (kind, gpus) in enumerate(shapes)))


def _parse_part(part: str, where: str) -> tuple[str, int, int]:
    match = _PART.fullmatch(part.strip())
    if match is None:
        raise InputError(where, f"found {part!r}" if part.strip() else "found nothing", EXAMPLES)
    kind, nodes, gpus = match[1] or "", int(match[2]), int(match[3])
    if nodes < 1 or gpus < 1:
        raise InputError(where, f"found {part!r}", "at least 1 node and 1 GPU per node")
    return kind, nodes, gpus


def nodes_of(cluster: Cluster) -> list[NodeInfo]:
    """Virtual nodes in the shape of a cluster; they share the cores and the memory of this machine evenly."""
    count = max(len(cluster.nodes), 1)
    cpus, memory = max(cpu_count() // count, 1), memory_bytes() // count
    return [
        NodeInfo(node.name, _virtual_gpus(node), cpus, memory, {"rack": node.rack}, virtual=True)
        for node in cluster.nodes
    ]


def _virtual_gpus(node: Node) -> tuple[NodeGpu, ...]:
    return tuple(
        NodeGpu(i, node.gpu_type, f"virtual-{node.name}-{i}", f"virtual {node.gpu_type}") for i in range(node.gpus)
    )


def driver_gpus() -> list[NodeGpu]:
    """The GPUs that the driver lists, in PCI bus order."""
    with open_nvml() as nvml:
        listed = [] if nvml is None else nvml.gpus()
    return [NodeGpu(gpu.index, gpu_type(gpu.name), gpu.uuid, gpu.name, gpu.memory_bytes) for gpu in listed]


def chosen_gpus(gpus: Sequence[NodeGpu], wanted: str | None) -> tuple[NodeGpu, ...]:
    """Those that ``CUDA_VISIBLE_DEVICES`` names by index or UUID, by index; all of them where it is not set.

    CUDA itself passes over a wrong entry and all behind it; a scheduler that did would leave GPUs idle unnoticed.
    """
    if wanted is None or not gpus:
        return tuple(gpus)
    named = [_named(gpus, entry.strip()) for entry in wanted.split(",")] if wanted.strip() else []
    if not named:
        raise InputError("CUDA_VISIBLE_DEVICES", "it is set and empty: no GPU is left", _CHOICE)
    return tuple(gpu for gpu in gpus if gpu in named)


def _named(gpus: Sequence[NodeGpu], entry: str) -> NodeGpu:
    if entry.isdecimal():
        found = [gpu for gpu in gpus if gpu.index == int(entry)]
    else:
        found = [gpu for gpu in gpus if entry and gpu.uuid.lower().startswith(entry.lower())]
    if len(found) != 1:
        listed = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus[:16])
        found_words = f"{entry!r} fits {'several GPUs' if found else 'no GPU'} of {listed}"
        raise InputError("CUDA_VISIBLE_DEVICES", found_words, _CHOICE)
    return found[0]


def gpu_type(name: str) -> str:
    """The short name that people and files use for a card: ``v100`` for ``Tesla V100-SXM2-16GB``."""
    plain = _BRANDS.sub(" ", name)
    match = _MODEL.search(plain)
    if match:
        return match[1].lower().replace(" ", "")
    return "-".join(re.findall(r"[a-z0-9]+", plain.lower())) or "gpu"


def cpu_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0))


def memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
