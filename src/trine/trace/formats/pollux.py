"""Workloads of Pollux and Sia: which application arrives when, with how many replicas. No run times.

Their simulators train every application to its target with measured traces; the tables leave that open.
"""

from __future__ import annotations

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout


class Pollux(Format):
    name = "pollux"
    title = "Pollux and Sia workload"
    source = "github.com/petuum/adaptdl, simulator/workloads; github.com/siasosp23/artifacts, sia-simulator/workloads"
    units = (
        "`time` seconds; `num_replicas` GPUs as the user would ask for them; `application` is the model; no run times: "
        "`duration_s`"
    )
    aliases = ("sia", "sia-philly", "adaptdl")
    layouts = (Layout(("name", "time", "application", "num_replicas", "batch_size")),)
    examples = (
        "name,time,application,num_replicas,batch_size\ncifar10-0,107,cifar10,6,2048\n"
        "imagenet-1,401.5,imagenet,12,3200\nncf-2,839,ncf,1,32768\n",
    )

    def draft(self, row: Row) -> Draft:
        return Draft(
            id=row.text("name"),
            submit_s=row.number("time"),
            gpus=row.number("num_replicas"),
            model=row.text("application"),
            batch_size=row.whole_or_none("batch_size"),
        )
