"""The Philly trace as a flat table: one row per job, local time stamps."""

from __future__ import annotations

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout


class Philly(Format):
    name = "philly"
    title = "Philly, flat"
    source = "github.com/pkusys/ElasticFlow, from github.com/msr-fiddle/philly-traces (CC-BY-4.0)"
    units = (
        "`timestamp` local date and time, taken as it stands (the hour of the clock change is not corrected) and "
        "counted from the earliest job; `duration` seconds; `cluster` is the group; ids are row numbers from 0"
    )
    aliases = ("philly-flat",)
    layouts = (Layout(("timestamp", "duration", "num_gpus", "gpu_time", "cluster")),)
    examples = (
        "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
        "2017-10-09 06:13:03,2951.0,4,11804.0,6214e9\n2017-10-09 06:13:03,2951.0,4,11804.0,6214e9\n",
    )
    identity = "row"
    absolute_clock = True

    def draft(self, row: Row) -> Draft:
        return Draft(
            id=str(row.number_in_file),
            submit_s=row.timestamp("timestamp"),
            gpus=row.number("num_gpus"),
            duration_s=row.number("duration"),
            group=row.text("cluster"),
        )
