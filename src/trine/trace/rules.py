"""The schema's rules: which drafts become jobs, which are repaired, which are skipped, which are errors. All counted.

docs/traces.md lists the same rules for people.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trine.core.errors import InputError
from trine.core.job import Job
from trine.inputs.csv_table import Row
from trine.trace.format import END_FIRST, NEVER_STARTED, STILL_RUNNING, Draft, Format
from trine.trace.options import ImportOptions

GPUS_LIMIT = 1_000_000
LONGEST_S = 1e11
"""Some three thousand years: beyond it floating-point times lose their microseconds."""

SENTENCES = {
    "zero-gpu": "no GPU asked for",
    "zero-duration": "no work to do",
    "duplicate-row": "an exact copy of an earlier row",
    "fractional-gpu": "a share of a GPU, rounded up to whole GPUs",
    "unsorted": "the file is not sorted, sorted by submission",
    "drawn-arrival": "no submission time in the file, a Poisson arrival drawn",
    "assumed-duration": "no run time in the file, the given one taken",
    "impossible-deadline": "a deadline that even an empty cluster would miss",
    "other-group": "a group that was not asked for",
    "outside-window": "submitted outside the time that was asked for",
    NEVER_STARTED: "never started",
    STILL_RUNNING: "still running when the log ends",
    END_FIRST: "ended before it started, by the log",
}


@dataclass(slots=True)
class ImportCounts:
    """Counts by reason and rule while a file is read."""

    rows: int = 0
    skipped_rows: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    groups: Counter[str] = field(default_factory=Counter)
    """Jobs by group, of all groups that the file names, kept or not."""


class Work(NamedTuple):
    """Steps, and seconds per step if known."""

    steps: float
    step_s: float | None


NO_WORK = Work(0.0, None)


class Arrivals:
    """Drawn submission times, one per accepted row, in file order."""

    def __init__(self, fmt: Format, options: ImportOptions) -> None:
        import random

        self._fmt, self._options, self._rng, self._at_s = fmt, options, random.Random(options.seed), 0.0

    def next_s(self) -> float:
        self._at_s += self._fmt.gap_s(self._rng, self._options.jobs_per_h)
        return self._at_s


class Duplicates:
    """Rows seen so far, by whatever tells two jobs of the format apart."""

    def __init__(self, fmt: Format) -> None:
        self._identity = fmt.identity
        self._rows: set[tuple[str, ...]] = set()
        self._ids: dict[str, tuple[int, Sequence[str]]] = {}

    def repeats(self, row: Row, job_id: str) -> bool:
        """True for an exact copy of an earlier row; the same id with other values is an error."""
        if self._identity == "none":
            return False
        if self._identity == "row":
            before = len(self._rows)
            self._rows.add(tuple(row.cells))
            return len(self._rows) == before
        line, cells = self._ids.setdefault(job_id, (row.line, row.cells))
        if line != row.line and cells != row.cells:
            found = f"job id {job_id!r} again (first on line {line}, with other values)"
            raise InputError(row.where, found, "every job once")
        return line != row.line


class Judge:
    """Applies the rules to one file's drafts, in file order."""

    def __init__(self, fmt: Format, options: ImportOptions, counting: bool) -> None:
        self._options, self._counting = options, counting
        self._wanted_groups = frozenset(options.group)
        self._arrivals, self._duplicates = Arrivals(fmt, options), Duplicates(fmt)
        self.counts = ImportCounts()

    def settle(self, row: Row, draft: Draft) -> bool:
        """Fill in what the job will run with; false if the row is skipped (and counted)."""
        counts = self.counts
        counts.rows += 1
        if not draft.id:
            raise InputError(row.where, "the job id is empty", "an id")
        # A row that is no job may bear the id of one: logs repeat it for parts of a job.
        if not draft.skip and self._duplicates.repeats(row, draft.id):
            counts.skipped_rows += 1
            counts.skipped["duplicate-row"] += 1
            return False
        gpus, work = _whole_gpus(row, draft.gpus), NO_WORK if draft.skip else self._work(row, draft)
        traits = _traits(draft, gpus, work)
        if traits:
            counts.found.update(traits)
            if gpus == 0 or work is NO_WORK:
                counts.skipped_rows += 1
                counts.skipped.update(t for t in traits if t in ("zero-gpu", "zero-duration", draft.skip))
                return False
        if self._wanted_groups and draft.group not in self._wanted_groups:
            self._leave_out(draft.group)
            return False
        if traits:
            counts.changed.update(t for t in traits if t != "impossible-deadline")
        if draft.submit_s is None:
            counts.changed["drawn-arrival"] += 1
            draft.submit_s = self._arrivals.next_s()
        elif draft.submit_s > LONGEST_S:
            raise InputError(row.where, f"a submission time of {draft.submit_s:g} s", f"at most {LONGEST_S:g} s")
        if draft.deadline_s == math.inf:
            draft.deadline_s = None
        draft.line, draft.gpus, (draft.steps, draft.step_s) = row.line, gpus, work
        return True

    def _leave_out(self, group: str) -> None:
        """Count a job of a group that was not asked for; those kept are counted when the file has been read."""
        self.counts.skipped_rows += 1
        self.counts.skipped["other-group"] += 1
        if group:
            self.counts.groups[group] += 1

    def _work(self, row: Row, draft: Draft) -> Work:
        """Steps and their time from whichever of steps, step time and duration the file states."""
        steps, step_s, duration_s = draft.steps, draft.step_s, draft.duration_s
        if steps is None:
            steps, step_s = (duration_s, 1.0) if duration_s is not None else self._assumed(row)
        elif duration_s is not None and steps > 0:
            step_s = duration_s / steps
        if steps == 0 or step_s == 0:
            return NO_WORK
        if not 0 < steps * (1.0 if step_s is None else step_s) <= LONGEST_S:
            raise InputError(row.where, f"{steps:g} steps of {step_s or 1:g} s", f"a run time up to {LONGEST_S:g} s")
        return Work(steps, step_s)

    def _assumed(self, row: Row) -> Work:
        if self._options.duration_s is not None:
            return Work(self._options.duration_s, 1.0)
        if self._counting:
            return Work(1.0, None)
        raise InputError(
            row.source,
            "no run times in this file",
            "--set duration_s=SECONDS (in trine sim: trace.duration_s=SECONDS)",
        )


def _whole_gpus(row: Row, gpus: float) -> int:
    if gpus > GPUS_LIMIT:
        raise InputError(row.where, f"a job of {gpus:g} GPUs", f"at most {GPUS_LIMIT:,} GPUs")
    return math.ceil(gpus)


def _traits(draft: Draft, gpus: int, work: Work) -> list[str]:
    """Codes of what is odd about the draft, reasons to skip it first. Most drafts have none."""
    traits: list[str] = []
    if gpus == 0:
        traits.append("zero-gpu")
    if draft.skip:
        traits.append(draft.skip)
    elif work is NO_WORK:
        traits.append("zero-duration")
    elif draft.steps is None and draft.duration_s is None and work.step_s is not None:
        traits.append("assumed-duration")
    if gpus != draft.gpus:
        traits.append("fractional-gpu")
    if draft.deadline_s is not None and _too_late(draft, work, draft.deadline_s):
        traits.append("impossible-deadline")
    return [*traits, *draft.changes] if draft.changes else traits


def _too_late(draft: Draft, work: Work, deadline_s: float) -> bool:
    """Not even a job that starts at once meets its deadline."""
    if draft.submit_s is None or work.step_s is None:
        return False
    return draft.submit_s + work.steps * work.step_s > deadline_s


def unsorted(submits_s: Iterable[float]) -> int:
    """Rows that arrive before a row above them."""
    latest, count = -math.inf, 0
    for submit_s in submits_s:
        if submit_s < latest:
            count += 1
        else:
            latest = submit_s
    return count


def job(draft: Draft, start_s: float) -> Job:
    """The job of a settled draft, on a clock that begins at ``start_s``."""
    return Job(
        id=draft.id,
        submit_s=(draft.submit_s or 0.0) - start_s,
        gpus=int(draft.gpus),
        steps=draft.steps or 0.0,
        step_s=draft.step_s,
        model=draft.model,
        user=draft.user,
        group=draft.group,
        app_class=draft.app_class,
        batch_size=draft.batch_size,
        priority=draft.priority,
        weight=draft.weight,
        deadline_s=None if draft.deadline_s is None else draft.deadline_s - start_s,
        gpu_types=draft.gpu_types,
        restore_s=draft.restore_s,
        migration_s=draft.migration_s,
        checkpoint_every_s=draft.checkpoint_every_s,
        tracked=draft.tracked,
        after=draft.after,
        array=draft.array,
        line=draft.line,
    )


def duration_s(draft: Draft) -> float | None:
    """Run time as stated where the file states it: steps times step time may differ in the last bit."""
    if draft.duration_s is not None or draft.steps is None or draft.step_s is None:
        return draft.duration_s
    return draft.steps * draft.step_s
