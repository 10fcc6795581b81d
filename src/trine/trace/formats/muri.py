"""Muri's Philly traces: milliseconds throughout."""

from __future__ import annotations

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout


class Muri(Format):
    name = "muri"
    title = "Muri, Philly"
    source = "github.com/Rivendile/Muri (Apache-2.0)"
    units = (
        "`submit_time` and `duration` MILLISECONDS; `duration` rules where it differs from `iterations` x "
        "`iteration_time` (rounded there); `interval`, `resource_time_*` and `priority` are not used"
    )
    aliases = ("muri-philly",)
    layouts = (
        Layout(
            (
                *("job_id", "num_gpu", "submit_time", "iterations", "model_name", "batch_size", "duration"),
                *("interval", "iteration_time", "resource_time_0", "resource_time_1", "resource_time_2", "priority"),
            )
        ),
    )
    examples = (
        "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,interval,iteration_time,"
        "resource_time_0,resource_time_1,resource_time_2,priority\r\n"
        "0,1,0,5853661,dqn,128,2868294000,46122000,490,446,8,0,1\r\n"
        "1,8,201694000,8787693,dqn,128,4472936000,201694000,509,435,8,0.5,0\r\n",
    )

    def draft(self, row: Row) -> Draft:
        return Draft(
            id=row.text("job_id"),
            submit_s=row.number("submit_time") / 1000,
            gpus=row.number("num_gpu"),
            steps=row.number("iterations"),
            duration_s=row.number("duration") / 1000,
            model=row.text("model_name"),
            batch_size=row.whole_or_none("batch_size"),
        )
