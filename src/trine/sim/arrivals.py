"""The jobs of a simulated run: read or generated, checked against the cluster, and in which order they arrive."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from functools import lru_cache
from operator import attrgetter
from pathlib import Path

from trine.assembly.settings import RunSettings, TraceSettings, WorkloadSettings
from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.core.job import Job
from trine.engine import explain
from trine.perf.model import PerfModel
from trine.placement.base import Placement
from trine.trace import ImportOptions, load
from trine.trace.formats import companions
from trine.trace.generate import GENERATE, generate, goes_on
from trine.trace.models import drawn_sentence

MOST_ARRIVALS = 8
"""So many times the jobs asked for arrive at most, while those of the window are not done."""


def read_jobs(path: str, fmt: str, settings: TraceSettings, seed: int) -> tuple[list[Job], list[str]]:
    """The jobs of a trace file, and what a reader should know about them."""
    return _load_trace(path, fmt, _import_options(settings, seed), _stamps(path))


def generate_jobs(
    workload: str, settings: WorkloadSettings, cluster: Cluster, seed: int
) -> tuple[list[Job], list[str]]:
    """The jobs of a generated workload, and what a reader should know about them."""
    with _errors_of_options():
        jobs = generate(
            workload,
            jobs=settings.jobs,
            seed=seed,
            gpus=cluster.gpu_count,
            load=settings.load,
            jobs_per_h=settings.jobs_per_h,
            arrivals=settings.arrivals,  # type: ignore[arg-type]  # checked against the choices
            max_gpus=settings.max_gpus or max(cluster.gpus_by_type.values()),
            models=settings.models,
            sensitive_share=settings.sensitive_share,
        )
    notes = [f"{len(jobs)} jobs drawn from the {workload} workload."]
    if settings.models or settings.sensitive_share is not None:
        notes.append(drawn_sentence(jobs, len(jobs), settings.models or workload))
    return jobs, notes


@contextmanager
def _errors_of_options() -> Iterator[None]:
    """The generator speaks of its own command, ``trine trace generate``; here its options are those of a simulation."""
    try:
        yield
    except InputError as error:
        if error.where != GENERATE:
            raise
        where, field = ("--set", f"workload.{error.field}") if error.field else ("--workload", "")
        if error.field == "seed":
            where, field = "--seed", ""
        raise InputError(where, error.found, error.expected, field) from None


def later_jobs(workload: str, settings: WorkloadSettings, cluster: Cluster, seed: int) -> Iterator[Job]:
    """What arrives after the jobs of ``generate_jobs``, drawn when it is asked for, untracked; none where it cannot be.

    Measured jobs must not find the cluster emptier than those before them only because arrivals have ended. Where more
    arrive than the cluster can serve, jobs could wait for ever: arrivals end at a multiple of the jobs asked for.
    """
    if not goes_on(workload, settings.arrivals):
        return
    count = settings.jobs
    while count < MOST_ARRIVALS * settings.jobs:
        drawn, _ = generate_jobs(workload, replace(settings, jobs=2 * count), cluster, seed)
        yield from (replace(job, tracked=False) for job in drawn[count:])
        count *= 2


def _import_options(settings: TraceSettings, seed: int) -> ImportOptions:
    return ImportOptions(
        jobs_per_h=settings.jobs_per_h,
        seed=seed if settings.seed is None else settings.seed,
        duration_s=settings.duration_s,
        group=tuple(name.strip() for name in settings.group),
        models=settings.models,
        sensitive_share=settings.sensitive_share,
        columns=settings.columns,
        since=settings.since,
        until=settings.until,
        scale_load=settings.scale_load,
    )


_Stamps = tuple[tuple[int, int], ...]


def _stamps(path: str) -> _Stamps:
    """Change when the trace does, or a file beside it that is read with it."""
    return tuple(_stamp(file) for file in (Path(path), *companions(path)))


def _stamp(path: Path) -> tuple[int, int]:
    """Changes when the file does; nothing for what is not there (the reader will say so)."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=4)
def _load_trace(path: str, fmt: str, options: ImportOptions, stamps: _Stamps) -> tuple[list[Job], list[str]]:  # noqa: ARG001
    """Sweeps read the same trace many times: keep the last few; a file that has changed since is read again."""
    trace = load(path, fmt or None, options)
    if not trace.jobs:
        raise InputError(path, "no job that asks for GPUs", "at least one")
    return trace.jobs, list(trace.summary.sentences)


def jobs_that_fit(
    jobs: list[Job], perf: PerfModel, run: RunSettings, source: str, has_throughputs: bool
) -> tuple[list[Job], list[str]]:
    """Jobs that some GPU type of the cluster can hold; the others are refused or skipped, as the settings say."""
    too_large = [job for job in jobs if not perf.types_for(job)]
    if not too_large:
        return jobs, []
    job = too_large[0]
    why = explain.never_fits(job, perf)
    if run.oversize == "refuse":
        where = f"{source}:{job.line}" if job.line else source
        hint = "jobs that fit, or --set oversize=skip"
        if job.step_s is None:
            hint = "a cluster of GPU types that the table knows" if has_throughputs else "--throughputs FILE"
        raise InputError(where, f"job {job.id} can never run: {why}", hint, "gpus")
    fitting = [job for job in jobs if perf.types_for(job)]
    if not fitting:
        raise InputError(source, f"no job can ever run; the first: {why}", "at least one job that fits")
    return fitting, [f"{len(too_large)} jobs that can never run here were skipped; the first: {why}."]


def check_capacity(jobs: list[Job], placement: Placement, cluster: Cluster) -> None:
    """GPUs that the placement leaves alone may be missing for the largest job."""
    excluded = placement.excluded()
    if not excluded:
        return
    left = {t: n - sum(cluster.type_of(g) == t for g in excluded) for t, n in cluster.gpus_by_type.items()}
    largest = max(jobs, key=lambda job: job.gpus)
    if largest.gpus > max(left.values()):
        alone = "1 GPU" if len(excluded) == 1 else f"{len(excluded)} GPUs"
        raise InputError(
            "--placement",
            f"it leaves {alone} alone, and job {largest.id} needs {largest.gpus} of one type",
            f"jobs of at most {max(left.values())} GPUs, or another placement",
        )


def in_window(jobs: list[Job], window: str) -> list[Job]:
    """Track only the jobs at the positions ``FROM:TO`` of the trace."""
    if not window:
        return jobs
    first, colon, last = window.partition(":")
    if not (colon and first.isdigit() and last.isdigit() and int(first) < int(last) <= len(jobs)):
        raise InputError("--set", f"{window!r}", f"FROM:TO with 0 <= FROM < TO <= {len(jobs)}", "window")
    tracked = range(int(first), int(last))
    return [job if i in tracked else replace(job, tracked=False) for i, job in enumerate(jobs)]


def with_background(jobs: list[Job], run: RunSettings) -> Iterator[Job]:
    """The jobs in order of submission, and after them the background load, if there is one."""
    if run.background_jobs_per_h <= 0:
        return iter(jobs)
    return itertools.chain(jobs, repeat(jobs, run.background_jobs_per_h, run.background_seed))


def repeat(jobs: Sequence[Job], jobs_per_h: float, seed: int) -> Iterator[Job]:
    """Background load: untracked copies of ``jobs`` in order, again and again, as a Poisson process in whole seconds.

    The rule of PAL's Sia-Philly experiments: gaps are rounded up to a second and count from the last arrival.
    """
    rng = random.Random(seed)
    at_s = jobs[-1].submit_s
    number = len(jobs)
    while True:
        for job in jobs:
            at_s += math.ceil(-math.log(1.0 - rng.random()) / jobs_per_h * 3600.0)
            values = list(_VALUES(job))
            values[_TRACKED], values[_AFTER], values[_ARRAY] = False, (), ""
            yield Job(f"background-{number}", at_s, *values)
            number += 1


_REST = [each.name for each in fields(Job)][2:]
_VALUES = attrgetter(*_REST)
_TRACKED, _AFTER, _ARRAY = map(_REST.index, ("tracked", "after", "array"))
"""What a job has beyond its id and its submission. ``dataclasses.replace`` takes three times as long, and a short run
has as many background jobs as others."""
