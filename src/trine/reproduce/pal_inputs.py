"""What PAL's experiments share: the public inputs, the published settings, and changes over all traces."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable
from typing import Any

from trine.inputs.text_file import read_text
from trine.reproduce.experiment import Inputs, preset_scenario
from trine.sim.scenario import Scenario

WORKLOADS = tuple(range(1, 9))
"""All eight Sia-Philly traces of the artifact."""
SWEPT = (1, 2, 3)
"""Those of the sweeps by penalty and by draw, for which reference figures exist."""
PUBLISHED_NAMES = {
    "packed-sticky": "Default-Packed-S",
    "packed": "Default-Packed-NS",
    "pm-first": "PMFirst",
    "pal": "PAL",
}
PLACEMENTS = tuple(PUBLISHED_NAMES)
BASELINE = "packed-sticky"
METRICS = {"jct_h": "average JCT", "makespan_h": "makespan", "utilization": "GPUs busy"}


class PalData(Inputs):
    """Where the public inputs lie, and the reference runs."""

    def workload(self, number: int) -> str:
        return str(self.root / f"traces/pal_workloads/philly/workload-{number}.csv")

    @property
    def synergy(self) -> str:
        return str(self.root / "traces/synergy_standin/synergy-standin-jobs.csv.gz")

    def chips(self, gpus: int) -> str:
        return str(self.root / f"hardware/pal_gpu_variability/realised/gpus-{gpus}.csv")

    def records(self, cluster: str) -> str:
        """Measurements of a cluster by application class, to draw chips from."""
        folder = self.root / "hardware/pal_gpu_variability"
        return ",".join(f"{c}={folder / path}" for c, path in self.figures["clusters"]["records"][cluster].items())

    def reference(self, name: str) -> dict[str, tuple[float, float]] | None:
        """Start and finish by job id of a reference run, if it is at hand."""
        folder = self.root.parent / "reference/pal"
        path = next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)
        if path is None:
            return None
        rows = csv.DictReader(read_text(path, "a reference run").splitlines())
        return {row["job_id"]: (float(row["start_s"]), float(row["finish_s"])) for row in rows}


def base_scenario(data: PalData, workload: int, placement: str = BASELINE, **values: Any) -> Scenario:
    """The published setting for one of the Sia-Philly workloads."""
    given = {"trace": data.workload(workload), "variability": data.chips(64)}
    return preset_scenario("pal-sia", compat=True, placement=placement, values=values, **given)


def synergy_scenario(data: PalData, placement: str, policy: str, jobs_per_h: float) -> Scenario:
    """The published setting for the 256-GPU experiment on the stand-in workload."""
    given = {"trace": data.synergy, "variability": data.chips(256), "policy": policy, "placement": placement}
    return preset_scenario("pal-synergy", compat=True, values={"trace.jobs_per_h": jobs_per_h}, **given)


def geomean_change(ours: Iterable[float], base: Iterable[float]) -> float:
    """Percent by which ``ours`` are larger, in the geometric mean."""
    ratios = [a / b for a, b in zip(ours, base, strict=True)]
    return 100 * (math.exp(sum(map(math.log, ratios)) / len(ratios)) - 1)
