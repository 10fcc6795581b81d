"""The sample of 100,000 PAI jobs that Alibaba's own simulator reads: one row per job, with a header."""

from __future__ import annotations

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout


class PaiSample(Format):
    name = "pai-sample"
    title = "Alibaba PAI 2020, sample of its simulator"
    source = "github.com/alibaba/clusterdata, cluster-trace-gpu-v2020/simulator, pai_job_*_100K.csv"
    units = (
        "seconds; GPUs are `num_inst` x `num_gpu`, which counts GPUs of one instance and may be a fraction; `gpu_type` "
        "is the type it ran on, not one it asked for, and is not used"
    )
    layouts = (
        Layout(
            ("job_id", "num_inst", "submit_time", "num_cpu", "num_gpu", "gpu_type", "duration", "user"),
            ("wait_time", "user_dur", "user_gpu_dur", "group_dur", "group_gpu_dur", "group"),
        ),
    )
    examples = (
        "job_id,num_inst,submit_time,num_cpu,num_gpu,gpu_type,duration,user\n"
        "11,1,0,6.0,0.5,T4,900,u1\n12,4,30,8.0,1.0,V100,7200,u2\n13,2,40,8.0,0.0,CPU,60,u2\n",
    )

    def draft(self, row: Row) -> Draft:
        return Draft(
            id=row.text("job_id"),
            submit_s=row.number("submit_time"),
            gpus=row.number("num_inst") * row.number("num_gpu"),
            duration_s=row.number("duration"),
            user=row.text("user"),
            group=row.text("group"),
        )
