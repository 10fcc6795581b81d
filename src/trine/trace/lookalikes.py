"""Files that lie beside job traces but are none: what each looks like, and which option takes it."""

from __future__ import annotations

from typing import NamedTuple

from trine.trace.source import Sample


class Lookalike(NamedTuple):
    """A kind of file, told by columns that must all be there (and, if ``only``, no others)."""

    what: str
    columns: frozenset[str]
    taken_by: str = ""
    only: bool = False

    def __str__(self) -> str:
        return f"{self.what}, which {self.taken_by or 'no option'} takes"


LOOKALIKES = (
    Lookalike("a sample of GPU times", frozenset({"duration"}), "--set sample=", only=True),
    Lookalike("a list of nodes", frozenset({"sn", "cpu_milli", "gpu"}), "--cluster"),
    Lookalike("a list of machines", frozenset({"machineId", "number of GPUs"}), "--cluster"),
    Lookalike("a cluster shape", frozenset({"num_switch", "num_node_p_switch", "num_gpu_p_node"}), "--cluster"),
    Lookalike("a network topology", frozenset({"ip", "DSW", "PSW", "ASW"}), "--cluster"),
    Lookalike("a table of a cumulative distribution", frozenset({"x", "cdf_percent"})),
    Lookalike("a summary of clusters", frozenset({"id", "job_num", "gpu_job_num"})),
    Lookalike("measured slowdowns of GPUs", frozenset({"uuid", "perf"}), "--variability"),
    Lookalike("measured slowdowns of GPUs", frozenset({"PerfVar_classA"}), "--variability"),
    Lookalike("the GPUs of a world", frozenset({"gpu", "node", "rack", "type"}), "--variability"),
    Lookalike("the jobs of a world", frozenset({"job_id", "submit_s", "work_s_on_v100"}), "--world DIR"),
    Lookalike("the results of a run", frozenset({"job_id", "start_s", "finish_s"})),
)


def recognise(sample: Sample) -> Lookalike | None:
    """What the file is, if it is something we know and not a job trace."""
    if sample.text.lstrip()[:1] in ("{", "["):
        return Lookalike("JSON", frozenset(), "--throughputs (throughput tables)")
    found = set(sample.fields)
    for kind in LOOKALIKES:
        if kind.columns <= found and not (kind.only and kind.columns != found):
            return kind
    return None
