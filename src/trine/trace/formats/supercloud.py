"""MIT SuperCloud: a Slurm database dump of CPU and GPU jobs; GPUs stand among the trackable resources (TRES)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout, observed

_READ = ("id_job", "id_user", "partition", "state", "time_submit", "time_start", "time_end", "tres_alloc", "tres_req")
GPU_TRES = ("1001", "1002")
"""Both numbers stand for GPUs in the authors' own notebook; a job that has both counts its GPUs twice."""


class Supercloud(Format):
    name = "supercloud"
    title = "MIT SuperCloud, slurm-log.csv"
    source = "github.com/MIT-AI-Accelerator/MIT-Supercloud-Dataset, dcc.mit.edu"
    units = (
        "Unix seconds, counted from the earliest job, 0 = not yet; GPUs from `tres_alloc` (`tres_req` where it is "
        "empty), resources 1001 and 1002; `partition` is the group; `timelimit` (minutes) is not used; an id that "
        "comes again, a job that was requeued, gets a number behind it"
    )
    aliases = ("mit-supercloud", "slurm-log")
    layouts = (
        Layout(
            _READ,
            (
                *("id_array_job", "id_array_task", "kill_requid", "nodes_alloc", "nodelist", "cpus_req", "derived_ec"),
                *("exit_code", "gres_used", "gres_req", "gres_alloc", "array_max_tasks", "array_task_pending"),
                *("array_task_str", "constraints", "flags", "mem_req", "priority", "timelimit", "time_eligible"),
                *("time_suspended", "track_steps", "job_type"),
            ),
        ),
    )
    examples = (
        "id_job,id_user,nodes_alloc,partition,state,timelimit,time_submit,time_start,time_end,tres_alloc,tres_req\n"
        '901,7,1,gaia,3,1440,1609459200,1609459260,1609462860,"1=20,2=170000,4=1,5=20,1002=2","1=20,1002=2"\n'
        '902,8,1,gaia,3,1440,1609459230,1609459260,1609459290,"1=4,2=8000,4=1,5=4","1=4"\n'
        '903,9,0,gaia,4,60,1609459300,0,1609459400,,"1=20,1002=1"\n'
        '904,9,1,gaia,1,60,1609459310,1609459320,0,"1=20,1002=1","1=20,1002=1"\n'
        '901,7,1,gaia,5,1440,1609459200,1609462900,1609462960,"1=20,2=170000,1001=2,1002=2","1=20,1002=2"\n',
    )
    identity = "row"
    absolute_clock = True

    def drafts(self, rows: Iterable[Row]) -> Iterator[tuple[Row, Draft]]:
        seen: Counter[str] = Counter()
        for row in rows:
            draft = self.draft(row)
            seen[draft.id] += 1
            if seen[draft.id] > 1:
                draft.id = f"{draft.id}.{seen[draft.id]}"
            yield row, draft

    def draft(self, row: Row) -> Draft:
        run = observed(row.number("time_start") or None, row.number("time_end") or None)
        return Draft(
            id=row.text("id_job"),
            submit_s=row.number("time_submit"),
            gpus=_gpus(row, "tres_alloc" if row.given("tres_alloc") else "tres_req"),
            duration_s=run.duration_s,
            user=row.text("id_user"),
            group=row.text("partition"),
            skip=run.skip,
        )


def _gpus(row: Row, column: str) -> float:
    """GPUs of ``1=20,2=170000,1002=2``: the larger of the two counts."""
    pairs = [part.partition("=") for part in row.text(column).strip("\"'").split(",") if part.strip()]
    if not all(sign and number.strip().isdigit() and len(number.strip()) < 19 for _, sign, number in pairs):
        raise row.wrong(column, "resources such as 1=20,2=170000,1002=2")
    return float(max((int(number) for kind, _, number in pairs if kind.strip() in GPU_TRES), default=0))
