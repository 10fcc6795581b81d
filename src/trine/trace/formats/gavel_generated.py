"""Workloads drawn with Gavel's generator rules, as CSV: steps and the run time on a V100."""

from __future__ import annotations

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout
from trine.trace.formats.gavel import batch_size


class GavelGenerated(Format):
    name = "gavel-generated"
    title = "Gavel workload, generated"
    source = "rules of github.com/stanford-futuredata/gavel"
    units = "`arrival_s` and `duration_s_on_v100` seconds; `total_steps` steps, not rounded; `job_type` is the model"
    layouts = (
        Layout(
            (
                *("job_id", "job_type", "scale_factor", "total_steps", "duration_s_on_v100"),
                *("priority_weight", "arrival_s"),
            )
        ),
    )
    examples = (
        "job_id,job_type,scale_factor,total_steps,duration_s_on_v100,priority_weight,arrival_s\r\n"
        "0,ResNet-18 (batch size 64),8,17484476.26110642,68344.35010595087,1.0,0.0\r\n"
        "1,Transformer (batch size 16),1,343170.46864225325,31016.60914593223,5.0,489.172145820603\r\n",
    )

    def draft(self, row: Row) -> Draft:
        return Draft(
            id=row.text("job_id"),
            submit_s=row.number("arrival_s"),
            gpus=row.number("scale_factor"),
            steps=row.number("total_steps"),
            duration_s=row.number("duration_s_on_v100"),
            model=row.text("job_type"),
            batch_size=batch_size(row.text("job_type")),
            weight=row.number("priority_weight"),
        )
