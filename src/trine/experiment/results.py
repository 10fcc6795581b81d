"""What a run and a comparison hand back: tables (Arrow), summary, timeline, the plots of the report, a view in a cell.

The figures are those of ``core.result`` and ``report``; here they only get the form that a notebook wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from trine.core.arrow import arrow_table, pandas_frame, table_of_rows
from trine.core.errors import InputError, TrineError, require_extra
from trine.core.result import JobRecord, JobTime, Metric, RunResult, Summary
from trine.experiment import cells
from trine.experiment.arguments import errors_of_arguments
from trine.report.compare import BEST_MARK, as_dict, comparison_tables, headline
from trine.report.compare import Comparison as ComparisonOfRuns
from trine.report.compare_page import compare_page
from trine.report.data_files import timeline_table
from trine.report.files import write_comparison, write_run
from trine.report.run_page import run_page
from trine.report.text import duration, written

TIME_PARTS = tuple(name for name in JobTime._fields if name != "wait_s")
"""Where the JCT went besides waiting, which is a column of its own; unknown where no GPUs were assigned."""
JOB_COLUMNS = (*(f.name for f in fields(JobRecord) if f.name != "time"), "bounded_slowdown", *TIME_PARTS)
_REPORT_PX = 900


def _value(job: JobRecord, column: str) -> Any:
    """The value of a job in a column of ``JOB_COLUMNS``."""
    if column in TIME_PARTS:
        return None if job.time is None else getattr(job.time, column)
    return getattr(job, column)


class Simulation:
    """One simulated run."""

    def __init__(self, result: RunResult) -> None:
        self.result = result
        """The values behind it, as the simulator returned them."""

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The keys of ``summary.json``, by name."""
        return self.result.summary.results()

    @cached_property
    def jobs(self) -> Any:
        """A ``pyarrow.Table`` with a row per tracked job, in order of submission. Times in seconds."""
        return arrow_table({name: [_value(job, name) for job in self.result.jobs] for name in JOB_COLUMNS})

    @cached_property
    def timeline(self) -> Any:
        """A ``pyarrow.Table`` with a row per stretch in which a job held the same GPUs."""
        require_extra("notebook", "pyarrow", purpose="tables need")
        return timeline_table(self.result.segments, self.result.settings)

    @property
    def notes(self) -> list[str]:
        """What a reader must know: skipped rows, assumed values."""
        return self.result.notes

    @property
    def settings(self) -> dict[str, Any]:
        """All settings of the run, as they took effect."""
        return self.result.settings

    @property
    def plots(self) -> cells.Plots:
        """The plots of the report by name: ``plots["jct-cdf"]`` at the end of a cell shows one."""
        return cells.Plots(self._page)

    def report(self) -> cells.Document:
        """The whole report, in a frame."""
        return cells.Document(f"report of {self._title}", self._page, _REPORT_PX)

    def to_pandas(self) -> Any:
        """The table of jobs as ``pandas.DataFrame``."""
        return pandas_frame(self.jobs)

    def save(self, folder: str | Path, command: str = "") -> None:
        """Write ``summary.json``, ``jobs.csv``, ``timeline.parquet`` and ``report.html``, as ``--out`` does.

        ``command`` is named on the page as what made it.
        """
        write_run(self.result, folder, command)

    @cached_property
    def _page(self) -> str:
        return run_page(self.result)

    @property
    def _title(self) -> str:
        s = self.result.summary
        return f"{s.policy} with {s.placement}, seed {s.seed}"

    def __repr__(self) -> str:
        s = self.result.summary
        mean, makespan = duration(s.jct_mean_s), duration(s.makespan_s)
        return f"<{self._title}: {s.finished} of {s.jobs} jobs, JCT mean {mean}, makespan {makespan}>"

    def _repr_html_(self) -> str:
        metrics = [metric for metric in Summary.metrics() if metric.line is not None or metric.by_type]
        known = [m for m in metrics if self.summary.get(m.key) or (m.key in self.summary and not m.optional)]
        rows = [(metric.key, _written(metric, self.summary)) for metric in known]
        return cells.cell(
            cells.heading(self._title, self.result.cluster.describe()),
            cells.table(("", "value"), rows, 1),
            cells.cdf_picture({"": [job.jct_s for job in self.result.jobs]}, "Job completion time"),
            cells.sentences(self.notes),
        )


def _written(metric: Metric, values: Mapping[str, Any]) -> str:
    return written(metric.kind, values[metric.key])


@dataclass(frozen=True)
class Point:
    """The runs of a comparison at one load and one value of each swept setting."""

    where: dict[str, Any]
    """The load and the swept settings by name; empty if there are none."""
    compared: ComparisonOfRuns
    results: list[RunResult]


class Comparison:
    """Several policies and placements side by side, at one or several loads and settings."""

    def __init__(self, points: Sequence[Point]) -> None:
        self.points = list(points)

    @cached_property
    def runs(self) -> Any:
        """A ``pyarrow.Table`` with a row per run: what tells it apart, and its summary."""
        return table_of_rows([point.where | _key(row) | row.results for point in self.points for row in _rows(point)])

    @cached_property
    def jobs(self) -> Any:
        """A ``pyarrow.Table`` with a row per job of every run."""
        columns: dict[str, list[Any]] = {}
        for point in self.points:
            for result in point.results:
                s = result.summary
                same = {**point.where, "policy": s.policy, "placement": s.placement, "seed": s.seed}
                for name, value in same.items():
                    columns.setdefault(name, []).extend([value] * len(result.jobs))
                for name in JOB_COLUMNS:
                    columns.setdefault(name, []).extend(_value(job, name) for job in result.jobs)
        return arrow_table(columns)

    def means(self, metrics: Sequence[str] = ()) -> Any:
        """A ``pyarrow.Table`` with a row per policy and placement: means over seeds and the ends of their intervals.

        ``metrics`` chooses by keys of the summary, or what several begin with (``rho``).
        """
        with errors_of_arguments():
            chosen = Summary.chosen(metrics)
        means = [(point.where, as_dict(point.compared, chosen)["means"]) for point in self.points]
        return table_of_rows([where | _flat_means(mean) for where, rows in means for mean in rows])

    def table(self, metrics: Sequence[str] = ()) -> list[tuple[str, ...]]:
        """The table of the report as text, header first; ``metrics`` chooses its columns by keys of the summary."""
        with errors_of_arguments():
            chosen = Summary.chosen(metrics)
        tables = comparison_tables([point.compared for point in self.points], chosen)
        wheres = [tuple(map(_short, point.where.values())) for point in self.points]
        lines = [(*where, *line) for where, rows in zip(wheres, tables, strict=True) for line in rows[1:]]
        return [(*self.points[0].where, *tables[0][0]), *lines]

    def at(self, **where: Any) -> Comparison:
        """The part with this load and these settings: ``comparison.at(load=0.9)``; dots in names are underscores."""
        found = [point for point in self.points if all(_has(point, name, value) for name, value in where.items())]
        if not found:
            known = [", ".join(f"{name}={value}" for name, value in point.where.items()) for point in self.points]
            expected = f"one of {'; '.join(known)}" if any(known) else "nothing: one load, and no settings swept"
            raise InputError("at", ", ".join(f"{name}={value}" for name, value in where.items()), expected)
        return Comparison(found)

    def run(self, policy: str, placement: str = "", seed: int | None = None) -> Simulation:
        """One of its runs; only the first seed has a timeline."""
        for result in self._single("run").results:
            s = result.summary
            if s.policy == policy and placement in ("", s.placement) and seed in (None, s.seed):
                return Simulation(result)
        known = [
            f"{r.summary.policy} with {r.summary.placement}, seed {r.summary.seed}" for r in self.points[0].results
        ]
        raise InputError("run", f"no {policy!r} with that placement and seed", f"one of {'; '.join(known)}")

    @property
    def notes(self) -> list[str]:
        """What a reader must know of any of the runs."""
        return list(dict.fromkeys(note for point in self.points for note in point.compared.notes))

    @property
    def compared(self) -> ComparisonOfRuns:
        """The rows and statistics behind the report of the only point."""
        return self._single("compared").compared

    @property
    def plots(self) -> cells.Plots:
        """The plots of the report by name; of one load and one set of settings (``at``)."""
        return cells.Plots(self._page)

    def report(self) -> cells.Document:
        """The whole report, in a frame; of one load and one set of settings (``at``)."""
        return cells.Document("report of a comparison", self._page, _REPORT_PX)

    def to_pandas(self) -> Any:
        """The table of runs as ``pandas.DataFrame``."""
        return pandas_frame(self.runs)

    def save(self, folder: str | Path, command: str = "") -> None:
        """Write ``compare.json``, ``compare.csv`` and ``report.html``, as ``--out`` does; of one point (``at``)."""
        write_comparison(self._single("save").compared, folder, command)

    @cached_property
    def _page(self) -> str:
        return compare_page(self._single("the report").compared)

    def _single(self, what: str) -> Point:
        if len(self.points) > 1:
            names = ", ".join(f"{name}=..." for name in self.points[0].where)
            raise TrineError(f"{what} is of one point, and there are {len(self.points)}: choose one with at({names})")
        return self.points[0]

    def __repr__(self) -> str:
        contenders, runs = len(self.points[0].compared.contenders), sum(len(point.results) for point in self.points)
        swept = f" at {len(self.points)} points" if len(self.points) > 1 else ""
        return f"<comparison of {contenders} policies and placements{swept}, {runs} runs>"

    def _repr_html_(self) -> str:
        header, *rows = self.table()
        texts = len(self.points[0].where) + 2
        picture = cells.cdf_picture(_curves(self.points[0]), "Job completion time") if len(self.points) == 1 else ""
        caption = '<p class="caption">Means over seeds; the best of each column is bold.</p>'
        found = cells.heading(headline(self.points[0].compared)) if len(self.points) == 1 else ""
        table = cells.table(header, rows, texts, BEST_MARK)
        return cells.cell(found, table, caption, picture, cells.sentences(self.notes))


def _rows(point: Point) -> Sequence[Any]:
    return point.compared.rows


def _key(row: Any) -> dict[str, Any]:
    return {"policy": row.policy, "placement": row.placement, "seed": row.seed}


def _flat_means(mean: Mapping[str, Any]) -> dict[str, Any]:
    """A mean under the name of its metric, the ends of its interval under ``NAME.low`` and ``NAME.high``."""
    flat: dict[str, Any] = {}
    for name, value in mean.items():
        ends = value if isinstance(value, dict) else None
        flat[name] = len(value) if name == "seeds" else value if ends is None else ends["mean"]
        flat |= {} if ends is None else {f"{name}.low": ends["low"], f"{name}.high": ends["high"]}
    return flat


def _has(point: Point, name: str, value: Any) -> bool:
    return any(name == key.replace(".", "_") and known == value for key, known in point.where.items())


def _short(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _curves(point: Point) -> dict[str, list[float]]:
    """Completion times of the first seed by policy, and by placement where there are several."""
    name: Callable[[Any], str] = lambda s: s.policy  # noqa: E731
    if len({result.summary.placement for result in point.results}) > 1:
        name = lambda s: f"{s.policy}, {s.placement}"  # noqa: E731
    first = point.results[0].summary.seed
    return {name(r.summary): [job.jct_s for job in r.jobs] for r in point.results if r.summary.seed == first}
