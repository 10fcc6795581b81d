"""Helios (SenseTime): one Slurm log per cluster, with jobs that asked for CPUs only and jobs that never ran."""

from __future__ import annotations

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout, observed


class Helios(Format):
    name = "helios"
    title = "Helios"
    source = "github.com/S-Lab-System-Group/HeliosData, cluster_log.csv"
    units = (
        "local date and time, taken as it stands and counted from the earliest job; run time is `end_time` - "
        "`start_time` (`duration` says the same, in seconds); `vc` is the group; `queue` is seconds waited, no name"
    )
    layouts = (
        Layout(
            (
                *("job_id", "user", "vc", "gpu_num", "cpu_num", "node_num", "state"),
                *("submit_time", "start_time", "end_time", "duration", "queue"),
            )
        ),
    )
    examples = (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "11,u1,vcA,1,4,1,COMPLETED,2020-06-09 18:41:00,2020-06-09 18:41:30,2020-06-09 19:41:30,3600,30\n"
        "12,u2,vcB,16,64,2,FAILED,2020-06-09 18:42:00,2020-06-09 18:42:00,2020-06-09 18:46:00,240,0\n"
        "13,u2,vcB,0,8,1,COMPLETED,2020-06-09 18:43:00,2020-06-09 18:43:00,2020-06-09 18:44:00,60,0\n"
        "14,u3,vcA,8,64,1,CANCELLED,2020-06-09 18:44:00,,,0,0\n",
    )
    absolute_clock = True

    def draft(self, row: Row) -> Draft:
        return dated_log_draft(row, "vc")


def dated_log_draft(row: Row, group: str) -> Draft:
    """A job of the logs of one family, with dates of submission, start and end; ``group`` is the column charged."""
    run = observed(row.timestamp_or_none("start_time"), row.timestamp_or_none("end_time"))
    return Draft(
        id=row.text("job_id"),
        submit_s=row.timestamp("submit_time"),
        gpus=row.number("gpu_num"),
        duration_s=run.duration_s,
        user=row.text("user"),
        group=row.text(group),
        skip=run.skip,
    )
