"""Rubick's LLM jobs: some of a few seconds, up to dozens of GPUs."""

from __future__ import annotations

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout


class Rubick(Format):
    name = "rubick"
    title = "Rubick, LLM jobs"
    source = "github.com/AlibabaPAI/reconfigurable-dl-scheduler (Apache-2.0)"
    units = "seconds; `application` is the model; `num_cpus`, `bandwidth`, `exec_plan` and `is_sla` are not used"
    aliases = ("rubick-llm",)
    layouts = (
        Layout(
            (
                *("name", "submission_time", "duration", "application", "num_gpus", "num_cpus", "bandwidth"),
                *("exec_plan", "steps", "is_sla"),
            )
        ),
    )
    examples = (
        "name,submission_time,duration,application,num_gpus,num_cpus,bandwidth,exec_plan,steps,is_sla\r\n"
        "vit-0,0,3163.091667,vit,2,16,0,zero-dp,37239,0\r\nllama30-5,4986,0.0425,llama30,40,320,1.25,524,1,0",
    )

    def draft(self, row: Row) -> Draft:
        return Draft(
            id=row.text("name"),
            submit_s=row.number("submission_time"),
            gpus=row.number("num_gpus"),
            steps=row.number("steps"),
            duration_s=row.number("duration"),
            model=row.text("application"),
        )
