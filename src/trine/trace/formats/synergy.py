"""Synergy-like workload of PAL: sizes and run times without arrivals, drawn as PAL's simulator draws them."""

from __future__ import annotations

import math
import random

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout


class Synergy(Format):
    name = "synergy"
    title = "Synergy-like workload"
    source = "rules of github.com/hal-uw/blox-pal (MIT); sizes from Philly (CC-BY-4.0)"
    units = (
        "`duration_s` seconds, class A; no arrivals: Poisson, `jobs_per_h` and `seed`, gaps rounded up to whole "
        "seconds as in PAL's simulator (its own runs used seed 1)"
    )
    aliases = ("synergy-standin",)
    layouts = (Layout(("job_id", "num_gpus", "duration_s")),)
    examples = ("job_id,num_gpus,duration_s\r\n0,1,35424.3471980879\r\n1,16,4578.832840173429\r\n",)

    def draft(self, row: Row) -> Draft:
        return Draft(
            id=row.text("job_id"),
            submit_s=None,
            gpus=row.number("num_gpus"),
            duration_s=row.number("duration_s"),
            app_class="A",
        )

    def gap_s(self, rng: random.Random, jobs_per_h: float) -> float:
        gap_s = float(math.ceil(super().gap_s(rng, jobs_per_h)))
        # PAL draws a model for every job from the same stream; its arrivals come out only if we do too.
        rng.randint(0, 8)
        return gap_s
