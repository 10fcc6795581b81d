"""Random clusters and workloads for property tests: several GPU types, uneven nodes, slow chips, all of it small."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from trine.core.cluster import Cluster, Node
from trine.core.job import Job
from trine.core.plugins import discover
from trine.placement.base import Placement
from trine.policy.base import Policy

POLICIES = sorted(discover("trine.policy", Policy))
PLACEMENTS = [name + suffix for name in sorted(discover("trine.placement", Placement)) for suffix in ("", "-sticky")]


def stable(examples: int) -> settings:
    """The same examples in every run: what fails here fails everywhere."""
    return settings(derandomize=True, database=None, deadline=None, max_examples=examples)


@dataclass(frozen=True)
class Case:
    """A cluster and jobs that fit it."""

    cluster: Cluster
    jobs: list[Job]


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Up to ten GPUs (fewer than it takes for one of them to count as an outlier) of up to two types."""
    sizes = draw(st.lists(st.sampled_from((1, 2, 3, 4)), min_size=1, max_size=4).filter(lambda s: sum(s) <= 10))
    kinds = draw(st.lists(st.sampled_from(("x", "x", "y")), min_size=len(sizes), max_size=len(sizes)))
    nodes = tuple(Node(f"n{i}", s, k, f"r{i % 2}") for i, (s, k) in enumerate(zip(sizes, kinds, strict=True)))
    slow = st.lists(st.sampled_from((1.0, 1.0, 1.1, 1.5)), min_size=sum(sizes), max_size=sum(sizes)).map(tuple)
    scores = draw(st.sampled_from(({}, {"A": draw(slow), "B": draw(slow)})))
    return Cluster(nodes, scores=scores)


@st.composite
def cases(draw: st.DrawFn, most_jobs: int = 9) -> Case:
    cluster = draw(clusters())
    pools = cluster.gpus_by_type
    submits = sorted(draw(st.lists(st.integers(0, 400), min_size=1, max_size=most_jobs)))
    return Case(cluster, [_job(draw, f"j{i}", s, pools) for i, s in enumerate(submits)])


def _job(draw: st.DrawFn, name: str, submit_s: float, pools: dict[str, int]) -> Job:
    wanted = draw(st.sampled_from(((), (), *((kind,) for kind in pools))))
    return Job(
        name,
        submit_s,
        gpus=draw(st.integers(1, max(pools[kind] for kind in wanted or pools))),
        steps=draw(st.integers(1, 300)),
        step_s=draw(st.sampled_from((1.0, 0.3))),
        app_class=draw(st.sampled_from(("", "A", "B"))),
        priority=draw(st.sampled_from((0, 0, 0, 1))),
        gpu_types=wanted,
    )


def times() -> st.SearchStrategy[dict[str, Any]]:
    """How time passes."""
    return st.fixed_dictionaries(
        {
            "event_driven": st.booleans(),
            "finish": st.sampled_from(("exact", "round")),
            "strict": st.sampled_from((None, True, False)),
            "locality_penalty": st.sampled_from((1.0, 1.7)),
        }
    )


def costs() -> st.SearchStrategy[dict[str, Any]]:
    """What stops cost; less than a round, so that everybody gets on."""
    return st.fixed_dictionaries(
        {
            "restore_s": st.sampled_from((0, 5)),
            "migration_s": st.sampled_from((None, 0, 8)),
            "checkpoint_every_s": st.sampled_from((0, 10)),
        }
    )
