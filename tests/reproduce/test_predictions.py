"""Predictions scored on a small drawn workload."""

import pytest

from trine.forecast.predictions import Interval
from trine.forecast.replay import Foretold
from trine.inputs.yaml_reader import read_mapping
from trine.reproduce.predictions import _FIGURES, _judged, _overview, _range, replays


def test_replays_are_scored_by_policy_and_time_queued_beside_slurms_method() -> None:
    figures = read_mapping(_FIGURES).plain()
    figures["generated"] |= {"jobs": 250, "gpus": 16, "cluster": "2x8", "load": 1.3, "max_gpus": 8}
    figures |= {"policies": ["fifo"], "quick": {"times": 16, "draws": 4}, "least": 5}
    (item,) = replays("", figures, quick=True)
    made = item.run()
    starts = [each for each in made if each.kind == "start"]
    assert len(starts) >= 5 and all(each.real_s >= each.at_s and each.slurm_s is not None for each in starts)
    assert all(each.predicted.low <= each.predicted.median <= each.predicted.high for each in made)
    assert item.run() == made  # the same bytes from the same seed
    assert any(each.drawn is not None for each in made)  # put right by what had happened by then
    checks = _judged(figures, "fifo", [(item, made)]).checks
    assert checks[0].held is not None and checks[-1].band == "not above Slurm's" and not checks[-1].counted
    assert _overview(figures, [(item, made)]).tables[0].rows[0][1] == f"{len(starts):,}"


def test_moments_of_different_replays_at_the_same_time_are_different_moments() -> None:
    """Each shares one fate only with its own: merged, six moments of two traces would count as three."""
    interval = Interval(0.0, 1.0, 2.0)
    made = [
        Foretold("1", "start", 300.0 * at, 0.0, interval, 1.0 if trace == "one" else 9.0, trace=trace)
        for at in range(3)
        for trace in ("one", "other")
    ]
    assert _range(made).startswith(" at 6 moments [") and _range(made[::2]) == " at 3 moments"


@pytest.mark.parametrize("policy", ["las", "srtf"])
def test_jobs_wait_in_replays_of_policies_that_stop_jobs(policy: str) -> None:
    """On fewer GPUs than in other replays; what is judged then is ends, since jobs that come start at once."""
    figures = read_mapping(_FIGURES).plain()
    figures |= {"policies": [policy], "quick": {"with_stops": {"traces": 1, "times": 3, "draws": 2}}}
    (item,) = replays("", figures, quick=True)
    made = item.run()
    assert item.cluster == "1x8" and len({each.job for each in made}) > 8  # more jobs than GPUs
    assert all(each.real_s > each.at_s for each in made)
