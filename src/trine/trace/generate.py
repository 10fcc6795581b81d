"""The workload generator: draws a job trace from a workload table, or a paper's own. Same arguments, same jobs.

Sizes, durations, arrivals, models and users come from random streams of their own, one number per job and stream, so
changing one thing leaves the others as they were. Tables and their checks are in ``workload``, Gavel's workloads in
``gavel_workload``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, get_args

from trine.core.errors import InputError, unknown_name
from trine.core.job import Job
from trine.trace.gavel_workload import HIERARCHY, GavelWorkload, draw, gavel_workloads
from trine.trace.models import draw_models, find_mix, own_mix
from trine.trace.workload import HOURS, Workload, load_workload, workload_names

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

Arrivals = Literal["poisson", "diurnal", "batch"]
ARRIVALS: tuple[Arrivals, ...] = get_args(Arrivals)
DEFAULT_LOAD = 0.8
MOST_JOBS = 10_000_000
HOUR_S = 3600.0
DAY_S = HOURS * HOUR_S
GENERATE = "trace generate"
"""Where errors of the generator are said to be: the command that draws jobs into a file."""
# The position is part of the seed: append, never reorder.
_STREAMS = ("sizes", "durations", "arrivals", "models", "users")


def generate(
    workload: str | Workload | GavelWorkload,
    *,
    jobs: int,
    seed: int,
    gpus: int,
    load: float | None = None,
    jobs_per_h: float | None = None,
    gap_s: float | None = None,
    arrivals: Arrivals | None = None,
    max_gpus: int | None = None,
    start_hour: float = 0.0,
    models: str = "",
    sensitive_share: float | None = None,
) -> list[Job]:
    """Draw ``jobs`` jobs for a cluster of ``gpus`` GPUs, in the order of submission; the first is submitted at 0.

    ``load`` is the GPU-seconds asked for per GPU-second of the cluster between the first submission and the last
    (default 0.8); ``jobs_per_h`` sets the mean rate of submission instead, or ``gap_s`` the mean seconds between two.
    ``arrivals`` is poisson (default), diurnal (the table's hours; time 0 is ``start_hour`` o'clock) or batch (all at
    0). No job is larger than ``max_gpus`` (default: ``gpus``): larger sizes are drawn again. ``models`` names another
    mix of models than the workload's own, ``sensitive_share`` the share of gangs with a network-sensitive one
    (``trace.models``): sizes, run times and arrivals stay as they are.
    """
    jobs_per_h = _rate(jobs_per_h, gap_s)
    kind = _check(jobs, seed, gpus, load, jobs_per_h, arrivals, start_hour)
    table = find_workload(workload) if isinstance(workload, str) else workload
    if isinstance(table, GavelWorkload):
        drawn = _gavel(table, kind, jobs, seed, load, jobs_per_h, max_gpus)
    else:
        drawn = _from_table(table, kind, jobs, seed, gpus, load, jobs_per_h, max_gpus, start_hour)
    if not models and sensitive_share is None:
        return drawn
    mix = find_mix(models, GENERATE, "models") if models else own_mix(table)
    return draw_models(drawn, mix, seed, sensitive_share)


def _from_table(
    table: Workload,
    kind: Arrivals,
    jobs: int,
    seed: int,
    gpus: int,
    load: float | None,
    jobs_per_h: float | None,
    max_gpus: int | None,
    start_hour: float,
) -> list[Job]:
    """Jobs of a workload table: sizes first, then run times that depend on them, then the span that gives the load."""
    sizes = _sizes(table, _uniform(seed, "sizes", jobs), gpus if max_gpus is None else max_gpus)
    durations_s = _durations_s(table, sizes, _uniform(seed, "durations", jobs))
    span_s = _span_s(kind, sizes, durations_s, gpus, load, jobs_per_h)
    weights = table.hour_weights if kind == "diurnal" else (1.0,) * HOURS
    submit_s = _submissions_s(_uniform(seed, "arrivals", jobs - 1), span_s, weights, start_hour)
    drawn = _choices([model.weight for model in table.models], _uniform(seed, "models", jobs))
    users = _choices([rank**-table.zipf for rank in range(1, table.users + 1)], _uniform(seed, "users", jobs))
    columns = (column.tolist() for column in (submit_s, sizes, durations_s, drawn, users))
    return [_job(table, number, *row) for number, row in enumerate(zip(*columns, strict=True))]


def find_workload(name: str) -> Workload | GavelWorkload:
    """A workload of the package by its name, or the table in the YAML file ``name``."""
    if name in gavel_workloads():
        return gavel_workloads()[name]
    if name.endswith((".yaml", ".yml")) or name in workload_names():
        return load_workload(name)
    raise unknown_name(GENERATE, "workload", name, [*workload_names(), *gavel_workloads()])


def goes_on(workload: str, arrivals: str) -> bool:
    """More jobs of the same seed are the same jobs and others after them, so that arrivals need not end.

    Tables fit the arrivals to the number of jobs; Gavel's workloads draw them one by one, unless all come at once or
    are listed.
    """
    known = gavel_workloads().get(workload)
    return known is not None and arrivals == "poisson" and known.gap_s > 0 and workload != HIERARCHY


def every_workload() -> list[Workload | GavelWorkload]:
    """All that the package ships: tables of clusters, then the workloads of papers."""
    return [*map(load_workload, workload_names()), *gavel_workloads().values()]


def _rate(jobs_per_h: float | None, gap_s: float | None) -> float | None:
    """Submissions per hour from whichever of the two is given."""
    if gap_s is None:
        return jobs_per_h
    if jobs_per_h is not None:
        raise InputError(GENERATE, "both jobs_per_h and gap_s are given", "one of them")
    if not 0 < gap_s < math.inf:
        raise InputError(GENERATE, f"found {gap_s:g}", "a number of seconds above 0", "gap_s")
    return HOUR_S / gap_s


def _gavel(
    workload: GavelWorkload,
    kind: Arrivals,
    jobs: int,
    seed: int,
    load: float | None,
    jobs_per_h: float | None,
    max_gpus: int | None,
) -> list[Job]:
    """The paper's own streams: its arrivals are Poisson or all at 0, and its load is set by their rate."""
    if load is not None:
        raise InputError(GENERATE, f"a load for {workload.name}", "jobs_per_h or gap_s", "load")
    if kind == "diurnal":
        raise InputError(GENERATE, f"diurnal arrivals for {workload.name}", "poisson or batch", "arrivals")
    at_once = kind == "batch" or workload.gap_s == 0
    if at_once and jobs_per_h is not None:
        raise InputError(GENERATE, f"a rate for {workload.name}, whose jobs all arrive at 0", "no rate", "jobs_per_h")
    gap_s = 0.0 if at_once else None if jobs_per_h is None else HOUR_S / jobs_per_h
    return draw(workload, jobs=jobs, seed=seed, gap_s=gap_s, max_gpus=max_gpus)


def offered_load(jobs: Sequence[Job], gpus: int) -> float:
    """GPU-seconds asked for per GPU-second of a cluster of ``gpus`` GPUs, first submission to last; inf if at once."""
    work_gpu_s = sum(job.gpu_time_s or 0.0 for job in jobs)
    span_s = max(job.submit_s for job in jobs) - min(job.submit_s for job in jobs)
    return work_gpu_s / (span_s * gpus) if span_s > 0 else math.inf


def _job(table: Workload, number: int, submit_s: float, gpus: int, duration_s: float, model: int, user: int) -> Job:
    share = table.models[model]
    return Job(
        id=str(number),
        submit_s=submit_s,
        gpus=gpus,
        steps=duration_s,
        model=share.name,
        app_class=share.app_class,
        user=f"user{user + 1}",
    )


def _check(
    jobs: int,
    seed: int,
    gpus: int,
    load: float | None,
    jobs_per_h: float | None,
    arrivals: str | None,
    start_hour: float,
) -> Arrivals:
    """Refuse arguments that make no sense; return the kind of arrivals."""
    if jobs > MOST_JOBS:
        raise InputError(GENERATE, f"found {jobs}", f"at most {MOST_JOBS:,}", "jobs")
    for field, whole, least in (("jobs", jobs, 1), ("seed", seed, 0), ("gpus", gpus, 1)):
        if whole < least:
            raise InputError(GENERATE, f"found {whole}", f"a whole number of at least {least}", field)
    for field, rate in (("load", load), ("jobs_per_h", jobs_per_h)):
        if rate is not None and not 0 < rate < math.inf:
            raise InputError(GENERATE, f"found {rate:g}", "a number above 0", field)
    if not 0 <= start_hour < HOURS:
        raise InputError(GENERATE, f"found {start_hour:g}", f"an hour from 0 to below {HOURS}", "start_hour")
    kind = next((known for known in ARRIVALS if known == (arrivals or "poisson")), None)
    if kind is None:
        raise unknown_name(GENERATE, "kind", str(arrivals), ARRIVALS, "arrivals")
    if load is not None and jobs_per_h is not None:
        raise InputError(GENERATE, "both load and jobs_per_h are given", "one of them")
    if kind == "batch" and (load is not None or jobs_per_h is not None):
        raise InputError(GENERATE, "a rate for jobs that all arrive at 0", "no load and no jobs_per_h", "arrivals")
    return kind


def _uniform(seed: int, stream: str, count: int) -> Floats:
    """Uniform numbers of one stream. A longer trace starts with the numbers of a shorter one."""
    import numpy as np

    sequence = np.random.SeedSequence(seed, spawn_key=(_STREAMS.index(stream),))
    return np.random.default_rng(sequence).random(count)


def _choices(weights: Sequence[float], uniform: Floats) -> Ints:
    """Positions in ``weights``, drawn in proportion to them."""
    import numpy as np

    cumulated = np.cumsum(weights)
    positions = np.searchsorted(cumulated, uniform * cumulated[-1], side="right")
    chosen: Ints = np.minimum(positions, len(cumulated) - 1)
    return chosen


def _sizes(table: Workload, uniform: Floats, max_gpus: int) -> Ints:
    """Sizes of at most ``max_gpus``. Leaving out larger ones is the same law as drawing again until one fits."""
    import numpy as np

    fitting = [
        (int(size), mass) for size, mass in zip(table.sizes.x, table.sizes.mass, strict=True) if size <= max_gpus
    ]
    if not fitting:
        smallest = int(table.sizes.x[0])
        raise InputError(
            GENERATE, f"found {max_gpus}", f"at least {smallest}, the smallest job of {table.name}", "max_gpus"
        )
    sizes, masses = zip(*fitting, strict=True)
    chosen: Ints = np.array(sizes, dtype=np.int64)[_choices(masses, uniform)]
    return chosen


def _durations_s(table: Workload, sizes: Ints, uniform: Floats) -> Floats:
    from trine.trace.duration import fit_durations

    return fit_durations(table).durations_s(sizes, uniform)


def _span_s(
    kind: Arrivals, sizes: Ints, durations_s: Floats, gpus: int, load: float | None, jobs_per_h: float | None
) -> float:
    """Seconds from the first submission to the last."""
    if kind == "batch" or len(sizes) == 1:
        return 0.0
    if jobs_per_h is not None:
        return (len(sizes) - 1) / jobs_per_h * HOUR_S
    return float((sizes * durations_s).sum()) / (gpus * (DEFAULT_LOAD if load is None else load))


def _submissions_s(uniform: Floats, span_s: float, weights: Sequence[float], start_hour: float) -> Floats:
    """Times of a Poisson process whose rate follows the hours, from 0 to ``span_s`` exactly, to the millisecond.

    Exponential gaps in cumulated rate, mapped back to time: no candidate is thrown away, so each job costs one number.
    """
    import numpy as np

    gaps = np.concatenate(([0.0], np.cumsum(-np.log1p(-uniform))))
    position = gaps / gaps[-1] if len(gaps) > 1 else gaps
    hour_share = np.arange(HOURS + 1) / HOURS
    day_share: Floats = np.concatenate(([0.0], np.cumsum(weights))) / float(sum(weights))
    start_s = start_hour * HOUR_S
    first, last = _through_days(np.array([start_s, start_s + span_s]) / DAY_S, hour_share, day_share)
    days = _through_days(first + position * (last - first), day_share, hour_share)
    # Adding 0 turns a rounded -0.0 into 0.0.
    return np.round(days * DAY_S - start_s, 3) + 0.0


def _through_days(values: Floats, from_day: Floats, to_day: Floats) -> Floats:
    """Map whole days to whole days and, inside a day, ``from_day`` to ``to_day`` linearly between the hours."""
    import numpy as np

    whole = np.floor(values)
    mapped: Floats = whole + np.interp(values - whole, from_day, to_day)
    return mapped
