"""Share policies on Gavel's continuous workload of gangs: 36 GPUs each of three types, rounds of 360 s."""

from __future__ import annotations

import gzip
import itertools
import tempfile
from pathlib import Path
from typing import Any

from trine.core.result import Summary
from trine.inputs.preset import load_preset
from trine.sim.scenario import Scenario, run

JOBS = 5_500
TRACE = "traces/gavel_generated/multi_seed0_lam1800.csv.gz"
SPEEDS = "hardware/gavel_throughputs/simulation_throughputs.json.gz"


def continuous(data: Path, policy: str, **values: Any) -> Summary:
    """The first jobs of the workload, to the end of the last of them."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "jobs.csv"
        with gzip.open(data / TRACE, "rt") as stream:
            trace.write_text("".join(itertools.islice(stream, JOBS + 1)))
        told = {"round_s": 360} | values
        scenario = Scenario(
            "v100=36x1,p100=36x1,k80=36x1", policy, trace=str(trace), throughputs=str(data / SPEEDS), values=told
        )
        return run(scenario, keep_segments=False).summary


def published(data: Path, workload: str, jobs_per_h: float, **values: Any) -> Summary:
    """A point of the published load sweeps: max-min in pairs, jobs 4,000 to 5,000 while arrivals go on.

    ``values`` are what a user adds to the preset with ``--set``.
    """
    preset = load_preset(f"gavel-continuous-{workload}")
    added = {"space_sharing": True, "workload.jobs_per_h": jobs_per_h} | values
    scenario = Scenario(
        preset.cluster,
        preset.policy,
        preset.placement,
        workload=preset.workload,
        throughputs=str(data / SPEEDS),
        authors=preset.authors,
        values=preset.settings | added,
    )
    return run(scenario, keep_segments=False).summary
