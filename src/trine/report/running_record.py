"""What a simulation has done so far, in a file that grows while it runs: written by ``RunningRecord``, read back, also
while it is written, by ``RunningRunReader``. It goes when the files of the finished run are in place.

One JSON object per line: first what the run is, then, about once a second, what happened since the line before. Readers
take complete lines only. The file lies where the results are staged: inside the directory of the results if there is
one, which may be a mount point, else beside the name it will have. Its writer holds a lock on it, so that readers can
tell a run that goes on from one that was killed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from trine.core.cluster import Cluster
from trine.core.errors import InputError
from trine.core.result import Segment
from trine.report.data_files import STAGING_PREFIX, described_cluster, plain
from trine.report.recorded_run import RecordedJob, RecordedRun, cluster_from_json, run_title

_SUFFIX = ".running"
_LONGEST_LINE = 1 << 28
"""What is not a line by then is no record of ours."""


def record_path(out_dir: Path) -> Path:
    """Where the record of a run that will write its results to ``out_dir`` is."""
    out = out_dir.resolve()
    inside = out / f"{STAGING_PREFIX}{_SUFFIX[1:]}"
    return inside if out.is_dir() else out.parent / f"{STAGING_PREFIX}{out.name}{_SUFFIX}"


def found_record(out_dir: Path) -> Path | None:
    """The record that belongs to ``out_dir``, wherever it was begun."""
    out = out_dir.resolve()
    both = (out / f"{STAGING_PREFIX}{_SUFFIX[1:]}", out.parent / f"{STAGING_PREFIX}{out.name}{_SUFFIX}")
    return next((path for path in both if path.is_file()), None)


def is_running(path: Path) -> bool:
    """A process writes it now."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@dataclass(frozen=True)
class Happened:
    """What happened between two lines of the record; ``running`` is all that runs at ``now_s``."""

    now_s: float
    submitted: Sequence[tuple[str, float, int, str, str]]
    """Jobs: id, time, GPUs, model, user."""
    segments: Sequence[Segment]
    finished: Sequence[tuple[str, float]]
    running: Sequence[tuple[str, float, Sequence[int], float, str]]
    """Jobs: id, since when, on which GPUs, slowdown, why they were started."""


class RunningRecord:
    """Writes the record; ``remove`` ends it. The empty file that ``claim`` makes says that a run has begun."""

    def __init__(self, out_dir: Path) -> None:
        self._path = record_path(out_dir)
        self._file: IO[bytes] | None = None
        self._made: list[Path] = []

    def claim(self) -> None:
        """Make the file and hold its lock; ``InputError`` if another run has it."""
        path = self._path
        try:
            self._made = [above for above in path.parents if not above.exists()]
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("ab")
        except OSError as error:
            raise InputError(str(path.parent), f"cannot write ({error.strerror})", "a directory to write to") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            raise InputError(str(path.parent), "another run writes its results there", "a directory for each") from None
        file.truncate(0)
        self._file = file

    def begin(self, settings: dict[str, Any], cluster: Cluster) -> None:
        if self._file is None:
            self.claim()
        self._line({"settings": plain(settings), "cluster": described_cluster(cluster)})

    def add(self, happened: Happened) -> None:
        segments = [
            [s.job_id, s.start_s, s.end_s, list(s.gpus), s.slowdown, s.started, s.ended] for s in happened.segments
        ]
        self._line(
            {
                "now_s": happened.now_s,
                "submitted": list(happened.submitted),
                "segments": segments,
                "finished": list(happened.finished),
                "running": list(happened.running),
            }
        )

    def _line(self, value: dict[str, Any]) -> None:
        """At once on its way to readers; without room on the disk the record ends here, the run does not."""
        if self._file is None:
            return
        try:
            self._file.write(json.dumps(value, separators=(",", ":"), default=float).encode() + b"\n")
            self._file.flush()
        except OSError:
            self.remove()

    def remove(self) -> None:
        if self._file is None:
            return
        file, self._file = self._file, None
        self._path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # what could not be written is not wanted any more
            file.close()
        for above in self._made:
            try:
                above.rmdir()
            except OSError:
                return  # the results are in it


class _Columns:
    """Segments by columns: those that are over may be many, and are added to as the record grows."""

    def __init__(self) -> None:
        self.job_of = array("q")
        self.start_s, self.end_s, self.slowdown = array("d"), array("d"), array("d")
        self.gpu_ids, self.gpu_offsets = array("q"), array("q", [0])
        self.started: list[str] = []
        self.ended: list[str] = []
        self.of_job: dict[int, list[int]] = {}
        """Never changed, only replaced: runs that were read before keep theirs."""

    def add(self, job: int, start_s: float, end_s: float, gpus: list[int], slow: float, began: str, why: str) -> None:
        self.of_job[job] = [*self.of_job.get(job, ()), len(self.job_of)]
        self.job_of.append(job)
        self.start_s.append(start_s)
        self.end_s.append(end_s)
        self.slowdown.append(slow)
        self.gpu_ids.extend(gpus)
        self.gpu_offsets.append(len(self.gpu_ids))
        self.started.append(began)
        self.ended.append(why)


class RunningRunReader:
    """Reads a record as it grows: every call of ``read`` goes on where the one before ended, and costs next to nothing
    if there is nothing new."""

    def __init__(self, path: Path, name: str) -> None:
        self.path, self._name = path, name
        self._offset, self._file_id = 0, (0, 0)
        self._forget()

    def _forget(self) -> None:
        self._offset = 0
        self._header: dict[str, Any] = {}
        self._cluster: Cluster | None = None
        self._jobs: list[RecordedJob] = []
        self._index: dict[str, int] = {}
        self._over = _Columns()
        self._running: list[Any] = []
        self._now_s: float | None = None
        self._last: RecordedRun | None = None

    def read(self) -> RecordedRun:
        """The run up to the last complete line, or ``InputError``."""
        expected = "the record of a run that goes on"
        try:
            with self.path.open("rb") as file:
                self._same_file(file.fileno())
                file.seek(self._offset)
                text = file.read(_LONGEST_LINE)
            self._take(text)
            if self._cluster is None or self._now_s is None:
                raise self._nothing_yet()
            if self._last is None or self._last.version != self._version:
                self._last = self._run()
            return self._last
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            raise InputError(str(self.path), f"a file that cannot be read ({error})", expected) from None

    @property
    def _version(self) -> str:
        return f"{self._file_id[1]}.{self._offset}"

    def _nothing_yet(self) -> InputError:
        if is_running(self.path):
            return InputError(self._name, "a run that has just begun", "one that has gone on for a second; try again")
        return InputError(self._name, "a run that was killed as it began", "one that went on for a second")

    def _same_file(self, descriptor: int) -> None:
        """Another run may have begun in the same place."""
        found = os.fstat(descriptor)
        if (found.st_dev, found.st_ino) != self._file_id or found.st_size < self._offset:
            self._forget()
        self._file_id = (found.st_dev, found.st_ino)

    def _take(self, text: bytes) -> None:
        complete = text.rfind(b"\n") + 1
        for line in text[:complete].splitlines():
            value = json.loads(line)
            if "settings" in value:
                self._header, self._cluster = value["settings"], cluster_from_json(value["cluster"])
            else:
                self._add(value)
        self._offset += complete

    def _add(self, value: dict[str, Any]) -> None:
        for job_id, submit_s, gpus, model, user in value["submitted"]:
            self._index[job_id] = len(self._jobs)
            self._jobs.append(RecordedJob(job_id, submit_s, math.nan, math.inf, gpus, model, user))
        for job_id, *segment in value["segments"]:
            self._started(job_id, segment[0])
            self._over.add(self._index[job_id], *segment)
        for job_id, finish_s in value["finished"]:
            index = self._index[job_id]
            self._jobs[index] = _with(self._jobs[index], finish_s=finish_s)
        self._running, self._now_s = value["running"], value["now_s"]
        for job_id, start_s, *_ in self._running:
            self._started(job_id, start_s)

    def _started(self, job_id: str, start_s: float) -> None:
        index = self._index[job_id]
        if math.isnan(self._jobs[index].start_s):
            self._jobs[index] = _with(self._jobs[index], start_s=start_s)

    def _run(self) -> RecordedRun:
        """Segments that are over and those that last, whose end is not known."""
        assert self._cluster is not None
        over, lasting = self._over, _Columns()
        for job_id, start_s, gpus, slow, began in self._running:
            lasting.add(self._index[job_id], start_s, math.inf, gpus, slow, began, "")
        of_job = dict(over.of_job)
        for job, stretches in lasting.of_job.items():
            of_job[job] = [*of_job.get(job, ()), *(len(over.job_of) + i for i in stretches)]
        about = self._header
        return RecordedRun(
            run_title(self._name, about),
            str(about.get("policy", "")),
            str(about.get("placement", "")),
            self._cluster,
            list(self._jobs),
            _joined(over.job_of, lasting.job_of),
            _joined(over.start_s, lasting.start_s),
            _joined(over.end_s, lasting.end_s),
            [*over.started, *lasting.started],
            [*over.ended, *lasting.ended],
            _joined(over.slowdown, lasting.slowdown),
            np.concatenate([np.array(over.gpu_offsets), np.array(lasting.gpu_offsets)[1:] + len(over.gpu_ids)]),
            _joined(over.gpu_ids, lasting.gpu_ids),
            self._version,
            of_job,
            about,
            self._now_s,
        )


def _joined(over: array[Any], lasting: array[Any]) -> NDArray[Any]:
    """A copy: what grows later is not seen in it."""
    return np.concatenate([np.array(over), np.array(lasting)])


def _with(job: RecordedJob, start_s: float | None = None, finish_s: float | None = None) -> RecordedJob:
    begin = job.start_s if start_s is None else start_s
    end = job.finish_s if finish_s is None else finish_s
    return RecordedJob(job.id, job.submit_s, begin, end, job.gpus, job.model, job.user)
