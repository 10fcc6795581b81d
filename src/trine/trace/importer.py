"""Reading a trace: find the format, turn rows into drafts, apply the rules, sum up. ``load`` and ``inspect``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from operator import attrgetter
from pathlib import Path
from typing import Any

from trine.core.arrow import arrow_table, pandas_frame
from trine.core.errors import InputError, unknown_name
from trine.core.job import Job
from trine.trace import formats
from trine.trace.format import Draft, Format
from trine.trace.mapped_table import MappedTable
from trine.trace.models import draw_models, drawn_sentence, find_mix
from trine.trace.options import ImportOptions
from trine.trace.rules import SENTENCES, ImportCounts, Judge, duration_s, job, unsorted
from trine.trace.selection import Clock, scaled, selection_sentences, within
from trine.trace.source import (
    A_TRACE,
    JSON,
    FirstLine,
    first_line,
    is_json,
    is_table_of_types,
    read_text,
    recognise,
)

DEFAULTS = ImportOptions()


@dataclass(frozen=True, slots=True)
class ImportSummary:
    """``rows`` = ``jobs`` + ``skipped_rows``: every row is accounted for."""

    source: str
    format: str
    title: str
    rows: int
    jobs: int
    skipped_rows: int
    skipped: dict[str, int]
    """Rows left out, by reason; a row with two reasons counts under both."""
    changed: dict[str, int]
    """Rows kept after a repair, by rule."""
    found: dict[str, int]
    """Rows showing a trait, kept or not: reasons overlap here."""
    span_s: float
    """From the first to the last submission."""
    submitted: tuple[str, str] | None
    """First and last submission in the file, of the groups that were asked for, as a window takes them: dates where
    the file has some, otherwise seconds. ``None`` if it has no jobs."""
    gpus_max: int
    duration_p50_s: float | None
    """Median run time on reference GPUs; ``None`` if only a throughput table can tell."""
    groups: dict[str, int]
    """Jobs by group (virtual cluster), of all groups that the file names, whether or not they were asked for."""
    sentences: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "sentences": list(self.sentences)}


@dataclass(frozen=True, repr=False)
class Trace:
    """Jobs in order of submission (ties in file order)."""

    jobs: list[Job]
    summary: ImportSummary
    source: str

    @property
    def table(self) -> Any:
        """A ``pyarrow.Table`` with a row per job; ``duration_s`` is null where only a throughput table can tell."""
        columns = {name: [getattr(job, name) for job in self.jobs] for name in _TABLE_COLUMNS}
        return arrow_table(columns | {"duration_s": [job.ideal_s for job in self.jobs]})

    def to_pandas(self) -> Any:
        """The table of jobs as ``pandas.DataFrame``."""
        return pandas_frame(self.table)

    def __len__(self) -> int:
        return len(self.jobs)

    def __repr__(self) -> str:
        span_h, most = self.summary.span_s / 3600, self.summary.gpus_max
        return f"<trace {self.source}: {len(self.jobs):,} jobs over {span_h:,.1f} h, up to {most} GPUs>"

    def _repr_html_(self) -> str:
        items = "".join(f"<li>{escape(sentence)}</li>" for sentence in self.summary.sentences)
        return f"{escape(repr(self)[1:-1])}<ul>{items}</ul>"


_TABLE_COLUMNS = ("id", "submit_s", "gpus", "model", "user", "group", "app_class")


def load(path: str | Path, fmt: str | None = None, options: ImportOptions = DEFAULTS) -> Trace:
    """The jobs of a trace file, in order of submission; ``fmt`` forces a format, otherwise it is recognised."""
    trace = _read(path, fmt, options, counting=False)
    if not trace.jobs:
        raise _no_jobs(trace.source, trace.summary)
    return trace


def _no_jobs(source: str, summary: ImportSummary) -> InputError:
    if not summary.rows:
        return InputError(source, "no rows", "jobs")
    reasons = ", ".join(f"{n} {code}" for code, n in summary.skipped.items())
    there = summary.submitted if "outside-window" in summary.skipped else None
    window = f" submitted in the window; this trace has some from {there[0]} to {there[1]}" if there else ""
    return InputError(source, f"none of {summary.rows} rows is a job ({reasons})", f"jobs{window}")


def inspect(path: str | Path, fmt: str | None = None, options: ImportOptions = DEFAULTS) -> ImportSummary:
    """Counts only: also works for files that lack run times or hold no usable job."""
    return _read(path, fmt, options, counting=True).summary


def _read(path: str | Path, fmt: str | None, options: ImportOptions, counting: bool) -> Trace:
    source = str(path)
    sample = first_line(source, read_text(path))
    chosen = _chosen(fmt, sample, options)
    judge = Judge(chosen, options, counting)
    drafts = [draft for row, draft in chosen.drafts(chosen.rows(sample)) if judge.settle(row, draft)]
    judge.counts.groups.update(draft.group for draft in drafts if draft.group)
    _check_groups(source, chosen, options.group, judge.counts)
    clock = Clock.of(chosen, sample, drafts)
    _check_predecessors(source, drafts)
    submitted = clock.span(drafts)
    drafts, clock = within(drafts, clock, options, judge.counts)
    jobs = scaled(_in_order(drafts, clock, judge.counts), options.scale_load)
    jobs, drawn = _with_models(jobs, options) if options.models else (jobs, ())
    durations = [d for draft in drafts if (d := duration_s(draft)) is not None]
    notes = (*chosen.notes(sample), *selection_sentences(options), *drawn)
    summary = _summary(source, chosen, jobs, durations, submitted, judge.counts, options.group, notes)
    return Trace(jobs, summary, source)


def _chosen(name: str | None, sample: FirstLine, options: ImportOptions) -> Format:
    """The format that was asked for, by name or by its columns, or the one that the file shows."""
    if options.columns:
        if name:
            raise InputError("--columns", f"beside --format {name}", "one of the two")
        return MappedTable(options.columns)
    return _forced(name, sample) if name else _recognised(sample)


def _check_predecessors(source: str, drafts: Sequence[Draft]) -> None:
    """A job may only wait for jobs submitted before it, so that no jobs ever wait for each other."""
    if not any(draft.after for draft in drafts):
        return
    before = {draft.id: (draft.submit_s or 0.0, number) for number, draft in enumerate(drafts)}
    for number, draft in enumerate(drafts):
        for job_id in draft.after:
            if job_id not in before:
                found = f"after {job_id!r}, and there is no such job"
            elif before[job_id] >= (draft.submit_s or 0.0, number):
                found = f"after {job_id!r}, which is not submitted before it"
            else:
                continue
            raise InputError(f"{source}:{draft.line}" if draft.line else source, found, "earlier jobs", "after")


def _with_models(jobs: list[Job], options: ImportOptions) -> tuple[list[Job], tuple[str, ...]]:
    """Models for the jobs that name none, and a sentence about it."""
    mix = find_mix(options.models, "--set", "models")
    drawn = iter(draw_models([job for job in jobs if not job.model], mix, options.seed, options.sensitive_share))
    count = sum(not job.model for job in jobs)
    jobs = [job if job.model else next(drawn) for job in jobs]
    return jobs, (drawn_sentence(jobs, count, mix.name),)


def _check_groups(source: str, fmt: Format, wanted: Sequence[str], counts: ImportCounts) -> None:
    """Every group asked for must have jobs: a misspelt one would silently leave its jobs out."""
    for name in wanted:
        if not counts.groups:
            found = f"{name!r} asked for, and no job of this file ({fmt.title}) belongs to a group"
            raise InputError(source, found, "a trace with groups, or all jobs", "trace.group")
        if name not in counts.groups:
            raise unknown_name(source, "group", name, counts.groups, "trace.group")


def _forced(name: str, sample: FirstLine) -> Format:
    fmt = formats.by_name(name)
    try:
        fmt.columns(sample)
    except InputError as error:
        kind = recognise(sample)
        others = [f"format {f.name!r}" for f in formats.known().values() if f.detects(sample)]
        if kind or others:
            looks = str(kind) if kind else others[0]
            raise InputError(error.where, f"looks like {looks}", error.expected, error.field) from None
        raise
    return fmt


def _recognised(sample: FirstLine) -> Format:
    kind = recognise(sample)
    if kind is not None:
        raise InputError(sample.source, f"looks like {kind}", "a job trace")
    for fmt in formats.known().values():
        if fmt.detects(sample):
            return fmt
    closest = max((fmt.likeness(sample) for fmt in formats.known().values()), key=lambda each: each.share)
    if closest.share == 0 and is_table_of_types(sample):
        raise InputError(sample.source, f"looks like {JSON}", "a job trace")
    any_table = "any other table with --columns submit=COLUMN,gpus=COLUMN,duration=COLUMN"
    known = f"{A_TRACE}; formats: {', '.join(formats.known())}; {any_table}"
    raise InputError(sample.where, _looks_of(sample), closest.change if closest.share > 0 else known)


def _looks_of(sample: FirstLine) -> str:
    if is_json(sample):
        return "JSON of an unknown shape"
    fields = sample.tab_fields if len(sample.tab_fields) > len(sample.fields) else sample.fields
    shown = ",".join(fields)
    columns = f"{len(fields)} columns" if len(fields) != 1 else "1 column"
    return f"an unknown layout of {columns} ({shown[:120]}{'...' if len(shown) > 120 else ''})"


def _in_order(drafts: Sequence[Draft], clock: Clock, counts: ImportCounts) -> list[Job]:
    moved = unsorted(draft.submit_s or 0.0 for draft in drafts)
    if moved:
        counts.changed["unsorted"] += moved
    return sorted((job(draft, clock.zero_s) for draft in drafts), key=attrgetter("submit_s"))


def _summary(
    source: str,
    fmt: Format,
    jobs: Sequence[Job],
    durations: Sequence[float],
    submitted: tuple[str, str] | None,
    counts: ImportCounts,
    wanted: Sequence[str],
    notes: tuple[str, ...],
) -> ImportSummary:
    return ImportSummary(
        source=source,
        format=fmt.name,
        title=fmt.title,
        rows=counts.rows,
        jobs=len(jobs),
        skipped_rows=counts.skipped_rows,
        skipped=dict(sorted(counts.skipped.items())),
        changed=dict(sorted(counts.changed.items())),
        found=dict(sorted(counts.found.items())),
        span_s=jobs[-1].submit_s - jobs[0].submit_s if jobs else 0.0,
        submitted=submitted,
        gpus_max=max((j.gpus for j in jobs), default=0),
        duration_p50_s=_median(durations),
        groups=dict(sorted(counts.groups.items())),
        sentences=_sentences(fmt, len(jobs), counts, wanted) + notes,
    )


def _sentences(fmt: Format, jobs: int, counts: ImportCounts, wanted: Sequence[str]) -> tuple[str, ...]:
    meaning = {**SENTENCES, **fmt.rules}
    first = f"{jobs:,} job{'' if jobs == 1 else 's'} from {counts.rows:,} row{'' if counts.rows == 1 else 's'}"
    lines = [f"{first} ({fmt.title})."]
    if wanted:
        kept = ", ".join(f"{name} ({counts.groups[name]:,})" for name in dict.fromkeys(wanted))
        lines.append(f"Only jobs of {len(set(wanted))} of {len(counts.groups)} groups: {kept}.")
    lines += [f"{n:,} skipped: {meaning[code]}." for code, n in sorted(counts.skipped.items())]
    lines += [f"{n:,} kept: {meaning[code]}." for code, n in sorted(counts.changed.items())]
    impossible = counts.found["impossible-deadline"]
    return (*lines, f"{impossible:,} kept: {meaning['impossible-deadline']}.") if impossible else tuple(lines)


def _median(values: Sequence[float]) -> float | None:
    """The middle value, or the mean of the middle two; ``None`` of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else ordered[half - 1] / 2 + ordered[half] / 2
