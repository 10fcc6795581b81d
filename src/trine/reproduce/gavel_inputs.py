"""What Gavel's experiments share: the public inputs, the contenders, and how runs and lines are named."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

from trine.inputs.prices import PUBLISHED
from trine.inputs.yaml_reader import read_mapping
from trine.reproduce.experiment import Contender, Inputs, contenders_of, find_root, preset_scenario
from trine.sim.scenario import Scenario

FIGURES = Path(__file__).parent / "gavel.yaml"
PHYSICAL = "traces/philly_vc_gavel/physical_cluster"
CONTENDERS = contenders_of(read_mapping(FIGURES).plain()["contenders"])
"""By the name of the policy in the authors' code."""
AWARE, BLIND, SHARED = "max_min_fairness_perf", "max_min_fairness", "max_min_fairness_packed"
FIFO_AWARE, FIFO_BLIND = "fifo_perf", "fifo"
SMALL_CLUSTER = "v100=12x1,p100=12x1,k80=12x1"
"""A third of the simulated cluster."""
METRICS = {"jct_h": "average JCT h", "makespan_h": "makespan h"}
AXES = {"jct_h": "Average JCT (h)", "makespan_h": "Makespan (h)"}
MODES = {True: "as published", False: "trine"}
"""With the quirks of the authors' code, and without."""
Mode = tuple[str, bool]
"""A policy by its name in the authors' code, and whether it runs with the quirks of that code."""


class GavelData(Inputs):
    """Where the public inputs lie, and what the authors' own code made of them."""

    @classmethod
    def find(cls, folder: str, *given: Any) -> GavelData:
        return cls(find_root(folder, PHYSICAL), *given)

    def physical(self, name: str) -> str:
        return str(self.root / PHYSICAL / f"{name}.trace")

    @property
    def small(self) -> str:
        """1,000 single-GPU jobs, one in 2,700 s on average."""
        return str(self.root / "traces/gavel_generated/single_seed0_lam2700.csv.gz")

    @property
    def multiple(self) -> str:
        """6,000 jobs on 1 to 8 GPUs, one in 1,800 s on average; empty if the file is not at hand."""
        path = self.root / "traces/gavel_generated/multi_seed0_lam1800.csv.gz"
        return str(path) if path.is_file() else ""

    def priced(self, shape: str) -> str:
        """A cluster of this shape at the published spot prices: prices are part of a cluster file."""
        path = self.scratch / f"{shape.replace(',', '_')}.yaml"
        prices = [f"  {gpu_type}: {price}" for gpu_type, price in PUBLISHED["gavel-spot"].items()]
        path.write_text("\n".join([f"shape: {shape}", "prices_per_gpu_hour:", *prices, ""]), encoding="utf-8")
        return str(path)

    def pairs(self, name: str) -> str:
        """The authors' table ``physical_cluster`` or ``simulation`` with the rates of pairs."""
        return str(self.root / f"hardware/gavel_throughputs/{name}_throughputs.json.gz")

    def finishes_s(self, run: str) -> dict[str, float] | None:
        """Finish by job id of a run of the authors' code, of all jobs that ended, if it is at hand."""
        folder = self.root.parent / "reference/gavel"
        for path in (folder / f"{run}.csv", folder / f"{run}.csv.gz"):
            if path.is_file():
                return _finishes_s(path)
        return None


def _finishes_s(path: Path) -> dict[str, float]:
    raw = path.read_bytes()
    text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
    rows = csv.DictReader(text.splitlines())
    return {row["job_id"]: float(row["completion_s"]) for row in rows if row["completion_s"]}


def scenario(preset: str, contender: str | Contender, *, compat: bool, **given: Any) -> Scenario:
    """The contender in the setting of a preset, with the quirks of the authors' code or without; ``given`` are fields
    of the scenario, of which ``values`` come on top of the settings of the preset."""
    chosen = CONTENDERS[contender] if isinstance(contender, str) else contender
    return chosen.on(preset_scenario(preset, compat=compat, **given))


def label(policy: str) -> str:
    return CONTENDERS[policy].label


def label_of(mode: Mode) -> str:
    """Policy and whether with quirks."""
    return f"{label(mode[0])} ({MODES[mode[1]]})"


def listed(values: list[float]) -> str:
    """Loads, as a sentence names them."""
    return ", ".join(f"{x:g}" for x in values)
