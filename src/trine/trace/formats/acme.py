"""Acme (Shanghai AI Laboratory): the job traces of the clusters Seren and Kalos, two layouts of one table.

The published description says that ``duration`` is end minus start. In Seren it is; in Kalos it is end minus
submission, waiting included. The times themselves agree in both, so they are what is read.
"""

from __future__ import annotations

from trine.inputs.csv_table import Row
from trine.trace.format import Draft, Format, Layout
from trine.trace.formats.helios import dated_log_draft

_COMMON = (
    *("job_id", "user", "node_num", "gpu_num", "cpu_num", "type", "state"),
    *("submit_time", "start_time", "end_time", "duration", "queue", "gpu_time"),
)


class Acme(Format):
    name = "acme"
    title = "Acme, LLM development"
    source = "github.com/InternLM/AcmeTrace, trace_seren.csv and trace_kalos.csv (CC-BY-4.0)"
    units = (
        "date and time with a zone, counted from the earliest job; run time is `end_time` - `start_time`, because "
        "`duration` of Kalos includes the wait; `type` (Pretrain, Evaluation, Debug ...) is the group"
    )
    aliases = ("acmetrace", "seren", "kalos")
    layouts = (Layout(_COMMON, ("mem_per_pod_GB", "shared_mem_per_pod", "fail_time", "stop_time")),)
    examples = (
        f"{','.join(_COMMON)}\n"
        "51,u1,1,8,128,Other,FAILED,2023-03-02 10:00:00+08:00,2023-03-02 10:00:30+08:00,2023-03-02 10:02:30+08:00,"
        "120,30,960.0\n"
        "52,u2,1,0,16,Debug,COMPLETED,2023-03-02 10:01:00+08:00,2023-03-02 10:01:00+08:00,2023-03-02 10:02:00+08:00,"
        "60,0,0.0\n"
        "53,u3,4,32,512,Pretrain,CANCELLED,2023-03-02 10:03:00+08:00,,2023-03-02 10:04:00+08:00,0,60,0.0\n",
        "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,submit_time,start_time,"
        "end_time,fail_time,stop_time,duration,queue,gpu_time\n"
        "dlc1,u4,4,32,480,900,90.0,Pretrain,FAILED,2023-05-18 09:00:00+00:00,2023-05-18 09:00:15+00:00,"
        "2023-05-18 09:10:15+00:00,2023-05-18 09:10:15+00:00,,615,15.0,19680.0\n",
    )
    absolute_clock = True

    def draft(self, row: Row) -> Draft:
        return dated_log_draft(row, "type")
