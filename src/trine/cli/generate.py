"""``trine trace generate``: draw a job trace from a workload table and write it, or list the tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trine.core.errors import InputError, unknown_name

if TYPE_CHECKING:
    from trine.core.job import Job
    from trine.trace.generate import Arrivals


def generate(
    workload: Annotated[str, typer.Argument(help="Workload name (see --list) or a table of your own, FILE.yaml.")] = "",
    jobs: Annotated[int, typer.Option("--jobs", "-n", help="Number of jobs.")] = 1000,
    gpus: Annotated[int, typer.Option("--gpus", "--cluster-size", help="GPUs of the cluster.")] = 64,
    load: Annotated[float | None, typer.Option(help="Offered load, a fraction of the cluster [default: 0.8].")] = None,
    jobs_per_h: Annotated[float | None, typer.Option(help="Mean submissions per hour, in place of --load.")] = None,
    gap_s: Annotated[float | None, typer.Option(help="Mean seconds between submissions, in place of --load.")] = None,
    arrivals: Annotated[str, typer.Option(help="poisson, diurnal or batch.")] = "poisson",
    max_gpus: Annotated[int | None, typer.Option(help="Largest job [default: the cluster].")] = None,
    start_hour: Annotated[float, typer.Option(help="Hour of the day at time 0 (diurnal).")] = 0.0,
    models: Annotated[str, typer.Option(help="Another mix of models: draw, gavel or a workload's name.")] = "",
    sensitive_share: Annotated[
        float | None, typer.Option(help="Share of gangs with a network-sensitive model.", min=0, max=1)
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed and options, same jobs.")] = 0,
    out: Annotated[Path | None, typer.Option(help="File to write (trine CSV).")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the workloads and where they come from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Draw a job trace from published distributions of job sizes, durations and arrival hours."""
    if list_:
        typer.echo(_listing(as_json))
        return
    if not workload or out is None:
        raise InputError(
            "trace generate", "no workload" if not workload else "no --out", "WORKLOAD --out FILE, or --list"
        )
    from trine.trace import write_trace
    from trine.trace.generate import generate as draw

    drawn = draw(
        workload,
        jobs=jobs,
        seed=seed,
        gpus=gpus,
        load=load,
        jobs_per_h=jobs_per_h,
        gap_s=gap_s,
        arrivals=_arrivals(arrivals),
        max_gpus=max_gpus,
        start_hour=start_hour,
        models=models,
        sensitive_share=sensitive_share,
    )
    write_trace(drawn, out)
    _report(drawn, gpus, out, as_json)


def _arrivals(word: str) -> Arrivals:
    from trine.trace.generate import ARRIVALS

    for kind in ARRIVALS:
        if kind == word:
            return kind
    raise unknown_name("trace generate", "kind", word, ARRIVALS, "--arrivals")


def _listing(as_json: bool) -> str:
    from trine.trace.generate import every_workload

    tables = every_workload()
    if as_json:
        return json.dumps({"workloads": [{"name": t.name, "title": t.title, "source": t.source} for t in tables]})
    width = max(len(table.name) for table in tables)
    return "\n".join(f"{table.name:<{width}} {table.title}\n{'':<{width}} {table.source}" for table in tables)


def _report(jobs: list[Job], gpus: int, out: Path, as_json: bool) -> None:
    """What was written: JSON is data for stdout, the sentence is talk for stderr."""
    from trine.trace.generate import offered_load

    span_s, load = jobs[-1].submit_s - jobs[0].submit_s, offered_load(jobs, gpus)
    if as_json:
        finite = load if span_s > 0 else None
        typer.echo(json.dumps({"jobs": len(jobs), "span_s": span_s, "load": finite, "out": str(out)}))
        return
    rate = f"over {span_s / 3600:.1f} h, load {load:.3f} of {gpus} GPUs" if span_s > 0 else "all submitted at 0"
    typer.echo(f"{out}: {len(jobs)} jobs {rate}", err=True)
