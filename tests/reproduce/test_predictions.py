"""Predictions scored on a small drawn workload."""

from trine.inputs.yaml_reader import read_mapping
from trine.reproduce.predictions import _FIGURES, _judged, _overview, replays


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
