"""A sample of Philly's run times and sizes, without arrivals: they are drawn."""

from __future__ import annotations

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout


class PhillyDistribution(Format):
    name = "philly-distribution"
    title = "Philly job distribution"
    source = "github.com/stanford-futuredata/gavel, philly_job_distribution (MIT)"
    units = "`duration_s` seconds; no arrivals: Poisson, `jobs_per_h` and `seed`; ids are row numbers from 0"
    aliases = ("philly-job-distribution",)
    layouts = (Layout(("duration_s", "num_gpus")),)
    examples = ("duration_s,num_gpus\r\n860662.0,1\r\n7944.0,4\r\n7944.0,4\r\n",)
    identity = "none"

    def draft(self, row: Row) -> Draft:
        return Draft(
            id=str(row.number_in_file),
            submit_s=None,
            gpus=row.number("num_gpus"),
            duration_s=row.number("duration_s"),
        )
