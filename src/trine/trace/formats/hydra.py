"""Hydra's cases: jobs of one GPU with a run time for every GPU type, a column each, and deadlines."""

from __future__ import annotations

from trine.core.errors import InputError
from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout, Likeness
from trine.trace.source import FirstLine

KEYS = ("job_name", "norm_job_submit_time", "ddl")


class Hydra(Format):
    name = "hydra"
    title = "Hydra, deadlines on several GPU types"
    source = "github.com/iscas-system/Hydra, cases/*.csv"
    units = (
        "seconds; one GPU per job; every other named column is the run time on that GPU type, of which the fastest is "
        "taken (speeds by type need a throughput table); `ddl` is absolute, `inf` means none"
    )
    layouts = (Layout(KEYS),)
    examples = (
        ",job_name,norm_job_submit_time,ddl,A100,V100,GTX2080Ti\n"
        "0,a1,0,inf,1000.0,1500.0,2600.0\n1,b2,30,9000.0,5400.0,8200.0,10300.0\n",
        ",job_name,norm_job_submit_time,T4,P100,V100,ddl\n0,a1,0,8,4,4,9\n1,b2,1,6,5,2,20\n",
    )

    def detects(self, sample: FirstLine) -> bool:
        return set(KEYS) <= set(sample.fields)

    def columns(self, sample: FirstLine) -> dict[str, int]:
        super().columns(sample)
        if not _types(sample):
            raise InputError(sample.where, "no column of run times", "a column for every GPU type (format 'hydra')")
        return {name: position for position, name in enumerate(sample.fields) if name}

    def likeness(self, sample: FirstLine) -> Likeness:
        # Columns that it does not name are GPU types, so only its own count.
        found = [key for key in KEYS if key in sample.fields]
        missing = ",".join(key for key in KEYS if key not in found)
        return Likeness(len(found) / len(KEYS) / 2, f"also {missing} (closest format: {self.name})")

    def draft(self, row: Row) -> Draft:
        return Draft(
            id=row.text("job_name"),
            submit_s=row.number("norm_job_submit_time"),
            gpus=1.0,
            duration_s=min(row.number(name) for name in row.columns if name not in KEYS),
            deadline_s=row.limit_or_none("ddl"),
        )


def _types(sample: FirstLine) -> list[str]:
    return [name for name in sample.fields if name and name not in KEYS]
