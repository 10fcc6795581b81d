"""Alibaba's openb pods (2023): shared GPUs, pods without GPUs, pods never scheduled, pods still running."""

from __future__ import annotations

from trine.core.errors import InputError
from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout

DEMAND = ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli")


class Alibaba(Format):
    name = "alibaba"
    title = "Alibaba openb pods"
    source = "github.com/hkust-adsl/kubernetes-scheduler-simulator (Apache-2.0)"
    units = (
        "seconds; run time is `deletion_time` - `scheduled_time`; a share of a GPU (`gpu_milli` < 1000) becomes one "
        "GPU; `gpu_spec` separates the types allowed by `|`; `qos` is the group; the 5-column layout has neither "
        "arrivals (drawn) nor run times (`duration_s`)"
    )
    aliases = ("openb", "alibaba-openb", "alibaba-openb-2023")
    layouts = (
        Layout((*DEMAND, "gpu_spec", "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time")),
        Layout(DEMAND),
    )
    examples = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
        "openb-pod-0000,12000,16384,1,1000,,LS,Succeeded,0,12537496,0\n"
        "openb-pod-0001,6000,12288,1,460,V100M16|V100M32,LS,Running,427061,12902960,427061\n"
        "openb-pod-0002,6000,12288,0,0,,BE,Failed,427062,12902960,427062\n"
        "openb-pod-0003,6000,12288,8,1000,,BE,Pending,427063,12902960,\n",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\nopenb-pod-0000,12000,16384,1,1000\n"
        "openb-pod-0001,6000,12288,1,460\nopenb-pod-0002,6000,12288,0,0\n",
    )
    rules = {
        "never-scheduled": "never scheduled (scheduled_time is empty)",
        "no-end": "no end known (deletion_time is empty)",
        "censored": "still running at the end, taken to last as long as observed",
    }

    def draft(self, row: Row) -> Draft:
        name, gpus = row.text("name"), row.number("num_gpu") * row.number("gpu_milli") / 1000
        if not row.has("creation_time"):
            return Draft(name, None, gpus)
        created_s = row.number("creation_time")
        skip = _why_no_job(row)
        return Draft(
            name,
            created_s,
            gpus,
            duration_s=None if skip else _observed_s(row),
            group=row.text("qos"),
            gpu_types=tuple(t.strip() for t in row.text("gpu_spec").split("|") if t.strip()),
            skip=skip,
            changes=("censored",) if row.text("pod_phase") == "Running" else (),
        )


def _why_no_job(row: Row) -> str:
    if not row.given("scheduled_time"):
        return "never-scheduled"
    return "" if row.given("deletion_time") else "no-end"


def _observed_s(row: Row) -> float:
    duration_s = row.number("deletion_time") - row.number("scheduled_time")
    if duration_s < 0:
        raise InputError(row.where, f"a duration of {duration_s:g} s", "deletion after scheduling", "deletion_time")
    return duration_s
