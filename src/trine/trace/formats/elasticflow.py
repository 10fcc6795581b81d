"""ElasticFlow's Philly traces: absolute deadlines, some impossible by design."""

from __future__ import annotations

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout


class ElasticFlow(Format):
    name = "elasticflow"
    title = "ElasticFlow"
    source = "github.com/pkusys/ElasticFlow (Apache-2.0)"
    units = (
        "seconds; `ddl` absolute, on the clock of `submit_time`; `real_iteration` and `real_duration` rule where "
        "both they and the plain ones exist; best-effort jobs have no deadline"
    )
    aliases = ("elasticflow-philly",)
    layouts = (
        Layout(
            (
                *("job_id", "submit_time", "real_iteration", "model_name", "ddl", "batch_size", "num_gpu"),
                "real_duration",
            ),
            ("duration", "iteration", "best_effort"),
        ),
        Layout(
            ("job_id", "submit_time", "iteration", "model_name", "ddl", "batch_size", "num_gpu", "duration"),
            ("best_effort",),
        ),
    )
    examples = (
        "job_id,submit_time,real_iteration,model_name,ddl,batch_size,num_gpu,real_duration,duration,iteration\n"
        "0,0,1282877,vgg16,771220,256,1,976570,976570,1282877\n1,219316,26446,vgg16,inf,64,4,1792395,1792395,26446\n",
        "job_id,submit_time,iteration,model_name,ddl,batch_size,num_gpu,duration,best_effort\n"
        "0,0,77215,resnet50_cifar10,4426,256,1,3930,0\n1,2811,94898,resnet50_cifar10,9179,256,2,4830,1\n",
    )

    def draft(self, row: Row) -> Draft:
        real = "real_" if row.has("real_duration") else ""
        best_effort = row.flag("best_effort", default=False)
        return Draft(
            id=row.text("job_id"),
            submit_s=row.number("submit_time"),
            gpus=row.number("num_gpu"),
            steps=row.number(f"{real}iteration"),
            duration_s=row.number(f"{real}duration"),
            model=row.text("model_name"),
            batch_size=row.whole_or_none("batch_size"),
            deadline_s=None if best_effort else row.limit_or_none("ddl"),
        )
