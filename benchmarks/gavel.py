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


def overloaded(data: Path, window: str) -> Summary:
    """Max-min in pairs at 4 jobs/h, more than the cluster can serve: jobs pile up until those of ``window`` are done."""
    preset = load_preset("gavel-continuous-multiple")
    told = preset.settings | {"compat": "none", "space_sharing": True, "workload.jobs_per_h": 4, "window": window}
    scenario = Scenario(
        preset.cluster,
        preset.policy,
        preset.placement,
        workload=preset.workload,
        throughputs=str(data / SPEEDS),
        values=told,
    )
    return run(scenario, keep_segments=False).summary
