"""Workloads of PAL (hal-uw/blox-pal): work in iterations, seconds per iteration and class by model."""

from __future__ import annotations

from typing import NamedTuple

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout


class PalModel(NamedTuple):
    """Seconds per iteration on a median GPU, packed; variability class; where both come from."""

    step_s: float
    app_class: str
    source: str


_CODE = "hal-uw/blox-pal, workload/workload.py: get_per_iter_time, get_perfclass"
MODELS = {
    "resnet50": PalModel(0.17540429367763434, "A", _CODE),
    "BERT": PalModel(0.179, "B", _CODE),
    "DCGAN": PalModel(0.0469266931, "B", _CODE),
    "GPT2": PalModel(3.5714, "B", _CODE),
    "vgg19": PalModel(0.300610341, "C", _CODE),
    "PointNet": PalModel(0.28125, "D", _CODE),
}
# The Shockwave-like workloads draw `duration` in seconds (generate_shockwave_trace.py) and their readers count
# iterations of one second (blox_exp/submit_modified.py, and the reader of the num_iters layout); get_perfclass puts
# every other model into class A.
OTHER = PalModel(1.0, "A", "hal-uw/blox-pal, blox_exp/submit_modified.py; workload/workload.py: get_perfclass")


class Pal(Format):
    name = "pal"
    title = "PAL workload"
    source = "github.com/hal-uw/blox-pal (MIT)"
    units = (
        "`duration` / `num_iters` count iterations, `submit_time` / `time` seconds; seconds per iteration and class "
        "come from PAL's table of six models, any other model takes 1 s and class A (counted as `assumed-step`)"
    )
    aliases = ("pal-philly", "pal-workloads", "pal-shockwave")
    layouts = (
        Layout(("job_id", "num_gpus", "submit_time", "duration", "model"), ("batch_size",)),
        Layout(("name", "model_name", "time", "num_iters", "num_replicas")),
    )
    examples = (
        "job_id,num_gpus,submit_time,duration,model\n0,1,98,1481.0,vgg19\n1,12,115,4037.0,DCGAN\n",
        "job_id,num_gpus,submit_time,duration,model,batch_size\r\n1,1,33,9447,res18,64\r\n2,2,41,9971,resnet50,32\r\n",
        "name,model_name,time,num_iters,num_replicas\n1,res18,33,9447,1\n2,transformer,41,1942,2\n",
    )
    rules = {"assumed-step": "a model outside PAL's table, 1 s per iteration and class A taken"}

    def draft(self, row: Row) -> Draft:
        iters = row.has("num_iters")
        name = row.text("model_name" if iters else "model")
        model = MODELS.get(name, OTHER)
        return Draft(
            id=row.text("name" if iters else "job_id"),
            submit_s=row.number("time" if iters else "submit_time"),
            gpus=row.number("num_replicas" if iters else "num_gpus"),
            steps=row.number("num_iters" if iters else "duration"),
            step_s=model.step_s,
            model=name,
            app_class=model.app_class,
            batch_size=row.whole_or_none("batch_size"),
            changes=("assumed-step",) if model is OTHER else (),
        )
