"""Gavel's tab-separated traces: 7 columns (older) or 10. Steps only; a throughput table tells the time."""

from __future__ import annotations

import re

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout

SEVEN = ("job_type", "command", "steps_arg", "needs_data_dir", "total_steps", "arrival_s", "scale_factor")
TEN = (
    *("job_type", "command", "working_dir", "steps_arg", "needs_data_dir", "total_steps", "scale_factor"),
    *("priority_weight", "slo_s", "arrival_s"),
)
_BATCH = re.compile(r"\(batch size (\d{1,9})\)")


def batch_size(job_type: str) -> int | None:
    """The number in ``ResNet-18 (batch size 64)``."""
    match = _BATCH.search(job_type)
    return int(match[1]) if match else None


def gavel_draft(row: Row) -> Draft:
    """What the tab-separated layouts of the family share."""
    arrival_s, slo_s = row.number("arrival_s"), row.limit_or_none("slo_s", mark=-1.0)
    weight = row.number_or_none("priority_weight")
    return Draft(
        id=str(row.number_in_file),
        submit_s=arrival_s,
        gpus=row.number("scale_factor"),
        steps=row.number("total_steps"),
        model=row.text("job_type"),
        batch_size=batch_size(row.text("job_type")),
        weight=1.0 if weight is None else weight,
        deadline_s=None if slo_s is None else arrival_s + slo_s,
    )


class Gavel(Format):
    name = "gavel"
    title = "Gavel trace"
    source = "github.com/stanford-futuredata/gavel (MIT)"
    units = (
        "`total_steps` steps (time from a throughput table only), `arrival_s` seconds, SLO seconds after arrival "
        "(negative: none); `job_type` with its batch size is the model; ids are row numbers from 0"
    )
    aliases = ("philly-vc-gavel",)
    layouts = (Layout(SEVEN), Layout(TEN))
    examples = (
        "ResNet-18 (batch size 32)\tcd %s/x && python3 main.py \t--num_steps\t1\t1537674\t251699.000000\t1\n"
        "LM (batch size 10)\tcd %s/y && python3 main.py\t--steps\t1\t400\t251700.000000\t7\n",
        "ResNet-50 (batch size 64)\tpython3 main.py -b 64 %s/imagenet/\timagenet\t--num_minibatches\t1\t2931\t1\t1\t"
        "-1.000000\t0\nTransformer (batch size 16)\tpython3 train.py\ttranslation\t-step\t1\t11005\t2\t5\t3600\t60\n",
    )
    tab_separated = True
    has_header = False
    identity = "none"

    def draft(self, row: Row) -> Draft:
        return gavel_draft(row)
