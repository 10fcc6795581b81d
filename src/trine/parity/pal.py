"""The published simulator of PAL (SC'24), where it differs from what trine does by default.

Each rule here replaces one strategy of the view, the planner or the placement; ``Compat`` says which are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from trine.engine.planner import PlannerRules
from trine.parity.flags import Compat
from trine.parity.seeded_kmeans import seeded_kmeans
from trine.perf.bins import Bins, outliers
from trine.placement.base import Placement
from trine.placement.pm_first import PmFirst
from trine.policy.view import Floats, RemainingTime, View, remaining_by_work


def remaining_by_wall_time(view: View) -> Floats:
    """Ideal run time less the wall seconds run, whatever work was really done in them (``compat.wall_attained``)."""
    return view.ideal_s - view.attained_s


def published_bins(slowdowns: Sequence[float]) -> Bins:
    """K-means with K = 2 + number of outliers, over all GPUs; score = centre over the median of the centres.

    By the seeded iteration of the published code, whose local optimum is not always the best.
    """
    return _published_bins(tuple(slowdowns))


@lru_cache(maxsize=256)
def _published_bins(slowdowns: tuple[float, ...]) -> Bins:
    """Kept: the runs of a sweep have the same chips."""
    values = np.asarray(slowdowns, dtype=np.float64)
    outlier = outliers(values)
    clusters = min(2 + int(outlier.sum()), len(np.unique(values)))
    labels, centres = seeded_kmeans(values, clusters)
    scores = centres / np.median(centres)
    return Bins(tuple(labels.tolist()), tuple(scores.tolist()), tuple(outlier.tolist()))


def remaining_time(compat: Compat) -> RemainingTime:
    """The rule by which views compute the remaining time of jobs."""
    return remaining_by_wall_time if compat.wall_attained else remaining_by_work


def planner_rules(compat: Compat) -> PlannerRules:
    """What the planner does with stops and moves."""
    return PlannerRules(keep_evictions=compat.keep_evictions, weigh_moves=not compat.free_moves)


def configured(placement: Placement, compat: Compat) -> Placement:
    """The placement, with the published rules of PM-First and PAL where they are wanted."""
    chooses = placement.chooses
    if isinstance(chooses, PmFirst):
        if compat.pal_bins:
            chooses.score_bins = published_bins
        chooses.spans_nodes_by_score = compat.pal_multi_node
    return placement
