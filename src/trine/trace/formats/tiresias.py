"""Tiresias' job lists: with iterations (60_job) or without (tf_job)."""

from __future__ import annotations

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout


class Tiresias(Format):
    name = "tiresias"
    title = "Tiresias"
    source = "github.com/SymbioticLab/Tiresias (Apache-2.0)"
    units = "seconds; `start_time`, `interval`, `model_size`, `aggr_interval` and `model_scale` are not used"
    layouts = (
        Layout(("job_id", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval")),
        Layout(
            (
                *("job_id", "num_gpu", "submit_time", "start_time", "duration", "model_size", "aggr_interval"),
                *("model_name", "model_scale"),
            )
        ),
    )
    examples = (
        "job_id,num_gpu,submit_time,iterations,model_name,duration,interval\r\n"
        "0,1,0,606,vgg19,164,30\r\n1,8,30,133,vgg11,147,23\r\n",
        "job_id,num_gpu,submit_time,start_time,duration,model_size,aggr_interval,model_name,model_scale\n"
        "10,12,11,14,20,400,0,vgg19,1\n10,12,11,14,20,400,0,vgg19,1",
    )

    def draft(self, row: Row) -> Draft:
        return Draft(
            id=row.text("job_id"),
            submit_s=row.number("submit_time"),
            gpus=row.number("num_gpu"),
            steps=row.number("iterations") if row.has("iterations") else None,
            duration_s=row.number("duration"),
            model=row.text("model_name"),
        )
