"""Chronus' Philly trace with deadlines: minutes throughout, jobs without GPUs, not sorted."""

from __future__ import annotations

import math

from trine.core.errors import InputError
from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout

MINUTE_S = 60.0


class Chronus(Format):
    name = "chronus"
    title = "Chronus, Philly with deadlines"
    source = "github.com/S-Lab-System-Group/ChronusArtifact (MIT)"
    units = (
        "`submit_time`, `duration` and `expect_time_list` MINUTES; the deadline is the first entry of the "
        "`-` separated list, counted from submission; best-effort jobs have none"
    )
    aliases = ("chronus-philly-slo",)
    layouts = (
        Layout(
            (
                *("job_id", "user", "num_gpu", "submit_time", "iterations", "model_name", "duration", "interval"),
                *("expect_time_list", "expect_value_list", "best_effort", "job_type"),
            )
        ),
    )
    examples = (
        "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,expect_time_list,"
        "expect_value_list,best_effort,job_type\n"
        "0,vc_103959,4,12198,6910,resnet101,211,8,282,10,0,strict\n"
        "1,vc_7f04ca,0,19772,8897,alexnet,31,6,88-120,10-5,0,soft\n"
        "2,vc_7f04ca,1,7199,7676,mobilenet_v2,106,24,241-300.5-inf,10-5-1,0,soft\n"
        "3,vc_7f04ca,1,7200,7676,vgg16,106,24,inf,1,1,best\n",
    )

    def draft(self, row: Row) -> Draft:
        submit_s = row.number("submit_time") * MINUTE_S
        return Draft(
            id=row.text("job_id"),
            submit_s=submit_s,
            gpus=row.number("num_gpu"),
            steps=row.number("iterations"),
            duration_s=row.number("duration") * MINUTE_S,
            model=row.text("model_name"),
            user=row.text("user"),
            deadline_s=None if row.flag("best_effort", default=False) else _deadline_s(row, submit_s),
        )


def _deadline_s(row: Row, submit_s: float) -> float | None:
    """The first expected time is the one of full value; ``inf`` and an empty list mean none."""
    text = row.text("expect_time_list")
    if not text:
        return None
    try:
        minutes = [float(part) for part in text.split("-")]
    except ValueError:
        expected = "numbers separated by '-'"
        raise InputError(row.where, f"found {text!r}", expected, "expect_time_list") from None
    if math.isnan(minutes[0]):
        raise InputError(row.where, f"found {text!r}", "numbers separated by '-'", "expect_time_list")
    return submit_s + minutes[0] * MINUTE_S if minutes[0] < math.inf else None
