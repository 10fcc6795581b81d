"""What a daemon recorded of its ended jobs, as ``trine history --out FILE.csv`` writes it."""

from __future__ import annotations

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout


class TrineHistory(Format):
    name = "trine-history"
    title = "history of a trine daemon"
    source = "trine history --out FILE.csv"
    units = (
        "Unix seconds, counted from the earliest job; work is `held_s` (seconds with GPUs) less `lost_s` (done again); "
        "`queue` is the group; jobs that never held GPUs are left out"
    )
    layouts = (
        Layout(
            ("id", "user", "queue", "state", "gpus", "submitted_s", "held_s"),
            (
                *("name", "model", "app_class", "priority", "eligible_s", "started_s", "finished_s", "wait_s", "gpu_h"),
                *("attempts", "preemptions", "migrations", "lost_s", "exit_code", "array", "array_index"),
            ),
        ),
    )
    examples = (
        "id,name,user,queue,state,gpus,model,app_class,priority,submitted_s,held_s,lost_s\n"
        "1,train,ann,default,done,4,bert,,0.0,1893456000.5,3600.0,0.0\n"
        "2,eval,ben,default,cancelled,1,,,0.0,1893456030.5,0.0,0.0\n"
        "3,tune,ben,long,failed,2,,,1.0,1893456060.5,700.0,100.0\n",
    )
    absolute_clock = True

    def draft(self, row: Row) -> Draft:
        worked_s = max(row.number("held_s") - (row.number_or_none("lost_s") or 0.0), 0.0)
        priority = row.number_or_none("priority", minimum=-float("inf"))
        return Draft(
            id=row.text("id"),
            submit_s=row.number("submitted_s"),
            gpus=row.number("gpus"),
            duration_s=worked_s,
            model=row.text("model") if row.has("model") else "",
            user=row.text("user"),
            group=row.text("queue"),
            app_class=row.text("app_class") if row.has("app_class") else "",
            priority=priority or 0.0,
        )
