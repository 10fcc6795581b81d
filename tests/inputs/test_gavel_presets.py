"""The presets of Gavel's experiments name things that exist."""

from __future__ import annotations

import pytest

from trine.assembly.settings import resolve
from trine.inputs.cluster import load_cluster
from trine.inputs.preset import load_preset, preset_names
from trine.parity.flags import Compat
from trine.trace.generate import generate

GAVEL = [name for name in preset_names() if name.startswith("gavel-")]
every = pytest.mark.parametrize("name", GAVEL)
QUIRKS = {
    *("idle_until_reset", "fifo_last_type", "finalise_all", "charge_gap", "remainder_failure", "pair_cost_twice"),
    *("makespan_bisection", "round_ends_early", "every_pair", "draws_stand", "any_type", "centre_of_optima"),
}


def test_all_experiments_are_there() -> None:
    wanted = ("physical", "continuous-single", "continuous-multiple", "static", "hierarchical")
    assert {f"gavel-{name}" for name in wanted} <= set(GAVEL)


@every
def test_settings_policies_and_quirks_are_known(name: str) -> None:
    preset = load_preset(name)
    assert set(preset.authors) >= QUIRKS and set(preset.authors) <= set(Compat.names())
    for policy in preset.policies:
        found = resolve(policy, preset.placement, preset.settings, preset.authors, preset.policies)
        assert found.run.round_s == 360 and all(getattr(found.compat, quirk) for quirk in QUIRKS)


@every
def test_the_workload_fits_the_cluster(name: str) -> None:
    preset = load_preset(name)
    cluster = load_cluster(preset.cluster)
    assert set(cluster.types) == {"k80", "p100", "v100"}
    if not preset.workload:
        assert preset.format == "gavel"
        return
    told = resolve(preset.policy, preset.placement, preset.settings, preset.authors)
    jobs = generate(
        preset.workload, jobs=told.workload.jobs, seed=0, gpus=cluster.gpu_count, jobs_per_h=told.workload.jobs_per_h
    )
    assert max(job.gpus for job in jobs) <= min(cluster.gpus_by_type.values())
    last = int((told.run.window or "0:0").partition(":")[2])
    assert last <= len(jobs)
