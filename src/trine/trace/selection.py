"""Which part of a trace is used, and how fast it arrives: a window of its time, and a scale of its load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from trine.core.errors import InputError
from trine.core.job import Job
from trine.inputs.csv_table import EPOCH, naive_s
from trine.trace.format import Draft, Format
from trine.trace.options import ImportOptions
from trine.trace.rules import ImportCounts
from trine.trace.source import FirstLine

UNIX_TIME_S = 1e9
"""Clocks that start later than this (2001) are dates, not seconds since the trace began."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Where the clock of a trace begins."""

    zero_s: float
    """What is subtracted from all times of the file; moved by a window."""
    unix_s: float | None
    """Unix time at the second that a job's submission of 0 stands for; ``None``: the file knows no dates."""

    @classmethod
    def of(cls, fmt: Format, sample: FirstLine, drafts: Sequence[Draft]) -> Clock:
        """Dates and Unix times are counted from the earliest job; other clocks are kept."""
        earliest_s = min((draft.submit_s or 0.0 for draft in drafts), default=0.0)
        if fmt.has_dates() or earliest_s >= UNIX_TIME_S:
            return cls(earliest_s, earliest_s)
        return cls(0.0, fmt.unix_start_s(sample))

    def moment_s(self, text: str, option: str) -> float:
        """Seconds on the clock of the trace, from a number or an ISO date."""
        try:
            seconds = float(text)
        except ValueError:
            return self._of_date(text, option)
        if not 0 <= seconds < math.inf:
            raise InputError(option, f"{text!r}", "seconds of at least 0, or a date")
        return seconds

    def span(self, drafts: Sequence[Draft]) -> tuple[str, str] | None:
        """First and last submission as a window takes them: dates where the file has some, otherwise seconds."""
        times_s = [(draft.submit_s or 0.0) - self.zero_s for draft in drafts]
        return (self._text(min(times_s)), self._text(max(times_s))) if times_s else None

    def _text(self, moment_s: float) -> str:
        if self.unix_s is None:
            return f"{moment_s:.15g}"
        return (EPOCH + timedelta(seconds=math.floor(self.unix_s + moment_s))).isoformat(" ")

    def _of_date(self, text: str, option: str) -> float:
        try:
            unix_s = naive_s(datetime.fromisoformat(text))
        except (ValueError, OverflowError):
            raise InputError(option, f"{text!r}", "seconds, or a date such as 2017-10-09 or 2017-10-09T07:00") from None
        if self.unix_s is None:
            raise InputError(option, f"the date {text}, and this trace counts seconds", "seconds on its clock")
        return unix_s - self.unix_s


def within(
    drafts: list[Draft], clock: Clock, options: ImportOptions, counts: ImportCounts
) -> tuple[list[Draft], Clock]:
    """The drafts submitted in the window, and a clock that begins where it does; the others are counted."""
    if not options.since and not options.until:
        return drafts, clock
    first_s = clock.moment_s(options.since, "--from") if options.since else 0.0
    last_s = clock.moment_s(options.until, "--to") if options.until else math.inf
    if options.since and first_s >= last_s:
        raise InputError("--from", f"{options.since!r}, not before --to {options.until!r}", "a time before it")
    kept = [draft for draft in drafts if first_s <= (draft.submit_s or 0.0) - clock.zero_s < last_s]
    if len(kept) < len(drafts):
        counts.skipped["outside-window"] += len(drafts) - len(kept)
        counts.skipped_rows += len(drafts) - len(kept)
    # A window that begins before the trace does not move it into the future.
    return kept, Clock(clock.zero_s + max(first_s, 0.0), None)


def scaled(jobs: list[Job], load: float) -> list[Job]:
    """The jobs with the gaps between arrivals divided by ``load``; deadlines stay as far from submission."""
    if load == 1.0 or not jobs:
        return jobs
    start_s = jobs[0].submit_s
    return [_moved(job, start_s + (job.submit_s - start_s) / load) for job in jobs]


def _moved(job: Job, submit_s: float) -> Job:
    deadline_s = None if job.deadline_s is None else job.deadline_s + (submit_s - job.submit_s)
    return replace(job, submit_s=submit_s, deadline_s=deadline_s)


def selection_sentences(options: ImportOptions) -> tuple[str, ...]:
    """What a reader should know about the window and the scale."""
    sentences: list[str] = []
    if options.since or options.until:
        ends = ((options.since, "at {} or later"), (options.until, "before {}"))
        window = " and ".join(words.format(text) for text, words in ends if text)
        origin = "; times count from the beginning of that window" if options.since else ""
        sentences.append(f"Only jobs submitted {window}{origin}.")
    if options.scale_load != 1.0:
        sentences.append(f"Arrivals scaled: the gaps between submissions are divided by {options.scale_load:g}.")
    return tuple(sentences)
