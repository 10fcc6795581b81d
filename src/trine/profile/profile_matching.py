"""Matches profiles with clusters: which profiled GPU is which GPU, by id, by node name, or by order.

``load_any`` is the one way in for ``--variability``: our JSON profile or a CSV table, whichever the file is.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.inputs.text_file import read_text
from trine.inputs.variability import WHAT as CSV_WHAT
from trine.inputs.variability import load_variability
from trine.perf.variability import VariabilityTable
from trine.profile.profile_json import load_profile
from trine.profile.variability_profile import ProfiledGpu, VariabilityProfile

_WHERE = "profile"
_SHOWN = 5
"""GPUs named in a note; the others are counted."""


def load_any(path: str | Path, cluster: Cluster, classes: Iterable[str] = ()) -> tuple[VariabilityTable, list[str]]:
    """The slowdowns in ``path`` for the GPUs of ``cluster``, and notes on what had to be assumed.

    ``classes`` are those of the jobs, if known: those without a profile are then noted.
    """
    if not read_text(path, f"a variability profile (JSON) or {CSV_WHAT}").lstrip().startswith("{"):
        return load_variability(path, cluster), []
    profile = load_profile(path)
    try:
        return table_for(profile, cluster, classes)
    except InputError as error:
        raise InputError(str(path), error.found, error.expected, error.field) from None


def table_for(
    profile: VariabilityProfile, cluster: Cluster, classes: Iterable[str] = ()
) -> tuple[VariabilityTable, list[str]]:
    """The slowdowns of the GPUs of ``cluster`` and notes. What was not measured counts as a median GPU (1.0).

    ``classes`` that the profile does not know get the values of the most sensitive class.
    """
    gpus, notes = _matched(profile, cluster)
    slowdowns = {c: _values(gpus, c, cluster.gpu_count) for c in sorted(profile.classes)}
    for c in slowdowns:
        missing = [i for i in range(cluster.gpu_count) if i not in gpus or c not in gpus[i].classes]
        if missing:
            notes.append(f"class {c}: {_gpus(missing, cluster)} not measured, taken as median (1.0)")
    first = min(slowdowns)
    for c in sorted(set(classes) - set(slowdowns)):
        slowdowns[c] = slowdowns[first]
        notes.append(f"class {c} has no profile: the slowdowns of class {first}, the most sensitive, are used")
    return VariabilityTable(cluster.gpu_count, slowdowns), notes


Matched = dict[int, ProfiledGpu]


def _values(gpus: Matched, app_class: str, count: int) -> tuple[float, ...]:
    known = {i: gpu.classes[app_class].slowdown for i, gpu in gpus.items() if app_class in gpu.classes}
    return tuple(known.get(i, 1.0) for i in range(count))


def _gpus(ids: list[int], cluster: Cluster) -> str:
    """``GPU 3 is`` or ``6 of 64 GPUs (3, 7, 9, 11, 12 ...) are``."""
    if len(ids) == 1:
        return f"GPU {ids[0]} is"
    if len(ids) == cluster.gpu_count:
        return f"all {len(ids)} GPUs are"
    shown = ", ".join(map(str, ids[:_SHOWN])) + (" ..." if len(ids) > _SHOWN else "")
    return f"{len(ids)} of {cluster.gpu_count} GPUs ({shown}) are"


def _matched(profile: VariabilityProfile, cluster: Cluster) -> tuple[Matched, list[str]]:
    """Profiled GPUs by GPU id of the cluster."""
    if all(re.fullmatch("[0-9]{1,9}", gpu.name) for gpu in profile.gpus):
        return _by_id(profile, cluster), []
    index = {node.name: i for i, node in enumerate(cluster.nodes)}
    nodes = [_node_of(gpu, index) for gpu in profile.gpus]
    if any(node is not None for node in nodes):
        return _by_node(profile, nodes, cluster)
    return _by_order(profile, cluster)


def _by_id(profile: VariabilityProfile, cluster: Cluster) -> Matched:
    labels = [node.name for node in cluster.nodes]
    if not {gpu.node for gpu in profile.gpus} <= {"", *labels}:
        labels = [str(i) for i in range(len(labels))]
    found: Matched = {}
    for gpu in profile.gpus:
        i = int(gpu.name)
        if i >= cluster.gpu_count:
            raise _other_gpus(f"GPU {gpu.name}", f"ids from 0 to {cluster.gpu_count - 1}, those of the cluster")
        expected = labels[cluster.node_of[i]]
        if gpu.node not in ("", expected):
            raise _other_gpus(f"GPU {i} on node {gpu.node!r}", f"node {expected!r}, as in the cluster")
        if i in found:
            raise _other_gpus(f"GPU {i} twice", "each GPU once")
        found[i] = gpu
    return found


def _node_of(gpu: ProfiledGpu, index: dict[str, int]) -> int | None:
    """Index of the node of the cluster that the GPU is on, by name."""
    if gpu.node in index:
        return index[gpu.node]
    prefix = re.fullmatch(r"(.+)[-:/.]\D*[0-9]+", gpu.name)
    return index.get(prefix[1]) if prefix else None


def _by_node(profile: VariabilityProfile, nodes: list[int | None], cluster: Cluster) -> tuple[Matched, list[str]]:
    """GPUs by the name of their node; inside the node by the number after its name, or by order."""
    by_node: dict[int, list[ProfiledGpu]] = defaultdict(list)
    for gpu, node in zip(profile.gpus, nodes, strict=True):
        if node is not None:
            by_node[node].append(gpu)
    found: Matched = {}
    for node, gpus in by_node.items():
        found |= _inside_node(node, gpus, cluster)
    elsewhere = nodes.count(None)
    return found, [f"{elsewhere} GPUs of the profile are on other nodes and not used"] if elsewhere else []


def _inside_node(node: int, gpus: list[ProfiledGpu], cluster: Cluster) -> Matched:
    name, size, known = cluster.nodes[node].name, cluster.nodes[node].gpus, cluster.nodes[node].gpu_indices
    numbers = [re.fullmatch(rf"{re.escape(name)}[-:/.]\D*([0-9]{{1,9}})", gpu.name) for gpu in gpus]
    places = [int(n[1]) for n in numbers if n]
    if len(places) < len(gpus) or len(set(places)) < len(places):
        places = list(known[: len(gpus)])
        if len(gpus) != size:
            raise _other_gpus(f"{len(gpus)} GPUs on node {name!r}", f"{size}, as in the cluster")
    if not set(places) <= set(known):
        numbers_in_use = f"0 to {size - 1}" if known == tuple(range(size)) else ", ".join(map(str, known))
        raise _other_gpus(f"GPU number {max(places)} on node {name!r}", f"numbers from {numbers_in_use}")
    return {cluster.first_gpu[node] + known.index(place): gpu for place, gpu in zip(places, gpus, strict=True)}


def _by_order(profile: VariabilityProfile, cluster: Cluster) -> tuple[Matched, list[str]]:
    """Names that say nothing to the cluster: only a profile of just as many GPUs on equal nodes can be meant."""
    count = len(profile.gpus)
    if count != cluster.gpu_count:
        expected = (
            f"a profile of the cluster's {cluster.gpu_count} GPUs "
            "(to simulate other GPUs with these measurements, use trine profile draw)"
        )
        raise _other_gpus(f"{count} GPUs with names that the cluster does not know ({profile.gpus[0].name})", expected)
    nodes = [gpu.node for gpu in profile.gpus]
    if all(nodes):
        sizes = [nodes.count(node) for node in dict.fromkeys(nodes)]
        expected_sizes = [node.gpus for node in cluster.nodes]
        if sizes != expected_sizes:
            raise _other_gpus(f"nodes of {_sizes(sizes)} GPUs", f"nodes of {_sizes(expected_sizes)}, as in the cluster")
    note = f"the names in the profile are not those of the cluster: {count} GPUs matched by order"
    return dict(enumerate(profile.gpus)), [note]


def _sizes(sizes: list[int]) -> str:
    return ", ".join(map(str, sizes[:_SHOWN])) + (" ..." if len(sizes) > _SHOWN else "")


def _other_gpus(found: str, expected: str) -> InputError:
    return InputError(_WHERE, f"found {found}", expected, "gpu")
