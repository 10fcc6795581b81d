"""Where Gavel's public inputs lie, and what the authors' own code made of them. Nothing is simulated here."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass
from pathlib import Path

from trine.core.errors import InputError
from trine.inputs.prices import PUBLISHED

PHYSICAL = "traces/philly_vc_gavel/physical_cluster"


@dataclass(frozen=True)
class GavelData:
    """Where the public inputs lie: ``traces/`` and ``hardware/`` in ``root``, ``reference/gavel`` perhaps beside it."""

    root: Path
    scratch: Path
    """A folder for files that only the runs need."""

    @classmethod
    def find(cls, folder: str, scratch: Path) -> GavelData:
        for root in (Path(folder), Path(folder) / "data"):
            if (root / PHYSICAL).is_dir():
                return cls(root, scratch)
        raise InputError("--data", f"no {PHYSICAL} below {folder}", "the folder that holds traces/ and hardware/")

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
